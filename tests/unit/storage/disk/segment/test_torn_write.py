"""Rule S9: what may have been acknowledged is never cut, and what an interrupted write leaves stops no partition."""

import contextlib
import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.storage.crash_files import SECTOR_BYTES, CrashFiles, CrashNow
from tests.unit.storage.log_testing import DIRECTORY, append, open_log, record
from waltz.common.checksum import crc32
from waltz.common.records import Record
from waltz.storage.disk.log.log import PartitionLog
from waltz.storage.disk.segment.segment_format import HEADER_SIZE_BYTES, RECORD_CRC, STORED_OVERHEAD_BYTES
from waltz.storage.disk.segment.torn_write import _bit_of
from waltz.storage.errors import CorruptionError

SEG = f"{DIRECTORY}/{0:019d}.seg"
IDX = f"{DIRECTORY}/{0:019d}.idx"

ZEROS_INSIDE = b"head" + bytes(1400) + b"tail"
TEXT = b"text" * 352


def make(payloads: list[bytes]) -> tuple[CrashFiles, list[Record]]:
    """A segment of so many records, each written and synced by itself; the index is empty, as nothing synced it."""
    files = CrashFiles()
    log = open_log(files)
    items = [record(number, payload) for number, payload in enumerate(payloads)]
    for item in items:
        append(log, [item])
    files.restart()
    files.overwrite(IDX, bytes(files.node(IDX).durable))
    return files, items


def offsets_of(items: list[Record]) -> list[int]:
    """Where the records begin, and where the last one ends."""
    offsets = [HEADER_SIZE_BYTES]
    for item in items:
        offsets.append(offsets[-1] + STORED_OVERHEAD_BYTES + len(item.data))
    return offsets


def damage(files: CrashFiles, offset: int, new: bytes) -> None:
    content = bytearray(files.contents(SEG))
    content[offset : offset + len(new)] = new
    files.overwrite(SEG, bytes(content))


def flip(files: CrashFiles, offset: int, mask: int = 1) -> None:
    damage(files, offset, bytes([files.contents(SEG)[offset] ^ mask]))


@pytest.mark.parametrize("payload", [TEXT, ZEROS_INSIDE])
@pytest.mark.parametrize("number", [20, 49])
@pytest.mark.parametrize("at", [0, 7, 10, 26, 28, 30, 31, 34, 36, 700, 1441, 1444, 1447])
def test_one_flipped_bit_in_what_was_acknowledged_is_never_cut(payload: bytes, number: int, at: int) -> None:
    files, items = make([payload] * 50)
    flip(files, offsets_of(items)[number] + at)
    before = files.contents(SEG)
    with pytest.raises(CorruptionError, match=f"transaction {number}, .*not the rest of an interrupted write"):
        open_log(files)
    assert files.contents(SEG) == before


