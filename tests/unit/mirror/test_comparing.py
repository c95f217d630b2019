"""The first difference of two logs, against a loop over both."""

from collections.abc import AsyncIterator, Sequence

from hypothesis import given
from hypothesis import strategies as st

from waltz.common.checksum import checksum
from waltz.common.records import Record
from waltz.mirror.comparing import Difference, bisected, compare_range, difference_of

CONTENTS = st.lists(st.tuples(st.integers(0, 1), st.sampled_from([b"", b"x", b"y"])), max_size=12)


def record(transaction_id: int, header: int = 0, data: bytes = b"", req_id: bytes = bytes(16)) -> Record:
    return Record(transaction_id, req_id, header, data, checksum(data))


class ListedLog:
    """A log that delivers its records in batches of given sizes."""

    def __init__(self, records: Sequence[Record], sizes: Sequence[int]) -> None:
        self._records = records
        self._sizes = sizes or [1]

    async def batches(self, first: int, until: int) -> AsyncIterator[Sequence[Record]]:
        turn = 0
        while first <= until:
            size = self._sizes[turn % len(self._sizes)]
            turn += 1
            yield self._records[first : min(first + size, until + 1)]
            first += size


SIZES = st.lists(st.integers(1, 5), max_size=3)


@given(CONTENTS, CONTENTS, SIZES, SIZES, st.integers(0, 12))
async def test_by_ranges(
    ours: list[tuple[int, bytes]],
    theirs: list[tuple[int, bytes]],
    our_sizes: list[int],
    their_sizes: list[int],
    first: int,
) -> None:
    count = min(len(ours), len(theirs))
    different = [each for each in range(first, count) if ours[each] != theirs[each]]
    source = ListedLog([record(each, *ours[each]) for each in range(count)], our_sizes)
    target = ListedLog([record(each, *theirs[each]) for each in range(count)], their_sizes)
    found = await compare_range(source, target, first, count - 1)
    assert (found is not None) == bool(different)
    if found is not None:
        assert found.transaction_id == different[0]


def test_request_ids_may_differ() -> None:
    assert difference_of(record(3, 1, b"x", b"a" * 16), record(3, 1, b"x", b"b" * 16)) is None


def test_what_differs_is_named() -> None:
    assert str(difference_of(record(3, 1), record(3, 2))) == (
        "transaction 3: the header is 1 in the source, and 2 in the target"
    )
    assert str(difference_of(record(3, 1, b"x"), record(3, 1, b"yz"))) == (
        "transaction 3: the data is 1 bytes with CRC-32 8cdc1683 in the source, and 2 bytes with CRC-32 "
        f"{checksum(b'yz') & 0xFFFFFFFF:08x} in the target"
    )


@given(st.integers(1, 200), st.data())
async def test_logs_that_have_grown_apart_are_bisected(count: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, count - 1))
    asked: list[int] = []

    async def differs(transaction_id: int) -> Difference | None:
        asked.append(transaction_id)
        return Difference(transaction_id, "other data") if transaction_id >= first else None

    assert (await bisected(differs, Difference(count - 1, "other data"))).transaction_id == first
    assert len(asked) <= count.bit_length()
