"""What is read of a journal after a crash, or after its files were damaged.

Whatever a loss of power leaves of a group in flight: the end is found, all that was acknowledged is there, and it is
never called damage. Whatever bit or byte of an acknowledged group changes: it is named, or nothing is lost.
"""

import contextlib
import random
from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.storage.crash_files import CrashFiles, CrashNow
from waltz.storage.disk.journal import reading
from waltz.storage.disk.journal.entries import Entry, Fenced, Records
from waltz.storage.disk.journal.groups import BLOCK_BYTES, SECTOR_BYTES, encode_group, entries_of, life_of
from waltz.storage.disk.journal.journal import Journal
from waltz.storage.disk.journal.reading import Contents, Lost, read_bodies, read_journal
from waltz.storage.disk.journal.ring import JournalFullError
from waltz.storage.errors import StorageError

KEY = UUID(int=7)
DIRECTORY = "/journal"
BLOCKS = 6
SEEDS = st.integers(0, 1 << 32)


def read(files: CrashFiles) -> Contents:
    return read_journal(files, DIRECTORY, KEY)


def groups_in(files: CrashFiles, contents: Contents) -> dict[int, list[Entry]]:
    return {head.number: entries_of(head, body) for head, body in read_bodies(files, contents.places)}


class Life:
    """A journal with what was acknowledged, and what may be there besides."""

    def __init__(self, seed: int) -> None:
        self.files = CrashFiles()
        self.choices = random.Random(seed)
        self.acknowledged: dict[int, list[Entry]] = {}
        self.released = 1
        self.sessions = 0
        self.journal = self.open(read(self.files))

    def open(self, contents: Contents) -> Journal:
        return Journal.open(
            self.files,
            DIRECTORY,
            cluster_key=KEY,
            contents=contents,
            file_size_bytes=BLOCKS * BLOCK_BYTES,
            max_files=3,
        )

    def entries(self) -> list[Entry]:
        """Never the same twice, so that what is of a former life is noticed."""
        self.sessions += 1
        size = self.choices.choice([10, 300, 5000, 12_000])
        data = self.choices.randbytes(size)
        return [Fenced(1, self.sessions), Records(2, self.sessions, 0, 128, 0, 1, (data,))]

    def append(self) -> None:
        entries = self.entries()
        try:
            number = self.journal.append(entries)
        except JournalFullError:
            self.release(1.0)
            number = self.journal.append(entries)
        self.acknowledged[number] = entries

    def release(self, fraction: float) -> None:
        self.released += round(fraction * (self.journal.next_number - self.released))
        self.journal.release(self.released)

    def some(self, count: int) -> None:
        for _ in range(count):
            self.append()
            if self.choices.random() < 0.2:
                self.release(self.choices.random())

    def crash(self, after: int) -> dict[int, list[Entry]]:
        """Die in the middle of an append; what may be there."""
        possible = dict(self.acknowledged)
        entries = self.entries()
        possible[self.journal.next_number] = entries
        self.files.fail(CrashNow(), after=after)
        with contextlib.suppress(CrashNow, JournalFullError):
            self.acknowledged[self.journal.append(entries)] = entries
        self.files.crash(self.choices)
        return possible

    def path_of(self, number: int) -> str:
        return next(place.path for place in read(self.files).places if place.head.number == number)


@given(SEEDS, st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)), min_size=1, max_size=4))
@settings(max_examples=150)
def test_a_crash_loses_nothing_that_was_acknowledged_and_is_never_called_damage(
    seed: int, lives: list[tuple[int, int]]
) -> None:
    life = Life(seed)
    for count, after in lives:
        life.some(count)
        oldest = life.journal.oldest_number
        possible = life.crash(after)
        contents = read(life.files)
        assert contents.lost == []
        found = groups_in(life.files, contents)
        numbers = sorted(found)
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
        needed = {number: entries for number, entries in life.acknowledged.items() if number >= life.released}
        assert needed.items() <= found.items()
        assert found.items() <= possible.items()
        assert all(number >= oldest for number in numbers)
        assert contents.next_number > max(possible) - 1
        life.acknowledged, life.released = {}, contents.next_number
        life.journal = life.open(contents)


@given(SEEDS, st.integers(1, 14), st.data())
@settings(max_examples=300)
def test_a_changed_byte_of_an_acknowledged_group_is_named_or_harmless(
    seed: int, count: int, data: st.DataObject
) -> None:
    life = Life(seed)
    earlier: dict[int, list[Entry]] = {}
    if data.draw(st.booleans()):
        life.some(count)
        earlier = life.crash(data.draw(st.integers(0, 3)))
        life.acknowledged, contents = {}, read(life.files)
        life.released = contents.next_number
        life.journal = life.open(contents)
    life.some(count)
    before = groups_in(life.files, read(life.files))
    # The last head may be the only one with the present base. Without that head, groups before the base come back:
    # their changes are durable elsewhere, and harmless when they are made once more.
    written = {**earlier, **life.acknowledged}
    path = f"{DIRECTORY}/{data.draw(st.sampled_from(life.files.list_directory(DIRECTORY)))}"
    content = bytearray(life.files.contents(path))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.sampled_from([1, 2, 4, 8, 16, 32, 64, 128, 0x41, 0xFF]))
    life.files.overwrite(path, bytes(content))
    contents = read(life.files)
    found = groups_in(life.files, contents)
    assert all(before[number] == entries for number, entries in found.items() if number in before)
    assert all(written[number] == entries for number, entries in found.items() if number not in before)
    assert all(number < min(before, default=contents.next_number) for number in found.keys() - before.keys())
    gone = before.keys() - found.keys()
    assert gone <= {lost.number for lost in contents.lost}
    for lost in contents.lost:
        if lost.partitions is not None:
            assert sorted(lost.partitions) == [1, 2]
    if at >= BLOCK_BYTES and gone:
        assert len(gone) == 1


