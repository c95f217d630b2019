"""Copies of times between storages, against a naive model."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.common.wire.storage_times import CommitTime
from waltz.storage.remote import time_copies
from waltz.storage.remote.time_copies import copy_times

ENTRIES = st.dictionaries(st.integers(0, 40), st.integers(0, 5), max_size=20)


@given(ENTRIES, st.integers(0, 42), st.integers(-1, 42), st.integers(1, 5))
def test_all_entries_of_the_range_are_copied_and_its_end_is_covered(
    known: dict[int, int], first: int, last: int, page: int
) -> None:
    source, time_ms = list[CommitTime](), 0
    for transaction_id, step_ms in sorted(known.items()):
        time_ms += step_ms
        source.append(CommitTime(transaction_id, time_ms))
    entered: list[CommitTime] = []

    async def read(begin: int, max_count: int) -> list[CommitTime]:
        assert max_count == page
        return [entry for entry in source if entry.transaction_id >= begin][:max_count]

    async def enter(times: Sequence[CommitTime]) -> None:
        assert 0 < len(times) <= page
        entered.extend(times)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time_copies, "MAX_TIMES", page)
        assert asyncio.run(copy_times(read, enter, first, last)) == len(entered)
    expected = [entry for entry in source if first <= entry.transaction_id <= last]
    covering = [entry for entry in source if entry.transaction_id > last]
    if first <= last and covering and last not in known:
        expected.append(CommitTime(last, covering[0].time_ms))
    assert entered == expected
