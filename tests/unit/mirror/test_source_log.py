"""A target is compared with its source, as far as both still have transactions."""

from collections.abc import Sequence

import pytest

from waltz.client.errors import TrimmedError
from waltz.common.checksum import crc32
from waltz.common.records import Record
from waltz.mirror.errors import DifferentLogsError, SourceTrimmedError
from waltz.mirror.source_log import check_beginning


class FakeLog:
    """A log from its trim point on."""

    def __init__(self, data: Sequence[bytes], first_available: int = 0) -> None:
        self._data = data
        self._first_available = first_available

    async def mark(self) -> tuple[int, bool]:
        return len(self._data) - 1, True

    async def record(self, transaction_id: int) -> Record:
        if transaction_id < self._first_available:
            raise TrimmedError(0, self._first_available)
        return Record(transaction_id, b"\0" * 16, 0, self._data[transaction_id], crc32(self._data[transaction_id]))


async def check(source: FakeLog, target: FakeLog, last_id: int) -> None:
    await check_beginning(0, source, target, last_id)  # type: ignore[arg-type]


async def test_what_is_left_of_both_is_enough_if_it_is_equal() -> None:
    log = [b"%d" % each for each in range(20)]
    for first_available in range(10):
        await check(FakeLog(log, first_available), FakeLog(log[:10]), 9)
    with pytest.raises(TrimmedError):
        await check(FakeLog(log, 10), FakeLog(log[:10]), 9)


async def test_a_difference_is_named_although_its_begin_is_trimmed() -> None:
    source, target = [b"a"] * 20, [b"a"] * 5 + [b"b"] * 5
    with pytest.raises(DifferentLogsError, match="no beginning of the source. transaction 5: "):
        await check(FakeLog(source), FakeLog(target), 9)
    with pytest.raises(DifferentLogsError, match="no beginning of the source. transaction 9: "):
        await check(FakeLog(source, 7), FakeLog(target), 9)


def test_what_is_lost_and_what_to_do_are_said() -> None:
    text = str(SourceTrimmedError(3, 5, 9))
    assert "partition 3: the mirror needs transactions of the source from 5 on, and those from 5 to 8 are" in text
    assert "waltz archive restore" in text
