"""Files of two slots for each partition: which bytes are where, and what failing writes leave."""

import errno
import random
import threading
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.storage.crash_files import CrashFiles
from tests.unit.storage.log_testing import KEY
from waltz.storage.disk.files.slot_file import (
    HEADER_SIZE_BYTES,
    Entry,
    SlotFile,
    encode_header,
    read_entry,
    read_header,
)
from waltz.storage.errors import ReadOnlyError, StorageError

PATH = "/slots"
HEAD = b"id"
SLOT_SIZE_BYTES = 4
ENTRY_SIZE_BYTES = len(HEAD) + 2 * SLOT_SIZE_BYTES
PARTITIONS = 3


def data(number: int) -> bytes:
    return number.to_bytes(SLOT_SIZE_BYTES, "big")


def open_slots(files: CrashFiles) -> SlotFile[int]:
    """The larger of the two numbers in an entry counts."""
    file = files.open(PATH, create=True)
    if file.size() == 0:
        file.write(0, [encode_header(1, KEY, PARTITIONS), (HEAD + data(0) + data(0)) * PARTITIONS])
        file.sync()
        files.sync_directory("/")
    header, _, count = read_header("slot file", PATH, file)
    entries = []
    for partition_id in range(count):
        head, written = read_entry(file, partition_id, len(HEAD), SLOT_SIZE_BYTES)
        numbers = [int.from_bytes(slot, "big") for slot in written]
        entries.append(Entry(head, written, max(numbers), int(numbers[1] > numbers[0]), max(numbers)))
    return SlotFile(files, PATH, file, name="slot file", header=header, entries=entries)


def update(slots: SlotFile[int], partition_id: int, number: int, other: int | None = None) -> None:
    entry = slots.entry(partition_id)
    with entry.lock:
        slot = 1 - entry.current
        slots.write(partition_id, slot, data(number), other=None if other is None else data(other))
        entry.take_over(number, slot, number)


def test_header_and_entries_are_where_they_should_be() -> None:
    files = CrashFiles()
    slots = open_slots(files)
    update(slots, 1, 5)
    update(slots, 1, 6, 2)
    update(slots, 2, 7)
    content = files.contents(PATH)
    assert content[:32] == bytes(4) + (1).to_bytes(8, "big") + KEY.bytes + PARTITIONS.to_bytes(4, "big")
    assert content[32:HEADER_SIZE_BYTES] == bytes(HEADER_SIZE_BYTES - 32)
    entries = [HEAD + data(0) + data(0), HEAD + data(6) + data(2), HEAD + data(0) + data(7)]
    # The first update went into the second slot, the second into the first, and repeated itself beside it.
    assert content[HEADER_SIZE_BYTES:] == b"".join(entries)


def test_header_is_read_back(caplog: pytest.LogCaptureFixture) -> None:
    files = CrashFiles()
    open_slots(files).close()
    file = files.open(PATH, create=False)
    header, key, count = read_header("slot file", PATH, file)
    assert (header, key, count) == (files.contents(PATH)[:HEADER_SIZE_BYTES], KEY, PARTITIONS)
    assert isinstance(key, UUID)
    file.write(3, [b"\1"])
    assert read_header("slot file", PATH, file)[1:] == (KEY, PARTITIONS)
    assert "format version other than 0" in caplog.text
    file.truncate(HEADER_SIZE_BYTES - 1)
    with pytest.raises(StorageError, match="^not a slot file: /slots$"):
        read_header("slot file", PATH, file)


def test_what_a_file_lacks_of_an_entry_is_zeros() -> None:
    files = CrashFiles()
    file = files.open(PATH, create=True)
    file.write(HEADER_SIZE_BYTES, [HEAD, data(1), b"\7"])
    assert read_entry(file, 0, len(HEAD), SLOT_SIZE_BYTES) == (HEAD, [data(1), b"\7\0\0\0"])
    assert read_entry(file, 1, len(HEAD), SLOT_SIZE_BYTES) == (b"\0\0", [data(0), data(0)])


def test_closed_and_out_of_range() -> None:
    files = CrashFiles()
    slots = open_slots(files)
    for partition_id in (-1, PARTITIONS):
        with pytest.raises(StorageError, match="no such partition"):
            slots.get(partition_id)
    slots.close()
    slots.close()
    assert files.open_files == 0
    with pytest.raises(StorageError, match=r"^Slot file is already closed\.$"):
        slots.get(0)


