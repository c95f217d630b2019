"""The bytes of archived objects against a naive model, and every way to damage them."""

import random
import re
from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.archive.records import KEY, PARTITION, record, sealed, stored
from waltz.archive import object_format
from waltz.archive.errors import ArchiveDamagedError
from waltz.archive.object_format import (
    Limit,
    ObjectName,
    ObjectWriter,
    decode_block,
    decode_index,
    decode_object,
    parse_name,
    records_that_fit,
)
from waltz.common.checksum import checksum, crc32
from waltz.storage.disk.segment.segment_format import decode_record, encode_record


@pytest.fixture
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_format, "BLOCK_BYTES", 150)
    monkeypatch.setattr(object_format, "BLOCK_RECORDS", 4)


def model_of_blocks(sizes: list[int], max_bytes: int, max_records: int) -> list[int]:
    """Number of records of each block, record by record."""
    counts: list[int] = []
    block: list[int] = []
    for size in sizes:
        if block and (sum(block) + size > max_bytes or len(block) == max_records):
            counts.append(len(block))
            block = []
        block.append(size)
    return [*counts, len(block)]


@pytest.mark.usefixtures("_small_blocks")
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([0, 1, 60, 106, 107, 400]).map(lambda size: b"x" * size), min_size=1, max_size=30),
    st.integers(0, 2**62),
    st.randoms(use_true_random=False),
)
def test_the_same_records_make_the_same_bytes_in_any_portions(
    payloads: list[bytes], first: int, chance: random.Random
) -> None:
    pieces = stored(first, payloads)
    sizes = [*map(len, pieces)]
    whole = sealed(first, payloads)
    writer = ObjectWriter(KEY, PARTITION, first)
    place = 0
    while place < len(pieces):
        end = place + chance.randint(1, 5)
        writer.add(b"".join(pieces[place:end]), sizes[place:end])
        place = end
    assert writer.count == len(payloads)
    assert writer.next_id == first + len(payloads)
    assert writer.finish() == whole
    index, blocks = decode_object(whole.data, KEY, PARTITION, whole.name, "it")
    assert b"".join(block.data for block in blocks) == b"".join(pieces)
    assert [size for block in blocks for size in block.sizes] == sizes
    assert [block.record_count for block in index.blocks] == model_of_blocks(sizes, 150, 4)
    assert (index.first, index.last, index.records_bytes) == (first, first + len(pieces) - 1, sum(sizes))
    assert whole.name == ObjectName(first, first + len(pieces) - 1, crc32(whole.data))
    assert parse_name(str(whole.name)) == whole.name


@pytest.mark.usefixtures("_small_blocks")
def test_index_finds_the_blocks_of_a_range() -> None:
    whole = sealed(100, [b"x" * (7 * place % 90) for place in range(40)])
    index = decode_index(whole.data[-whole.index_bytes :], len(whole.data), "it")
    for start in range(100, 140):
        for end in range(start + 1, 141):
            found = index.covering(start, end)
            expected = [each for each in index.blocks if each.first < end and start < each.first + each.record_count]
            assert [*found] == expected


@pytest.mark.usefixtures("_small_blocks")
def test_every_flipped_bit_and_every_missing_byte_is_noticed() -> None:
    whole = sealed(5, [b"first", b"", b"third" * 20, b"4"])
    for place in range(len(whole.data)):
        for bit in range(8):
            damaged = bytearray(whole.data)
            damaged[place] ^= 1 << bit
            with pytest.raises(ArchiveDamagedError, match="^the object "):
                decode_object(bytes(damaged), KEY, PARTITION, whole.name, "the object")
        with pytest.raises(ArchiveDamagedError, match="^the object "):
            decode_object(whole.data[:place], KEY, PARTITION, whole.name, "the object")
    with pytest.raises(ArchiveDamagedError, match="^the object "):
        decode_object(whole.data + b"\0", KEY, PARTITION, whole.name, "the object")


def test_a_flipped_bit_of_a_block_is_noticed_by_a_reader_of_that_block() -> None:
    whole = sealed(5, [b"first", b"second"])
    index = decode_index(whole.data[-whole.index_bytes :], len(whole.data), "it")
    (block,) = index.blocks
    data = whole.data[block.offset : block.offset + block.size_bytes]
    assert decode_block(data, block, "it").data == b"".join(stored(5, [b"first", b"second"]))
    for place in range(len(data)):
        with pytest.raises(ArchiveDamagedError, match="transactions 5 to 6 do not match"):
            decode_block(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :], block, "it")
        with pytest.raises(ArchiveDamagedError, match="truncated"):
            decode_block(data[:place], block, "it")