@pytest.mark.parametrize("number", [20, 49])
def test_garbage_in_place_of_a_sector_is_no_torn_write(number: int) -> None:
    files, items = make([TEXT] * 50)
    start = -(-offsets_of(items)[number] // SECTOR_BYTES) * SECTOR_BYTES
    damage(files, start, random.Random(1).randbytes(SECTOR_BYTES))
    with pytest.raises(CorruptionError):
        open_log(files)


def test_damage_before_a_torn_write_is_no_part_of_it() -> None:
    """The sector that was lost is behind the damaged record, in one that was not acknowledged."""
    files, items = make([TEXT] * 50)
    flip(files, offsets_of(items)[40] + 300)
    start = -(-offsets_of(items)[41] // SECTOR_BYTES) * SECTOR_BYTES
    damage(files, start, bytes(SECTOR_BYTES))
    with pytest.raises(CorruptionError, match="transaction 40,"):
        open_log(files)


def test_a_damaged_length_that_reaches_beyond_the_file_is_no_torn_write() -> None:
    files, items = make([TEXT] * 50)
    flip(files, offsets_of(items)[49] + 29)
    with pytest.raises(CorruptionError, match="transaction 49,"):
        open_log(files)
    flip(files, offsets_of(items)[49] + 29)
    flip(files, offsets_of(items)[20] + 29, 0x0F)
    with pytest.raises(CorruptionError, match="transaction 20,"):
        open_log(files)


@pytest.mark.parametrize("payload", [TEXT, ZEROS_INSIDE])
@pytest.mark.parametrize("sector", [0, 1])
def test_a_lost_sector_is_a_torn_write_if_something_was_in_it(payload: bytes, sector: int) -> None:
    files, items = make([payload] * 50)
    offset = offsets_of(items)[30]
    start = offset + -offset % SECTOR_BYTES + SECTOR_BYTES * sector
    lost = files.contents(SEG)[start : start + SECTOR_BYTES]
    damage(files, start, bytes(SECTOR_BYTES))
    assert open_log(files).max_transaction_id == (29 if any(lost) else 49)


def bytes_with_bits(choices: random.Random, size: int) -> bytes:
    """None of them differs from zero in a single bit."""
    return bytes(choices.choice((0x41, 0x03, 0x7E, 0xFF, 0x18, 0xC0)) for _ in range(size))


@st.composite
def payloads(draw: st.DrawFn) -> bytes:
    """Such bytes with zeros between."""
    choices = random.Random(draw(st.integers(0, 1 << 32)))
    return b"".join(
        bytes_with_bits(choices, present) + bytes(absent)
        for present, absent in draw(st.lists(st.tuples(st.integers(0, 700), st.integers(0, 1600)), max_size=3))
    )


class Crash:
    """A segment in the moment in which the power fails: some groups acknowledged, up to two being written."""

    def __init__(self, groups: list[list[bytes]], acknowledged: int, choices: random.Random) -> None:
        self.files, self.items = make([payload for group in groups for payload in group])
        self.acknowledged = sum(map(len, groups[:acknowledged]))
        self.offsets = offsets_of(self.items)
        ends = [self.offsets[sum(map(len, groups[: number + 1]))] for number in range(len(groups))]
        durable_end = self.offsets[self.acknowledged]
        # What a sector holds after each of the writes: pages are written back whole, in the state of some moment.
        written = [durable_end, *ends[acknowledged:]]
        content = bytearray(self.files.contents(SEG)[:durable_end])
        whole = self.files.contents(SEG)
        size = choices.choice([durable_end, written[-1], choices.randint(durable_end, written[-1]), *written])
        content.extend(bytes(max(size - durable_end, 0)))
        for start in range(durable_end - durable_end % SECTOR_BYTES, size, SECTOR_BYTES):
            state = choices.choice(written)
            stop = min(start + SECTOR_BYTES, state, size)
            content[start : max(stop, start)] = whole[start : max(stop, start)]
        content[:durable_end] = whole[:durable_end]
        self.files.overwrite(SEG, bytes(content))

    def open(self) -> PartitionLog:
        return open_log(self.files)


GROUPS = st.lists(st.lists(payloads(), min_size=1, max_size=3), min_size=1, max_size=6)


@settings(max_examples=300, deadline=None)
@given(GROUPS, st.integers(0, 2), st.integers(0, 1 << 32))
def test_a_loss_of_power_alone_never_stops_a_partition(groups: list[list[bytes]], in_flight: int, seed: int) -> None:
    crash = Crash(groups, max(len(groups) - in_flight, 0), random.Random(seed))
    log = crash.open()
    assert log.max_transaction_id + 1 >= crash.acknowledged
    assert log.read(0, 1000) == crash.items[: log.max_transaction_id + 1]
    assert log.damage.ranges == ()


@settings(max_examples=300, deadline=None)
@given(GROUPS, st.integers(0, 2), st.integers(0, 1 << 32), st.lists(st.integers(0, 1 << 32), min_size=1, max_size=3))
@pytest.mark.deep
def test_damage_beside_a_loss_of_power_never_cuts_what_was_acknowledged(
    groups: list[list[bytes]], in_flight: int, seed: int, flips: list[int]
) -> None:
    crash = Crash(groups, max(len(groups) - in_flight, 0), random.Random(seed))
    flipped: set[int] = set()
    for number in flips:
        if crash.acknowledged:
            choices = random.Random(number)
            damaged = choices.randrange(crash.acknowledged)
            if damaged not in flipped:
                flipped.add(damaged)
                at = choices.randrange(crash.offsets[damaged], crash.offsets[damaged + 1])
                flip(crash.files, at, 1 << choices.randrange(8))
    try:
        log = crash.open()
    except CorruptionError:
        assert flipped
        return
    assert log.max_transaction_id + 1 >= crash.acknowledged
    assert not flipped or log.damage.ranges or log.read(0, crash.acknowledged) == crash.items[: crash.acknowledged]


@pytest.mark.parametrize("number", [0x20, 0x21])
@pytest.mark.parametrize("lost_bytes", [1, 2, 7, 8])
def test_the_one_bit_of_a_record_that_a_lost_sector_held_is_set_again(number: int, lost_bytes: int) -> None:
    """The id's first bytes lie in the sector before; they have no bit, one bit or two, and only what has two is cut."""
    size = STORED_OVERHEAD_BYTES + len(TEXT)
    first = bytes(-(HEADER_SIZE_BYTES + STORED_OVERHEAD_BYTES + (number - 1) * size + lost_bytes) % SECTOR_BYTES)
    files, items = make([first, *[TEXT] * 49])
    offset = offsets_of(items)[number]
    assert (offset + lost_bytes) % SECTOR_BYTES == 0
    whole = files.contents(SEG)
    damage(files, offset, bytes(lost_bytes))
    lost_bits = number.bit_count() if lost_bytes == 8 else 0
    log = open_log(files)
    assert log.max_transaction_id == (49 if lost_bits < 2 else number - 1)
    assert log.read(0, 1000) == items[: log.max_transaction_id + 1]
    assert log.damage.ranges == ()
    assert files.contents(SEG) == whole[: len(files.contents(SEG))]
    assert files.node(SEG).durable == files.contents(SEG)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(1, 4))])
