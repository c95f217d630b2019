"""Rule S9: what may have been acknowledged is never cut, and what an interrupted write leaves stops no partition."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.storage.crash_files import SECTOR_BYTES, CrashFiles
from tests.unit.storage.log_testing import DIRECTORY, append, open_log, record
from waltz.common.checksum import crc32
from waltz.common.records import Record
from waltz.storage.disk.log import PartitionLog
from waltz.storage.disk.segment_format import HEADER_SIZE_BYTES, STORED_OVERHEAD_BYTES
from waltz.storage.disk.torn_write import _is_of_one_bit
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
    with pytest.raises(CorruptionError, match=f"transaction {number}, .*not what an interrupted write leaves"):
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
        self.written = whole = self.files.contents(SEG)
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

    def check_in_doubt(self, error: CorruptionError) -> None:
        """Nothing but one bit of a record was lost, as an id may have no more in a sector: it may have flipped, too."""
        assert error.transaction_id is not None
        start, stop = self.offsets[error.transaction_id : error.transaction_id + 2]
        found = self.files.contents(SEG)[start:stop].ljust(stop - start, b"\0")
        assert sum((a ^ b).bit_count() for a, b in zip(found, self.written[start:stop], strict=True)) == 1


GROUPS = st.lists(st.lists(payloads(), min_size=1, max_size=3), min_size=1, max_size=6)


@settings(max_examples=300, deadline=None)
@given(GROUPS, st.integers(0, 2), st.integers(0, 1 << 32))
def test_a_loss_of_power_alone_never_stops_a_partition(groups: list[list[bytes]], in_flight: int, seed: int) -> None:
    crash = Crash(groups, max(len(groups) - in_flight, 0), random.Random(seed))
    try:
        log = crash.open()
    except CorruptionError as error:
        crash.check_in_doubt(error)
        return
    assert log.max_transaction_id + 1 >= crash.acknowledged
    assert log.read(0, 1000) == crash.items[: log.max_transaction_id + 1]
    assert log.damage.ranges == ()


@settings(max_examples=300, deadline=None)
@given(GROUPS, st.integers(0, 2), st.integers(0, 1 << 32), st.lists(st.integers(0, 1 << 32), min_size=1, max_size=3))
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
    except CorruptionError as error:
        if not flipped:
            crash.check_in_doubt(error)
        return
    assert log.max_transaction_id + 1 >= crash.acknowledged
    assert not flipped or log.damage.ranges


@given(st.binary(min_size=1, max_size=3000), st.integers(0, 1 << 32))
def test_one_flipped_bit_is_told_from_its_syndrome(body: bytes, place: int) -> None:
    flipped = bytearray(body)
    flipped[place // 8 % len(body)] ^= 1 << place % 8
    syndrome = crc32(bytes(flipped)) ^ crc32(body)
    assert _is_of_one_bit(syndrome, 8 * len(body))
    bits_behind = 8 * (len(body) - place // 8 % len(body)) - place % 8
    assert not _is_of_one_bit(syndrome, bits_behind - 1) or syndrome & (syndrome - 1) == 0


def test_other_syndromes_are_not_of_one_bit() -> None:
    body = bytes(1000)
    two = bytearray(body)
    two[10] ^= 1
    two[800] ^= 4
    assert not _is_of_one_bit(crc32(bytes(two)) ^ crc32(body), 8 * len(body))
    assert not _is_of_one_bit(0, 8000)