def test_what_is_wrong_is_told() -> None:
    whole = sealed(5, [b"first"])
    newer = whole.data.replace(b"WALTZAR\x01", b"WALTZAR\x02")
    text = "version 2 of the format, but this version of Waltz reads only 1: upgrade Waltz"
    with pytest.raises(ArchiveDamagedError, match=re.escape(text)):
        decode_object(newer, KEY, PARTITION, whole.name, "it")
    with pytest.raises(ArchiveDamagedError, match="it is not an archived object"):
        decode_object(b"x" * 200, KEY, PARTITION, whole.name, "it")
    with pytest.raises(ArchiveDamagedError, match="it holds partition 3 of cluster .* not partition 4"):
        decode_object(whole.data, KEY, 4, whole.name, "it")


@pytest.mark.parametrize("name", ["", "manifest", "1-2-3", f"{0:019d}-{1:019d}-0000000G", f"{0:019d}-{1:019d}-0"])
def test_other_names_are_no_objects(name: str) -> None:
    assert parse_name(name) is None


def test_records_that_are_damaged_or_not_the_next_ones_are_refused() -> None:
    writer = ObjectWriter(KEY, PARTITION, 10)
    pieces = stored(10, [b"a", b"b"])
    with pytest.raises(ArchiveDamagedError, match="partition 3: transaction 11 is damaged or out of order"):
        writer.add(pieces[0] + pieces[1][:-1] + b"?", [*map(len, pieces)])
    with pytest.raises(ArchiveDamagedError, match="transaction 10"):
        writer.add(pieces[1], [len(pieces[1])])
    assert writer.count == 0
    writer.add(b"".join(pieces), [*map(len, pieces)])
    assert writer.finish() == sealed(10, [b"a", b"b"])


def test_a_payload_that_does_not_match_its_own_checksum_is_refused() -> None:
    writer = ObjectWriter(KEY, PARTITION, 10)
    wrong = encode_record(record(11, b"b")._replace(data=b"c"))
    first = stored(10, [b"a"])[0]
    with pytest.raises(ArchiveDamagedError, match="transaction 11 is damaged"):
        writer.add(first + wrong, [len(first), len(wrong)])


@given(st.lists(st.integers(40, 300), max_size=20), st.integers(0, 10), st.integers(0, 900))
def test_an_object_takes_what_fits(sizes: list[int], present: int, present_bytes: int) -> None:
    limit = Limit(8, 900)
    if present == 0:
        present_bytes = 0
    fitting = 0
    for total in accumulate(sizes):
        is_first = present + fitting == 0
        if not is_first and (present_bytes + total > limit.max_bytes or present + fitting >= limit.max_records):
            break
        fitting += 1
    assert records_that_fit(sizes, present, present_bytes, limit) == fitting


def model_of_soundness(records: bytes, bounds: list[int], first: int) -> int:
    """Number of sound records, one by one."""
    for place, (begin, end) in enumerate(pairwise(bounds)):
        found = decode_record(records, begin, end, first + place)
        if found is None or checksum(found.data) != found.checksum:
            return place
    return len(bounds) - 1


@given(
    st.lists(st.sampled_from([0, 1, 30, 471, 472, 511, 512, 513, 3000]), min_size=1, max_size=8),
    st.integers(0, 3),
    st.data(),
)
def test_records_are_sound_as_long_as_each_of_them_is(sizes: list[int], kind: int, data: st.DataObject) -> None:
    chance = random.Random(data.draw(st.integers(0, 99)))
    pieces = stored(10, [chance.randbytes(size) for size in sizes])
    victim = data.draw(st.integers(0, len(pieces) - 1))
    if kind == 1:  # a bit is wrong
        place = data.draw(st.integers(0, len(pieces[victim]) - 1))
        pieces[victim] = pieces[victim][:place] + bytes([pieces[victim][place] ^ 8]) + pieces[victim][place + 1 :]
    elif kind == 2:  # the client's checksum is wrong, and the storage's is right
        pieces[victim] = encode_record(record(10 + victim, b"data")._replace(checksum=5))
    elif kind == 3:  # a record is missing
        del pieces[victim]
    bounds = [*accumulate(map(len, pieces), initial=0)]
    if data.draw(st.booleans()):  # a border is wrong
        border = data.draw(st.integers(0, len(bounds) - 1))
        bounds[border] += data.draw(st.sampled_from([-41, -1, 1, 50]))
    whole = b"".join(pieces)
    bounds = [0, *(max(each, 0) for each in bounds[1:])]
    assert object_format._sound_records(whole, bounds, 10) == model_of_soundness(whole, bounds, 10)