def test_another_loss_of_power_while_a_bit_is_set_again_takes_nothing(seed: int) -> None:
    """The bit is durable before the index tells of its record: else that would be damaged, with no copy to come."""
    choices = random.Random(seed)
    for after in itertools.count():
        files, items = make([bytes(-(HEADER_SIZE_BYTES + STORED_OVERHEAD_BYTES + 8) % SECTOR_BYTES), TEXT, TEXT])
        damage(files, offsets_of(items)[1], bytes(8))
        files.fail(CrashNow(), after=after)
        with contextlib.suppress(CrashNow):
            open_log(files)
        was_last = files.clear_fault()
        files.crash(choices)
        log = open_log(files)
        assert log.damage.ranges == ()
        assert log.read(0, 1000) == items
        if was_last:
            break


@given(st.binary(min_size=1, max_size=3000), st.integers(0, 1 << 32))
@pytest.mark.deep
def test_one_flipped_bit_is_told_from_its_syndrome(body: bytes, place: int) -> None:
    flipped = bytearray(body)
    flipped[place // 8 % len(body)] ^= 1 << place % 8
    syndrome = crc32(bytes(flipped)) ^ crc32(body)
    assert _bit_of(syndrome, 100, len(body)) == (100 + place // 8 % len(body), 1 << place % 8)
    bytes_behind = len(body) - place // 8 % len(body) - 1
    assert _bit_of(syndrome, 0, bytes_behind) is None


@given(st.binary(max_size=100), st.integers(0, 31))
def test_a_flipped_bit_of_the_crc_is_told_from_its_syndrome(body: bytes, place: int) -> None:
    stored = bytearray(RECORD_CRC.pack(crc32(body)))
    stored[place // 8] ^= 1 << place % 8
    syndrome = crc32(body) ^ RECORD_CRC.unpack(stored)[0]
    assert _bit_of(syndrome, 7, len(body)) == (7 + len(body) + place // 8, 1 << place % 8)


def test_other_syndromes_are_not_of_one_bit() -> None:
    body = bytes(1000)
    two = bytearray(body)
    two[10] ^= 1
    two[800] ^= 4
    assert _bit_of(crc32(bytes(two)) ^ crc32(body), 0, len(body)) is None
    assert _bit_of(0, 0, 1000) is None
