"""Texts that are put together piece by piece: whole, one at a time, and with turns for others."""

import asyncio
from collections.abc import Iterator

import pytest

from waltz.common import pieces
from waltz.common.pieces import Pieces


async def test_pieces_are_joined_in_order() -> None:
    joiner = Pieces()
    assert await joiner.join(iter(())) == ""
    assert await joiner.join(map(str, range(12))) == "01234567891011"


async def test_others_have_their_turn_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "MAX_TURN_S", 0.0)
    joiner, log = Pieces(), []

    def made(name: str) -> Iterator[str]:
        for number in range(3):
            log.append(f"{name}{number}")
            yield name

    async def other() -> None:
        for _ in range(3):
            log.append("other")
            await asyncio.sleep(0)

    first, second, _ = await asyncio.gather(joiner.join(made("a")), joiner.join(made("b")), other())
    assert (first, second) == ("aaa", "bbb")
    assert [each for each in log if each != "other"] == ["a0", "a1", "a2", "b0", "b1", "b2"]
    assert log.index("other") < log.index("a1")


async def test_a_text_that_fails_leaves_room_for_the_next() -> None:
    def failing() -> Iterator[str]:
        yield "a"
        raise RuntimeError("a defect")

    joiner = Pieces()
    with pytest.raises(RuntimeError, match="a defect"):
        await joiner.join(failing())
    assert await joiner.join(iter("ab")) == "ab"
