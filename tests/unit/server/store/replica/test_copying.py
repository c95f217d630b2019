"""Copying in steps, one ahead."""

import asyncio

import pytest

from waltz.common.errors import WaltzError
from waltz.common.records import Record
from waltz.server.store.replica.copying import ReadAhead

SIZE_BYTES = 500_000
"""Ten records at first, for their size is not known yet."""


class Source:
    """Records up to an id, each read taking a second; notes what was asked."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.asked: list[tuple[str, int, int]] = []
        self.fail = False
        self.reading = 0

    async def read(self, name: str, first: int, count: int) -> list[Record]:
        self.asked.append((name, first, count))
        self.reading += 1
        try:
            await asyncio.sleep(1)
        finally:
            self.reading -= 1
        if self.fail:
            raise WaltzError("cannot be read")
        return [Record(i, bytes(16), 0, bytes(49_964), 0) for i in range(first, min(first + count, self.last + 1))]


async def test_the_next_step_is_read_while_the_last_one_is_written() -> None:
    source = Source(39)
    copies = ReadAhead(source.read, SIZE_BYTES)
    started_s, first = asyncio.get_running_loop().time(), 0
    while first <= 39:
        records = await copies.take("a", first, 39)
        assert records[0].transaction_id == first
        first = records[-1].transaction_id + 1
        await asyncio.sleep(1)  # writing
    assert asyncio.get_running_loop().time() - started_s == pytest.approx(5)
    assert [asked[1] for asked in source.asked] == [0, 10, 20, 30]
    await copies.close()


async def test_what_was_read_ahead_is_used_only_for_what_is_wanted() -> None:
    source = Source(100)
    copies = ReadAhead(source.read, SIZE_BYTES)
    await copies.take("a", 0, 100)
    assert [record.transaction_id for record in await copies.take("a", 10, 12)] == [10, 11, 12]
    await copies.take("b", 13, 100)
    await copies.take("a", 23, 100)
    assert ("a", 23, 10) in source.asked, "not what was read from another source"
    await copies.close()
    assert source.reading == 0


async def test_less_is_asked_for_after_a_failure() -> None:
    source = Source(100)
    copies = ReadAhead(source.read, SIZE_BYTES)
    source.fail = True
    for _ in range(5):
        with pytest.raises(WaltzError):
            await copies.take("a", 0, 100)
    assert [asked[2] for asked in source.asked] == [10, 5, 2, 1, 1]
    source.fail = False
    await copies.take("a", 0, 100)
    await copies.close()
