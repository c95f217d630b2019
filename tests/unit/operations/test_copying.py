"""Records that are copied: all of them, in batches of the size that was wanted, as fast as was allowed."""

from collections.abc import Sequence
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.storage.node_support import record
from waltz.common.errors import WaltzError
from waltz.common.records import RECORD_OVERHEAD_BYTES, Record
from waltz.common.wire.structures import SessionInfo
from waltz.operations.copying import FIRST_BATCH_RECORDS, MAX_BATCH_RECORDS, Pace, SourceError, copy_records
from waltz.storage.remote.admin_client import StorageAdminClient
from waltz.storage.remote.client import StorageClient


@given(
    st.floats(1.0, 1e9),
    st.lists(st.tuples(st.integers(1, 1_000_000), st.floats(0, 5)), min_size=1, max_size=30),
)
def test_no_span_of_time_sees_more_than_its_share(bytes_per_s: float, batches: list[tuple[int, float]]) -> None:
    """Each batch takes some time itself; then comes the pause."""
    now_s = 100.0
    pace = Pace(bytes_per_s, now_s)
    began: list[tuple[float, int]] = []
    for size_bytes, takes_s in batches:
        began.append((now_s, size_bytes))
        now_s += takes_s
        pause_s = pace.pause_s(size_bytes, now_s)
        assert pause_s >= 0
        assert pause_s <= sum(size for _, size in began) / bytes_per_s + 1e-6
        now_s += pause_s
    for first, (first_s, _) in enumerate(began):
        moved = sum(size for _, size in began[first:])
        assert moved <= (now_s - first_s) * bytes_per_s + 1e-4 * bytes_per_s + 1


class Source:
    """Holds records; fails from one id on."""

    def __init__(self, records: Sequence[Record], fails_at: int | None = None) -> None:
        self._records = records
        self._fails_at = fails_at
        self.counts: list[int] = []

    async def records(self, _partition_id: int, first: int, max_count: int) -> Sequence[Record]:
        self.counts.append(max_count)
        if self._fails_at is not None and first >= self._fails_at:
            raise WaltzError("broken")
        return self._records[first : first + max_count]


class Destination:
    def __init__(self) -> None:
        self.records: list[Record] = []
        self.marks: list[int] = []

    async def append(self, session_id: int, _partition_id: int, records: Sequence[Record], **options: object) -> None:
        assert session_id == 4
        assert options["offline"]
        assert records[0].transaction_id == len(self.records)
        self.records += records

    async def set_low_water_mark(self, _session_id: int, _partition_id: int, mark: int, **_: object) -> None:
        assert mark == len(self.records) - 1
        self.marks.append(mark)


async def copied(
    source: Source, destination: Destination, target: int, mark: int = -1, *, batch_bytes: int | None = None
) -> list[int]:
    info = SessionInfo(4, mark, mark)
    batches = copy_records(
        cast("StorageAdminClient", source),
        cast("StorageClient", destination),
        0,
        info,
        len(destination.records) - 1,
        target,
        timeout_s=1,
        batch_records=None if batch_bytes else 7,
        batch_bytes=batch_bytes,
    )
    return [batch.size_bytes async for batch in batches]


async def test_all_is_copied_and_the_mark_follows() -> None:
    log = [record(each) for each in range(30)]
    source, destination = Source(log), Destination()
    assert sum(await copied(source, destination, 24, mark=10)) == 25 * (RECORD_OVERHEAD_BYTES + 4)
    assert destination.records == log[:25]
    assert source.counts == [7, 7, 7, 4]
    assert destination.marks == [13, 20, 24]  # a mark that is further than the records stays
    assert await copied(source, destination, 24) == []
    await copied(source, destination, 29, mark=24)
    assert destination.records == log


@pytest.mark.parametrize("size_bytes", [0, 10, 5000])
async def test_batches_have_the_size_that_was_wanted(size_bytes: int) -> None:
    log = [record(each, b"x" * size_bytes) for each in range(3000)]
    source, destination = Source(log), Destination()
    sizes = await copied(source, destination, 2999, batch_bytes=100_000)
    assert destination.records == log
    assert source.counts[0] == FIRST_BATCH_RECORDS
    assert max(sizes) <= max(100_000, FIRST_BATCH_RECORDS * (RECORD_OVERHEAD_BYTES + size_bytes))
    assert max(source.counts) == min(MAX_BATCH_RECORDS, 100_000 // (RECORD_OVERHEAD_BYTES + size_bytes))


async def test_a_source_that_fails_is_told_from_a_destination_that_does() -> None:
    log = [record(each) for each in range(30)]
    destination = Destination()
    with pytest.raises(SourceError, match="broken"):
        await copied(Source(log, fails_at=14), destination, 29)
    assert destination.records == log[:14]
    with pytest.raises(SourceError, match="does not hold transaction 20, although it should reach 29"):
        await copied(Source(log[:20]), destination, 29)
    assert destination.records == log[:20]