@given(SEEDS, st.integers(1, 10), st.data())
@settings(max_examples=100)
def test_a_bit_of_the_last_group_never_passes_as_a_sector_that_was_not_written(
    seed: int, count: int, data: st.DataObject
) -> None:
    life = Life(seed)
    life.some(count)
    place = read(life.files).places[-1]
    content = bytearray(life.files.contents(place.path))
    at = place.offset + data.draw(st.integers(0, place.head.size_bytes - 1))
    content[at] ^= 1 << data.draw(st.integers(0, 7))
    life.files.overwrite(place.path, bytes(content))
    contents = read(life.files)
    whole = place.head.number in groups_in(life.files, contents)
    assert whole or [lost.number for lost in contents.lost] == [place.head.number]
    assert whole or not contents.torn


@given(SEEDS, st.integers(1, 10), st.integers(1, 255))
@settings(max_examples=60)
def test_each_sector_that_was_not_written_is_torn(seed: int, count: int, left_out: int) -> None:
    """Whichever sectors of the last group hold what they held before, it is the end and no damage."""
    life = Life(seed)
    life.some(count)
    before = read(life.files)
    place = before.places[-1]
    old = encode_group(
        [Records(9, 9, 0, 128, 0, 1, [bytes(BLOCKS * 3500)])],
        volume_id=read(life.files).volume_id or b"",
        sequence=max(place.head.sequence - 1, 1),
        number=1,
        base=1,
        previous_check=0,
    )[0]
    whole = groups_in(life.files, before)
    content = bytearray(life.files.contents(place.path))
    for sector in range(place.head.size_bytes // SECTOR_BYTES):
        if left_out >> sector % 8 & 1:
            start = place.offset + sector * SECTOR_BYTES
            former = old[:SECTOR_BYTES] if place.head.sequence > 1 else bytes(SECTOR_BYTES)
            content[start : start + SECTOR_BYTES] = former
    life.files.overwrite(place.path, bytes(content))
    contents = read(life.files)
    assert contents.lost == []
    if place.head.number in (found := groups_in(life.files, contents)):  # they had nothing but zeros to get
        assert found[place.head.number] == whole[place.head.number]
    else:
        assert contents.torn or left_out & 1


def test_a_torn_group_behind_which_another_was_begun_is_damage() -> None:
    life = Life(1)
    for session in range(2):
        life.journal.append([Records(1, session, 0, 128, 0, 1, [bytes(range(1, 250)) * 5])])
    content = bytearray(life.files.contents(life.path_of(1)))
    content[BLOCK_BYTES + SECTOR_BYTES : BLOCK_BYTES + 2 * SECTOR_BYTES] = bytes(SECTOR_BYTES)
    life.files.overwrite(life.path_of(1), bytes(content))
    assert read(life.files).lost == [Lost(1, (1,))]


def test_what_a_damaged_group_has_released_stays_released() -> None:
    """What was synced directly since is not in the journal, and must not be written over."""
    life = Life(1)
    for session in range(3):
        life.journal.append([Fenced(1, session)])
    life.journal.release(3)
    life.journal.append([Records(2, 3, 0, 128, 0, 1, [bytes(range(1, 250)) * 5])])
    path = life.path_of(4)
    content = bytearray(life.files.contents(path))
    content[4 * BLOCK_BYTES + 700] ^= 1
    life.files.overwrite(path, bytes(content))
    contents = read(life.files)
    assert list(groups_in(life.files, contents)) == [3]
    assert contents.lost == [Lost(4, (2,))]


def test_a_file_that_is_missing_is_damage() -> None:
    life = Life(1)
    for session in range(BLOCKS):
        life.journal.append([Fenced(1, session)])
    life.files.remove(life.path_of(1))
    contents = read(life.files)
    assert [lost.number for lost in contents.lost] == [1, 2, 3, 4, 5]
    assert list(groups_in(life.files, contents)) == [6]


def test_the_last_groups_of_a_file_behind_which_another_was_begun_were_durable() -> None:
    life = Life(1)
    for session in range(BLOCKS - 1):
        life.journal.append([Fenced(1, session)])
    path = life.path_of(5)
    life.journal._next_file()
    content = life.files.contents(path)
    life.files.overwrite(path, content[:-BLOCK_BYTES] + bytes(BLOCK_BYTES))
    assert [lost.number for lost in read(life.files).lost] == [5]


def test_a_header_that_is_lost_is_that_of_the_name() -> None:
    life = Life(1)
    life.journal.append([Fenced(1, 1)])
    for _ in range(BLOCKS):
        life.journal.append([Fenced(1, 2)])
    content = life.files.contents(life.path_of(1))
    life.files.overwrite(life.path_of(1), bytes(BLOCK_BYTES) + content[BLOCK_BYTES:])
    contents = read(life.files)
    assert contents.lost == []
    assert len(contents.places) == BLOCKS + 1


def test_a_journal_without_any_header_is_lost() -> None:
    life = Life(1)
    life.journal.append([Fenced(1, 1)])
    path = life.path_of(1)
    life.files.overwrite(path, bytes(BLOCK_BYTES) + life.files.contents(path)[BLOCK_BYTES:])
    assert read(life.files).lost == [Lost(1, None)]


def test_a_directory_without_a_journal_holds_nothing() -> None:
    contents = read(CrashFiles())
    assert (list(contents.places), contents.lost, contents.torn) == ([], [], False)
    assert (contents.next_number, contents.next_sequence, contents.volume_id) == (1, 1, None)


def test_the_journal_of_another_cluster_is_refused() -> None:
    life = Life(1)
    with pytest.raises(StorageError, match=r"the cluster key does not match: /journal/0000000001\.jnl"):
        read_journal(life.files, DIRECTORY, UUID(int=8))


def test_a_file_of_another_journal_is_refused() -> None:
    life, other = Life(1), Life(2)
    life.files.open(f"{DIRECTORY}/0000000002.jnl", create=True).write(
        0, [other.files.contents(f"{DIRECTORY}/0000000001.jnl")]
    )
    with pytest.raises(StorageError, match="holds files of several journals"):
        read(life.files)


def test_sectors_that_cannot_be_read_are_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(1)
    for session in range(3):
        life.journal.append([Fenced(1, session)])
    file_type = type(life.files.open(life.path_of(1), create=False))
    whole_read = file_type.read

    def failing_read(self: object, offset: int, size: int) -> bytes:
        bad = 3 * BLOCK_BYTES + SECTOR_BYTES
        if offset <= bad < offset + size:
            raise OSError(5, "Input/output error")
        return bytes(whole_read(self, offset, size))  # type: ignore[arg-type]  # it is the same type

    monkeypatch.setattr(file_type, "read", failing_read)
    assert read(life.files).lost == [Lost(3, (1,))]


@given(st.binary(max_size=3 * BLOCK_BYTES), st.booleans())
@settings(max_examples=50)
def test_hostile_files_hold_nothing(content: bytes, behind_a_header: bool) -> None:
    life = Life(1)
    path = f"{DIRECTORY}/0000000001.jnl"
    header = life.files.contents(path)[:BLOCK_BYTES] if behind_a_header else b""
    life.files.overwrite(path, header + content)
    assert list(read(life.files).places) == []


# Planted bugs: a simulated disk keeps what was synced, so that a simulation never has what these get wrong.


def flipped(seed: int) -> None:
    """A bit of the last group, which was acknowledged, is damage and no torn end."""
    life = Life(seed)
    life.some(4)
    place = read(life.files).places[-1]
    content = bytearray(life.files.contents(place.path))
    content[place.offset + 100] ^= 1
    life.files.overwrite(place.path, bytes(content))
    assert [lost.number for lost in read(life.files).lost] == [place.head.number]


def torn_over_a_former_life(seed: int) -> None:
    test_each_sector_that_was_not_written_is_torn.hypothesis.inner_test(seed, 10, 2)  # type: ignore[attr-defined]


def torn_before_another(_seed: int) -> None:
    test_a_torn_group_behind_which_another_was_begun_is_damage()


def end_at_the_first_hole(found: reading._Found, *rest: object) -> Contents:
    """Take a torn group for the end, whatever follows."""
    broken = [hole.head.number for hole in found.holes if hole.head is not None]
    before = [each for each in found.places if each[1].head.number < min(broken, default=each[1].head.number + 1)]
    ends = [hole for hole in found.holes if hole.head is None or hole.head.number == min(broken)]
    return _judge(reading._Found(before, ends), *rest)  # type: ignore[arg-type]


_judge = reading._judge


def all_lives_are_one(data: bytes, _sequence: int) -> bool:
    """Take sectors of a former life for written."""
    return not all(life_of(data[at : at + SECTOR_BYTES]) for at in range(0, len(data), SECTOR_BYTES))


@pytest.mark.parametrize(
    ("name", "planted", "check"),
    [
        ("_is_torn", lambda _data, _sequence: True, flipped),
        ("_is_torn", all_lives_are_one, torn_over_a_former_life),
        ("_judge", end_at_the_first_hole, torn_before_another),
    ],
    ids=["whatever is not whole is torn", "lives are not compared", "the first torn group is the end"],
)
def test_planted_bugs_are_found(
    name: str, planted: Callable[..., object], check: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> bool:
        for seed in range(6):
            try:
                check(seed)
            except AssertionError:
                return True
        return False

    assert not fails()
    monkeypatch.setattr(reading, name, planted)
    assert fails()
