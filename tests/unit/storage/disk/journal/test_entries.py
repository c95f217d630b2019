"""Entries of the journal and their bytes: whatever was encoded comes back, and nothing else is taken for an entry."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.storage.disk.journal.entries import (
    Closed,
    Dropped,
    Entry,
    EntryError,
    Fenced,
    Marked,
    NewSegment,
    Records,
    Settled,
    Truncated,
    decode_entries,
    encode_entries,
)

NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)
PARTITIONS = st.integers(-(1 << 31), (1 << 31) - 1)
COUNTS = st.integers(0, (1 << 31) - 1)

ENTRIES: st.SearchStrategy[Entry] = st.one_of(
    st.builds(Records, PARTITIONS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, COUNTS, st.tuples(st.binary(max_size=600))),
    st.builds(NewSegment, PARTITIONS, NUMBERS, NUMBERS),
    st.builds(Truncated, PARTITIONS, NUMBERS, NUMBERS, NUMBERS, NUMBERS),
    st.builds(Fenced, PARTITIONS, NUMBERS),
    st.builds(Marked, PARTITIONS, NUMBERS, NUMBERS, NUMBERS),
    st.builds(Settled, PARTITIONS, NUMBERS, NUMBERS, NUMBERS),
    st.builds(Dropped, PARTITIONS),
    st.just(Closed()),
)


def decoded(data: bytes, count: int) -> list[Entry]:
    return list(decode_entries(data, 0, count))


@given(st.lists(ENTRIES, max_size=8), st.integers(0, 50))
def test_what_was_encoded_comes_back(entries: list[Entry], zeros: int) -> None:
    pieces, partitions, _ = encode_entries(entries)
    assert decoded(b"".join(pieces) + bytes(zeros), len(entries)) == entries
    assert partitions == {entry.partition_id for entry in entries if not isinstance(entry, Closed)}


def test_pieces_of_records_are_joined() -> None:
    pieces, _, _ = encode_entries([Records(1, 2, 3, 4, 5, 6, [b"one", b"", b"two"])])
    assert decoded(b"".join(pieces), 1) == [Records(1, 2, 3, 4, 5, 6, (b"onetwo",))]


@given(st.lists(ENTRIES, min_size=1, max_size=4), st.data())
def test_what_is_cut_off_is_refused(entries: list[Entry], data: st.DataObject) -> None:
    content = b"".join(encode_entries(entries).pieces)
    size = data.draw(st.integers(0, len(content) - 1))
    with pytest.raises(EntryError, match="cut off"):
        decoded(content[:size], len(entries))


def test_what_follows_is_refused() -> None:
    content = b"".join(encode_entries([Fenced(1, 2), Fenced(3, 4)])[0])
    with pytest.raises(EntryError, match="behind the last entry"):
        decoded(content, 1)


@given(st.binary(max_size=200), st.integers(0, 4))
def test_hostile_bytes_are_refused_or_decoded(content: bytes, count: int) -> None:
    with contextlib.suppress(EntryError):
        assert len(decoded(content, count)) == count


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x09\0\0\0\1\0\0\0\0", "no entry of kind 9"),
        (b"\x04\0\0\0\1\0\0\0\1x", "kind 4 has a wrong size"),
        (b"\x01\0\0\0\1\0\0\0\1x", "records is too short"),
        (b"\x08\xff\xff\xff\xff\0\0\0\1x", "kind 8 is too long"),
        (b"\x01\0\0\0\1\xff\xff\xff\xffx", "cut off"),
    ],
)
def test_wrong_entries_are_named(content: bytes, message: str) -> None:
    with pytest.raises(EntryError, match=message):
        decoded(content, 1)


def test_the_bytes_are_these() -> None:
    entries: list[Entry] = [
        Records(1, 2, 3, 4, 5, 6, [b"abc"]),
        NewSegment(1, 2, 3),
        Truncated(1, 2, 3, 4, 5),
        Fenced(1, 2),
        Marked(1, 2, 3, 4),
        Settled(1, 2, 3, 4),
        Dropped(1),
        Closed(),
    ]
    assert b"".join(encode_entries(entries).pieces).hex() == (
        "010000000100000027"
        "0000000000000002000000000000000300000000000000040000000000000005"
        "00000006616263"
        "02000000010000001000000000000000020000000000000003"
        "0300000001000000200000000000000002000000000000000300000000000000040000000000000005"
        "0400000001000000080000000000000002"
        "050000000100000018000000000000000200000000000000030000000000000004"
        "060000000100000018000000000000000200000000000000030000000000000004"
        "070000000100000000"
        "08ffffffff00000000"
    )
