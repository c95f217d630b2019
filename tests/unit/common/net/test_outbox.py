"""Preparations first, then every channel once, all in one step at the end of the turn."""

import asyncio

from waltz.common.net.outbox import Outbox


class Recorder:
    """A channel, or something that prepares."""

    def __init__(self, name: str, steps: list[str]) -> None:
        self.name = name
        self.steps = steps

    def flush(self) -> None:
        self.steps.append(self.name)


async def test_everything_is_prepared_before_anything_is_written_and_each_channel_is_written_once() -> None:
    outbox, steps = Outbox(), list[str]()
    first, second = Recorder("first", steps), Recorder("second", steps)

    def prepare(name: str) -> None:
        steps.append(name)
        outbox.add(second)
        outbox.add(first)

    outbox.add(first)
    outbox.prepare(lambda: prepare("a"))
    outbox.prepare(lambda: prepare("b"))
    assert steps == []
    await asyncio.sleep(0)
    assert steps == ["a", "b", "first", "second"]
    await asyncio.sleep(0)
    assert len(steps) == 4


async def test_what_is_prepared_by_a_preparation_has_its_turn() -> None:
    outbox, steps = Outbox(), list[str]()
    channel = Recorder("channel", steps)

    def prepare() -> None:
        outbox.add(channel)
        outbox.prepare(lambda: steps.append("later"))

    outbox.prepare(prepare)
    await asyncio.sleep(0)
    assert steps == ["channel"]
    await asyncio.sleep(0)
    assert steps == ["channel", "later"]
    outbox.add(channel)
    await asyncio.sleep(0)
    assert steps == ["channel", "later", "channel"]


class Broken:
    """A channel that cannot be written."""

    def flush(self) -> None:
        raise ArithmeticError


async def test_what_fails_is_reported_and_takes_nobody_with_it() -> None:
    outbox, steps = Outbox(), list[str]()
    reported: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(type(context["exception"])))

    def fail() -> None:
        raise ZeroDivisionError

    for _ in range(2):
        outbox.prepare(fail)
        outbox.add(Broken())
        outbox.prepare(lambda: outbox.add(Recorder("channel", steps)))
        await asyncio.sleep(0)
    assert steps == ["channel"] * 2
    assert reported == [ZeroDivisionError, ArithmeticError] * 2


async def test_what_is_added_while_channels_are_written_is_written_in_the_next_turn() -> None:
    outbox, steps = Outbox(), list[str]()
    late = Recorder("late", steps)

    class Full(Recorder):
        def flush(self) -> None:
            super().flush()
            outbox.add(late)

    outbox.add(Full("full", steps))
    await asyncio.sleep(0)
    assert steps == ["full"]
    await asyncio.sleep(0)
    assert steps == ["full", "late"]
