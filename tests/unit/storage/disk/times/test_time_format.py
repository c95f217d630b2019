"""Bytes of a time index, and the search among entries of which some are damaged."""

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.storage.log_testing import KEY, PARTITION
from waltz.storage.disk.times.time_format import (
    ENTRY_BYTES,
    HEADER_BYTES,
    TimeEntry,
    TimeHeader,
    decode_entry,
    encode_entry,
    entry_count,
    entry_offset,
    last_position,
    time_index_name,
)

HEADER = TimeHeader(KEY, PARTITION, 100)
ENTRY = TimeEntry(123, 1_700_000_000_000)

entries = st.builds(TimeEntry, st.integers(0, (1 << 63) - 1), st.integers(0, (1 << 63) - 1))


def test_the_bytes_are_those_of_the_documentation() -> None:
    assert HEADER.encode().hex() == (
        "57544458" + "00000001" + "000102030405060708090a0b0c0d0e0f" + "00000003" + "0000000000000064" + "4378c075"
    )
    assert encode_entry(HEADER, ENTRY).hex() == "000000000000007b" + "0000018bcfe56800" + "4736fc10"
    assert (HEADER_BYTES, ENTRY_BYTES) == (40, 20)
    assert time_index_name(100) == "0000000000000000100.tdx"


@given(entries)
def test_entries_come_back(entry: TimeEntry) -> None:
    assert decode_entry(HEADER, encode_entry(HEADER, entry)) == entry


@given(entries, st.integers(0, ENTRY_BYTES - 1), st.integers(1, 255))
def test_what_is_damaged_or_torn_is_no_entry(entry: TimeEntry, at: int, difference: int) -> None:
    encoded = bytearray(encode_entry(HEADER, entry))
    assert decode_entry(HEADER, bytes(encoded[:at])) is None
    encoded[at] ^= difference
    assert decode_entry(HEADER, bytes(encoded)) is None


def test_entries_of_another_file_are_none() -> None:
    encoded = encode_entry(HEADER, ENTRY)
    for other in (HEADER._replace(first_transaction_id=101), HEADER._replace(partition_id=4)):
        assert decode_entry(other, encoded) is None
    assert decode_entry(HEADER, bytes(ENTRY_BYTES)) is None


@given(st.integers(0, 50), st.integers(0, ENTRY_BYTES - 1))
def test_a_torn_entry_is_not_counted(count: int, more: int) -> None:
    assert entry_count(entry_offset(count) + more) == count
    assert entry_count(HEADER_BYTES - 1) == 0


@given(st.lists(st.booleans(), max_size=40), st.integers(-1, 41))
def test_the_last_wanted_entry_is_found_among_damaged_ones(intact: list[bool], limit: int) -> None:
    def read(position: int) -> TimeEntry | None:
        return TimeEntry(position, 0) if intact[position] else None

    expected = max((at for at, is_intact in enumerate(intact) if is_intact and at <= limit), default=None)
    assert last_position(read, len(intact), lambda entry: entry.transaction_id <= limit) == expected
