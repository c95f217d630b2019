"""Time and memory limits on traffic, tick by tick."""

import asyncio

import pytest

from waltz.common.errors import DeadlineExceededError
from waltz.common.net.guard import MIN_PROGRESS_BYTES, OverloadedError, TrafficGuard
from waltz.common.net.limits import TrafficLimits

FRAME_TICKS, UNREAD_TICKS = 60, 600


class FakeChannel:
    def __init__(self) -> None:
        self.reading_paused = False
        self.unsent_bytes = 0
        self.sent_bytes = 0
        self.errors: list[Exception] = []

    def give_up(self, error: Exception) -> None:
        self.errors.append(error)


@pytest.fixture
async def guard() -> TrafficGuard:
    made = TrafficGuard(TrafficLimits(max_receive_bytes=1000, max_send_bytes=1000))
    made.close()  # the timer: tests make the ticks
    return made


def tick(guard: TrafficGuard, count: int) -> None:
    for _ in range(count):
        guard._tick()


async def test_a_frame_has_its_time(guard: TrafficGuard) -> None:
    channel = FakeChannel()
    frame = guard.partial_frame(channel)
    frame.begun(10)
    tick(guard, FRAME_TICKS)
    frame.grown(5)
    assert not channel.errors
    tick(guard, 1)
    (error,) = channel.errors
    assert isinstance(error, DeadlineExceededError)
    assert str(error) == "a frame was not complete after 60 s"
    assert guard.received_bytes == 0
    tick(guard, 1000)
    assert len(channel.errors) == 1


async def test_every_frame_has_its_own_time(guard: TrafficGuard) -> None:
    channel = FakeChannel()
    frame = guard.partial_frame(channel)
    for _ in range(5):
        frame.begun(10)
        tick(guard, FRAME_TICKS)
        frame.ended()
    assert not channel.errors
    assert guard.received_bytes == 0


async def test_a_slow_line_is_not_cut() -> None:
    guard = TrafficGuard(TrafficLimits())
    guard.close()
    channel = FakeChannel()
    frame = guard.partial_frame(channel)
    frame.begun(10)
    for _ in range(10):
        frame.grown(MIN_PROGRESS_BYTES)
        tick(guard, FRAME_TICKS)
    assert not channel.errors


async def test_who_is_not_read_from_is_not_to_blame(guard: TrafficGuard) -> None:
    channel = FakeChannel()
    guard.partial_frame(channel).begun(10)
    channel.reading_paused = True
    tick(guard, 10 * FRAME_TICKS)
    channel.reading_paused = False
    tick(guard, FRAME_TICKS)
    assert not channel.errors
    tick(guard, 1)
    assert channel.errors


async def test_the_longest_incomplete_frame_gives_way(guard: TrafficGuard) -> None:
    channels = [FakeChannel() for _ in range(4)]
    frames = [guard.partial_frame(channel) for channel in channels]
    for frame in frames[:3]:
        frame.begun(300)
    frames[0].ended()
    frames[0].begun(300)  # another frame of the same peer, and the youngest now
    assert [channel.errors for channel in channels] == [[]] * 4
    frames[3].begun(200)
    assert [len(channel.errors) for channel in channels] == [0, 1, 0, 0]
    assert isinstance(channels[1].errors[0], OverloadedError)
    assert guard.received_bytes == 800
    frames[0].grown(500)
    assert [len(channel.errors) for channel in channels] == [0, 1, 1, 0]
    assert guard.received_bytes == 1000
    for frame in frames:
        frame.ended()
    assert guard.received_bytes == 0


async def test_an_unread_channel_has_its_time(guard: TrafficGuard) -> None:
    channel = FakeChannel()
    guard.not_read(channel)
    tick(guard, UNREAD_TICKS)
    assert not channel.errors
    tick(guard, 1)
    assert [type(error) for error in channel.errors] == [DeadlineExceededError]
    tick(guard, 1000)
    assert len(channel.errors) == 1


async def test_a_slow_reader_is_not_cut(guard: TrafficGuard) -> None:
    channel = FakeChannel()
    guard.not_read(channel)
    for _ in range(10):
        channel.sent_bytes += MIN_PROGRESS_BYTES
        tick(guard, UNREAD_TICKS)
    assert not channel.errors
    guard.read_again(channel)
    tick(guard, 10 * UNREAD_TICKS)
    assert not channel.errors


async def test_the_longest_unread_channel_gives_way(guard: TrafficGuard) -> None:
    channels = [FakeChannel() for _ in range(3)]
    for channel in channels:
        guard.not_read(channel)
        channel.unsent_bytes = 400
    tick(guard, 1)
    assert [len(channel.errors) for channel in channels] == [1, 0, 0]
    assert isinstance(channels[0].errors[0], OverloadedError)


async def test_the_timer_runs_only_when_there_is_something_to_watch() -> None:
    guard = TrafficGuard(TrafficLimits())

    def is_running() -> bool:
        return guard._timer is not None

    assert not is_running()
    frame = guard.partial_frame(FakeChannel())
    frame.begun(1)
    assert is_running()
    guard.close()
    assert not is_running()
    guard = TrafficGuard(TrafficLimits(frame_timeout_s=0.01))
    frame = guard.partial_frame(FakeChannel())
    frame.begun(1)
    frame.ended()
    assert is_running()
    async with asyncio.timeout(60):
        while is_running():
            await asyncio.sleep(0.001)