def test_a_damaged_entry_has_no_value_until_it_is_written() -> None:
    slots = open_slots(CrashFiles())
    slots.entries[1].damage, slots.entries[1].half_damaged = StorageError("damaged"), True
    with pytest.raises(StorageError, match="damaged"):
        slots.get(1)
    assert slots.half_damaged == [1]
    update(slots, 1, 3)
    assert slots.get(1) == 3
    assert slots.half_damaged == []


@pytest.mark.parametrize("operation", ["write", "datasync"])
def test_a_new_file_holds_everything_but_what_failed(operation: str) -> None:
    files = CrashFiles()
    slots = open_slots(files)
    update(slots, 0, 3, 1)
    files.fail(OSError(errno.EIO, "broken"), operation=operation)
    with pytest.raises(OSError, match="broken"):
        update(slots, 1, 4)
    assert slots.get(1) == 0
    failures = [slots.failure]
    files.fail(OSError(errno.ENOSPC, "full"), operation="rename")
    with pytest.raises(ReadOnlyError, match=r"^slot file /slots is read-only since .* cannot be replaced \(.*full\)"):
        update(slots, 2, 5)
    failed = files.node(PATH)
    update(slots, 2, 5)
    failures.append(slots.failure)
    assert [failure is None for failure in failures] == [False, True]
    assert files.node(PATH) is not failed
    files.crash(random.Random(1))
    assert [open_slots(files).get(partition_id) for partition_id in range(PARTITIONS)] == [3, 0, 5]


def test_what_failed_beside_an_update_is_seen_by_the_next() -> None:
    """What is repeated in the other slot need not be durable, so its failure is no failure of the update."""
    files = CrashFiles()
    slots = open_slots(files)
    files.fail(OSError(errno.EIO, "broken"), operation="write", after=1)
    update(slots, 0, 3, 1)
    assert slots.get(0) == 3
    assert slots.failure is not None
    failed = files.node(PATH)
    update(slots, 1, 4, 2)
    assert files.node(PATH) is not failed
    slots.close()
    assert files.contents(PATH)[HEADER_SIZE_BYTES:][: 2 * ENTRY_SIZE_BYTES] == (
        HEAD + data(1) + data(3) + HEAD + data(2) + data(4)
    )


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, PARTITIONS - 1),
            st.booleans(),
            st.one_of(st.none(), st.tuples(st.integers(0, 8), st.booleans())),
        ),
        max_size=25,
    ),
    st.integers(0, 1 << 32),
)
def test_an_update_counts_exactly_if_it_returned(
    updates: list[tuple[int, bool, tuple[int, bool] | None]], seed: int
) -> None:
    """Whatever operation fails, and over a loss of power. One that raised may count or not after that, never before."""
    files = CrashFiles()
    slots = open_slots(files)
    expected = [{0} for _ in range(PARTITIONS)]
    for number, (partition_id, repeats, fault) in enumerate(updates, 1):
        if fault is not None:
            after, short = fault
            files.fail(OSError(errno.EIO, "broken"), after=after, short=1 if short else None)
        before = slots.get(partition_id)
        try:
            update(slots, partition_id, number, 0 if repeats else None)
        except (OSError, ReadOnlyError):
            assert slots.get(partition_id) == before
            expected[partition_id].add(number)
        else:
            assert slots.get(partition_id) == number
            expected[partition_id] = {number}
        files.clear_fault()
    files.crash(random.Random(seed))
    found = open_slots(files)
    for partition_id in range(PARTITIONS):
        assert found.get(partition_id) in expected[partition_id]


def test_threads_do_not_lose_each_others_updates_when_files_fail() -> None:
    """Each partition is updated by a thread of its own, while operations fail now and then."""
    files = CrashFiles()
    slots = open_slots(files)
    done = [0] * PARTITIONS

    def update_again_and_again(partition_id: int) -> None:
        for number in range(1, 200):
            try:
                update(slots, partition_id, number)
            except (OSError, ReadOnlyError):
                continue
            done[partition_id] = number

    threads = [threading.Thread(target=update_again_and_again, args=(number,)) for number in range(PARTITIONS)]
    for thread in threads:
        thread.start()
    choices = random.Random(1)
    while any(thread.is_alive() for thread in threads):
        files.fail(OSError(errno.EIO, "broken"), operation=choices.choice(["write", "datasync", "sync", "rename"]))
        threads[choices.randrange(PARTITIONS)].join(0.001)
    assert [slots.get(partition_id) for partition_id in range(PARTITIONS)] == done
    assert min(done) > 0
    files.clear_fault()
    for partition_id in range(PARTITIONS):
        update(slots, partition_id, 1000 + partition_id)
    files.crash(choices)
    found = open_slots(files)
    assert [found.get(partition_id) for partition_id in range(PARTITIONS)] == [1000, 1001, 1002]
