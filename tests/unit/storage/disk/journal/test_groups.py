"""Groups of the journal: their bytes, and what a flipped bit or a sector that was not written makes of them."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.storage.disk.journal.test_entries import ENTRIES
from waltz.storage.disk.journal.entries import Dropped, Entry, Fenced, Records, Settled
from waltz.storage.disk.journal.groups import (
    BLOCK_BYTES,
    MAX_SEQUENCE,
    SECTOR_BYTES,
    GroupHead,
    decode_body,
    decode_head,
    encode_group,
    entries_of,
    life_of,
    mark_of,
    partitions_of,
    spread,
)

VOLUME = bytes(range(16))
SEQUENCES = st.integers(1, MAX_SEQUENCE)


def encoded(entries: list[Entry], sequence: int = 3) -> bytes:
    return encode_group(entries, volume_id=VOLUME, sequence=sequence, number=7, base=5, previous_check=9)[0]


def decoded(data: bytes) -> tuple[GroupHead, list[Entry]] | None:
    head = decode_head(data, VOLUME)
    body = None if head is None else decode_body(head, data)
    return None if head is None or body is None else (head, entries_of(head, body))


@given(st.lists(ENTRIES, max_size=6), SEQUENCES)
def test_what_was_encoded_comes_back(entries: list[Entry], sequence: int) -> None:
    data, check = encode_group(entries, volume_id=VOLUME, sequence=sequence, number=7, base=5, previous_check=9)
    group = decoded(data)
    assert group is not None
    head, found = group
    assert found == entries
    assert head.voids == any(isinstance(entry, Settled | Dropped) for entry in entries)
    assert set(partitions_of(head, data) or ()) == {entry[0] for entry in entries if entry}
    assert (head.sequence, head.number, head.base, head.previous_check, head.check) == (sequence, 7, 5, 9, check)
    assert head.size_bytes == len(data)
    assert len(data) % BLOCK_BYTES == 0
    assert all(life_of(data[at : at + SECTOR_BYTES]) == sequence for at in range(0, len(data), SECTOR_BYTES))


@given(st.lists(ENTRIES, max_size=3), st.data())
def test_a_flipped_bit_is_seen_or_harmless(entries: list[Entry], data: st.DataObject) -> None:
    content = bytearray(encoded(entries))
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    group = decoded(bytes(content))
    assert group is None or group[1] == entries


@given(st.lists(ENTRIES, min_size=1, max_size=3), st.integers(0, 8000))
def test_a_group_that_is_cut_off_is_none(entries: list[Entry], size: int) -> None:
    content = encoded(entries)
    if size < len(content):
        assert decoded(content[:size]) is None


@given(st.binary(max_size=5000))
def test_hostile_bytes_are_no_group(content: bytes) -> None:
    assert decoded(content) is None


def test_a_group_of_another_volume_is_none() -> None:
    assert decode_head(encoded([Fenced(1, 2)]), bytes(16)) is None


def test_a_group_inside_of_a_payload_is_none() -> None:
    """Whoever writes records knows the format, and may find out where a block begins, but not the id of the volume."""
    forged = encode_group([], volume_id=bytes(16), sequence=3, number=8, base=5, previous_check=9)[0]
    assert decode_head(forged, VOLUME) is None


def test_the_partitions_are_known_when_the_entries_are_not_whole() -> None:
    data = bytearray(encoded([Fenced(4, 2), Records(9, 1, 0, 128, 0, 1, [bytes(9000)])]))
    data[5000] ^= 1
    head = decode_head(bytes(data), VOLUME)
    assert head is not None
    assert decode_body(head, bytes(data)) is None
    assert sorted(partitions_of(head, bytes(data)) or ()) == [4, 9]
    data[61] ^= 1
    assert partitions_of(head, bytes(data)) is None


# Marks


@given(SEQUENCES, st.integers(0, 63))
def test_a_flipped_bit_of_a_mark_does_not_make_it_another(sequence: int, bit: int) -> None:
    sector = bytearray(SECTOR_BYTES - 8) + mark_of(sequence)
    assert life_of(bytes(sector)) == sequence
    sector[-1 - bit // 8] ^= 1 << bit % 8
    assert life_of(bytes(sector)) == sequence


@given(st.integers(0, 63))
def test_a_sector_that_was_never_written_has_no_life(bit: int) -> None:
    sector = bytearray(SECTOR_BYTES)
    assert life_of(bytes(sector)) == 0
    sector[-1 - bit // 8] ^= 1 << bit % 8
    assert life_of(bytes(sector)) == 0


@pytest.mark.parametrize("mark", [b"\xff" * 8, b"12345678", b""])
def test_other_bytes_are_no_mark(mark: bytes) -> None:
    assert life_of(bytes(SECTOR_BYTES - 8) + mark) is None


def test_the_bytes_are_these() -> None:
    data = encoded([Fenced(1, 2), Records(3, 4, 5, 6, 7, 8, [b"payload" * 100])])
    assert data[:64].hex() == (
        "574a4731000000030000000000000007000000000000000500000009"
        "00000002c14ba76300000002000000000000000302b1ec8c2b98a859"
        "a700000001000000"
    )
    assert hashlib.sha256(data).hexdigest() == "88ea1971bd50e0f429c336a02808ce433979339d0a1e89fb7931c6af2ca85fac"
    assert mark_of(3).hex() == "00000003d33fcd34"
    assert spread(bytes(504), 3) == bytes(504) + mark_of(3)
