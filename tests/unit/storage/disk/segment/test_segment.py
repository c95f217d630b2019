"""Segments: golden bytes, recovery at open, truncation, damage."""

import errno
import logging
import struct
from zlib import crc32

import pytest

from tests.unit.storage.crash_files import CrashFiles
from tests.unit.storage.log_testing import KEY, PARTITION, record, records
from waltz.common.ids import ReqId
from waltz.common.records import Record
from waltz.storage.disk.files.descriptors import SegmentFiles
from waltz.storage.disk.segment.segment import Extent, ReadLimit, Segment, SegmentWrite, as_records
from waltz.storage.disk.segment.segment_format import SegmentHeader, encode_index, encode_record
from waltz.storage.disk.segment.segment_opening import create_segment, open_segment, read_header
from waltz.storage.disk.segment.segment_recovery import Known, SegmentEnd
from waltz.storage.errors import CorruptionError, StorageError


@pytest.fixture
def files() -> CrashFiles:
    return CrashFiles()


class Made:
    """A closed segment with records, and what is needed to open it."""

    def __init__(self, files: CrashFiles, items: list[Record], first: int | None = None) -> None:
        self.files, self.items = files, items
        first = items[0].transaction_id if first is None else first
        segment, handles = create_segment(files, "/", KEY, PARTITION, first)
        self.offsets = [128]
        for item in items:
            self.offsets.append(self.offsets[-1] + 40 + len(item.data))
        if items:
            chunks = [encode_record(item) for item in items]
            write = SegmentWrite(first, False, 128, chunks, self.offsets[:-1], self.offsets[-1], True)
            segment.write(handles, write)
            segment.sync(handles, write)
        self.path, self.index_path, self.header = segment.path, segment.index_path, segment.header
        segment.flush(handles)
        handles.close()
        self.data, self.index = files.contents(self.path), files.contents(self.index_path)

    def damage(self, *, data: bytes | None = None, index: bytes | None = None) -> None:
        if data is not None:
            self.files.overwrite(self.path, data)
        if index is not None:
            self.files.overwrite(self.index_path, index)

    def flip(self, offset: int) -> None:
        content = bytearray(self.files.contents(self.path))
        content[offset] ^= 0x10
        self.files.overwrite(self.path, bytes(content))

    def open(
        self, low_water_mark: int = -1, following: int | None = None, clean: SegmentEnd | None = None
    ) -> tuple[Segment, SegmentFiles]:
        return open_segment(self.files, self.path, self.header, Known(low_water_mark, following, clean))

    @property
    def end(self) -> SegmentEnd:
        """Where it ended when it was made."""
        return SegmentEnd(self.header.first_transaction_id + len(self.items), self.offsets[-1])

    def assert_holds(self, count: int, low_water_mark: int = -1) -> None:
        """Opens with the first ``count`` records, all readable, files as if nothing had happened."""
        segment, handles = self.open(low_water_mark)
        assert read(segment, handles) == self.items[:count]
        handles.close()
        assert self.files.contents(self.path) == self.data[: self.offsets[count]]
        assert self.files.contents(self.index_path) == self.index[: 128 + 8 * count]
        assert self.files.node(self.path).pending == []
        assert self.files.node(self.index_path).pending == []

    def assert_refused(self, message: str, low_water_mark: int = -1, following: int | None = None) -> CorruptionError:
        """Does not open, and leaves the files as they are."""
        before = self.files.contents(self.path), self.files.contents(self.index_path)
        with pytest.raises(CorruptionError, match=message) as info:
            self.open(low_water_mark, following)
        assert (self.files.contents(self.path), self.files.contents(self.index_path)) == before
        assert self.files.open_files == 0
        return info.value


def read(
    segment: Segment,
    handles: SegmentFiles,
    first: int | None = None,
    stop: int | None = None,
    max_bytes: int | None = None,
) -> list[Record]:
    visible = Extent(segment.next_transaction_id, segment.end_offset)
    first = segment.first_transaction_id if first is None else first
    stop = segment.next_transaction_id if stop is None else stop
    blocks = segment.read_blocks(handles, first, stop, visible, ReadLimit(max_bytes), as_records)
    return [item for block in blocks for item in block]


def test_golden_bytes(files: CrashFiles) -> None:
    req_id = ReqId.of(1, 2, 3, 4)
    made = Made(files, [Record(0, req_id, 7, b"abc", 0x352441C2), Record(1, req_id, 7, b"", 0)])
    header = SegmentHeader(0, files.time_ms(), KEY, PARTITION, 0).encode()
    assert made.path == "/0000000000000000000.seg"
    assert made.data == header + bytes.fromhex(
        "0000000000000000 0000000100000002 0000000300000004 00000007 00000003 352441c2 616263 cc272862"
        "0000000000000001 0000000100000002 0000000300000004 00000007 00000000 00000000 bfbca659"
    )
    assert len(made.data) == 211
    assert made.index == header + bytes.fromhex("0000000000000080 00000000000000ab")


def test_fresh_segment(files: CrashFiles) -> None:
    made = Made(files, [], first=1000)
    assert made.path == "/0000000000000001000.seg"
    assert len(made.data) == len(made.index) == 128
    assert files.root.pending == []
    made.assert_holds(0)


def test_data_is_synced_before_the_index_is_written(files: CrashFiles) -> None:
    Made(files, records(0, 1))
    operations = files.operations[files.operations.index("sync_directory") + 1 :]
    assert operations[:4] == ["write", "datasync", "write", "datasync"]


@pytest.mark.parametrize("first", [0, 1, 7, 500, 1000])
@pytest.mark.parametrize("count", [1, 2, 9, 100])
def test_torn_tail_is_cut(first: int, count: int) -> None:
    """Ten bytes missing: exactly the last record is gone."""
    made = Made(CrashFiles(), records(first, count))
    made.damage(data=made.data[:-10])
    made.assert_holds(count - 1)
    made.assert_holds(count - 1)


@pytest.mark.parametrize("count", [1, 2, 9, 100])
def test_a_damaged_last_record_is_not_cut(files: CrashFiles, count: int) -> None:
    """No interrupted write leaves a flipped bit: the record may have been acknowledged."""
    made = Made(files, records(0, count))
    made.flip(made.offsets[-1] - 2)
    made.assert_refused("not the rest of an interrupted write")


def test_cut_is_told_to_the_operator(files: CrashFiles, caplog: pytest.LogCaptureFixture) -> None:
    made = Made(files, records(0, 3))
    made.damage(data=made.data + encode_record(record(3))[:11])
    with caplog.at_level(logging.WARNING):
        made.assert_holds(3)
    assert "cutting a torn write of 11 bytes behind transaction 2" in caplog.text


@pytest.mark.parametrize("kept", [0, 1, 60, 128, 131, 136, 250, 128 + 8 * 2050 + 3])
@pytest.mark.parametrize("low_water_mark", [-1, 3, 1500, 2099])
def test_missing_index_entries_are_rebuilt(files: CrashFiles, kept: int, low_water_mark: int) -> None:
    made = Made(files, records(0, 2100))
    made.damage(index=made.index[:kept])
    made.assert_holds(2100, low_water_mark)


@pytest.mark.parametrize("low_water_mark", [-1, 1500, 2099])
def test_zeroed_and_superfluous_index_entries_are_mended(files: CrashFiles, low_water_mark: int) -> None:
    """A power failure may leave zeros from the last checkpoint on; the original does not open then."""
    made = Made(files, records(0, 2100))
    for index in (made.index[: 128 + 8 * 2000] + bytes(8 * 100), made.index + bytes(8), made.index + b"\x01" * 8):
        made.damage(index=index)
        made.assert_holds(2100, low_water_mark)


def test_missing_index_file_is_rebuilt(files: CrashFiles) -> None:
    made = Made(files, records(40, 30))
    files.remove(made.index_path)
    made.assert_holds(30)


def test_zeroed_index_header_is_rebuilt(files: CrashFiles) -> None:
    made = Made(files, records(40, 30))
    made.damage(index=bytes(len(made.index)))
    made.assert_holds(30)


def test_damage_at_the_end_below_the_local_low_water_mark_is_refused(files: CrashFiles) -> None:
    made = Made(files, records(0, 30))
    made.flip(made.offsets[29] + 36)
    error = made.assert_refused("local low-water mark", 29)
    assert (error.partition_id, error.transaction_id, error.path) == (PARTITION, 29, made.path)


@pytest.mark.parametrize("kept", [0, 10, 11, 21, 30])
def test_damage_below_the_local_low_water_mark_is_kept_whatever_the_index_knows(files: CrashFiles, kept: int) -> None:
    """These records were durable: what is not intact is damage, and where the records go on can be searched for."""
    made = Made(files, records(0, 30))
    for transaction_id in (10, 11, 20):
        made.flip(made.offsets[transaction_id] + 36)
    made.damage(index=made.index[: 128 + 8 * kept])
    segment, handles = made.open(20)
    assert segment.damaged == ((10, 11), (20, 20))
    assert segment.next_transaction_id == 30
    assert read(segment, handles, 12, 20) == made.items[12:20]
    assert read(segment, handles, 21) == made.items[21:]
    handles.close()
    assert len(files.contents(made.index_path)) == len(made.index)


@pytest.mark.parametrize("last", [False, True])
def test_a_damaged_last_record_is_no_torn_write_where_the_end_is_known(files: CrashFiles, last: bool) -> None:
    """After an orderly stop, and in a segment that another one follows."""
    made = Made(files, records(0, 30))
    made.flip(made.offsets[29] + 36)
    segment, handles = made.open(clean=made.end) if last else made.open(following=30)
    assert segment.damaged == ((29, 29),)
    assert (segment.next_transaction_id, segment.end_offset) == made.end
    assert read(segment, handles, 0, 29) == made.items[:29]
    with pytest.raises(CorruptionError):
        read(segment, handles, 29, 30)
    handles.close()
    assert files.contents(made.index_path) == made.index


def test_a_known_end_needs_no_scan(files: CrashFiles) -> None:
    made = Made(files, records(0, 900))
    for following, clean in ((None, made.end), (900, None)):
        files.operations.clear()
        segment, handles = made.open(-1, following, clean)
        assert segment.next_transaction_id == 900
        handles.close()
        assert files.operations.count("read") < 12


def test_what_was_appended_after_a_clean_stop_is_kept(files: CrashFiles) -> None:
    """By the original, which leaves the note where it is."""
    made = Made(files, records(0, 30))
    made.damage(data=made.data[:-3])
    segment, handles = made.open(clean=SegmentEnd(20, made.offsets[20]))
    assert segment.next_transaction_id == 29
    assert segment.damaged == ()
    handles.close()


@pytest.mark.parametrize("start", [3, 4, 5, 200])
def test_a_torn_write_whose_pieces_came_in_another_order_is_cut(files: CrashFiles, start: int) -> None:
    """A sector that never was written, and intact records behind it that the index does not know."""
    items = [record(i, bytes([i]) * 90) for i in range(40)]
    made = Made(files, items)
    first_lost = -(-made.offsets[start % 40] // 512) * 512
    data = made.data[:first_lost] + bytes(512) + made.data[first_lost + 512 :]
    survivors = sum(1 for offset in made.offsets[1:] if offset <= first_lost)
    made.damage(data=data, index=made.index[: 128 + 8 * 3])
    made.assert_holds(survivors)


def test_a_segment_whose_header_tells_another_first_transaction_is_not_cut(files: CrashFiles) -> None:
    made = Made(files, records(0, 30))
    made.flip(32)
    with pytest.raises(CorruptionError, match="according to the header, 0 according to the name"):
        read_header(files, made.path, KEY, PARTITION)
    assert files.open_files == 0


def test_a_wrong_first_transaction_in_the_index_header_is_mended(files: CrashFiles) -> None:
    made = Made(files, records(0, 30))
    made.damage(index=made.header._replace(first_transaction_id=1 << 40).encode() + made.index[128:])
    made.assert_holds(30)


def test_records_missing_below_the_local_low_water_mark_are_refused(files: CrashFiles) -> None:
    made = Made(files, records(0, 30))
    made.damage(data=made.data[: made.offsets[25]])
    made.assert_refused("ends before transaction 25", 27)
    made.assert_refused("ends before transaction 25", 25)
    made.assert_holds(25, 24)


@pytest.mark.parametrize("lost", [1, 3])
def test_damage_in_the_middle_is_kept_and_told_when_read(
    files: CrashFiles, lost: int, caplog: pytest.LogCaptureFixture
) -> None:
    made = Made(files, records(0, 30))
    for transaction_id in range(10, 10 + lost):
        made.flip(made.offsets[transaction_id] + 36)
    damaged_data = files.contents(made.path)
    segment, handles = made.open(5)
    assert segment.next_transaction_id == 30
    assert segment.damaged == ((10, 9 + lost),)
    assert "have to come from another replica" in caplog.text
    assert read(segment, handles, 0, 10) == made.items[:10]
    assert read(segment, handles, 10 + lost) == made.items[10 + lost :]
    for transaction_id in range(10, 10 + lost):
        with pytest.raises(CorruptionError, match=f"transaction {transaction_id}, file {made.path}"):
            read(segment, handles, transaction_id, transaction_id + 1)
    with pytest.raises(CorruptionError):
        read(segment, handles)
    handles.close()
    assert files.contents(made.path) == damaged_data
    assert files.contents(made.index_path) == made.index


def test_damage_in_two_places_and_a_torn_tail(files: CrashFiles) -> None:
    made = Made(files, records(0, 30))
    made.damage(data=made.data[:-3])
    made.flip(made.offsets[4])
    made.flip(made.offsets[20] + 30)
    segment, handles = made.open()
    assert list(segment.damaged) == [(4, 4), (20, 20)]
    assert segment.next_transaction_id == 29
    segment.truncate(handles, 19, segment.cut_offset(handles, 19))
    assert list(segment.damaged) == [(4, 4)]
    handles.close()


@pytest.mark.parametrize("low_water_mark", [-1, 2000, 2099])
def test_damage_before_the_scanned_part_is_told_when_read(files: CrashFiles, low_water_mark: int) -> None:
    made = Made(files, records(0, 2100))
    made.flip(made.offsets[300] + 36)
    segment, handles = made.open(low_water_mark)
    assert segment.damaged == ()
    with pytest.raises(CorruptionError, match="transaction 300"):
        read(segment, handles, 300, 301)
    assert read(segment, handles, 301) == made.items[301:]
    handles.close()


def test_intact_records_that_the_index_does_not_know_are_never_cut(files: CrashFiles) -> None:
    made = Made(files, records(0, 30))
    made.flip(made.offsets[10] + 36)
    made.damage(index=made.index[: 128 + 8 * 10])
    made.assert_refused("transaction 10, .* may have been acknowledged")


@pytest.mark.parametrize("tail", [b"torn", b"\xff" * 30, b"\xff" * 3000])
def test_what_no_write_of_ours_leaves_is_not_cut(files: CrashFiles, tail: bytes) -> None:
    made = Made(files, records(0, 3))
    made.damage(data=made.data + tail)
    made.assert_refused("not the rest of an interrupted write")


def test_negative_length_is_no_torn_record(files: CrashFiles) -> None:
    made = Made(files, records(0, 5))
    body = struct.pack(">q16siii", 5, bytes(16), 0, -4, 0)
    made.damage(data=made.data + body + struct.pack(">I", crc32(body)))
    made.assert_refused("not the rest of an interrupted write")


def test_segment_in_the_middle_must_reach_the_next_one(files: CrashFiles) -> None:
    made = Made(files, records(0, 30))
    made.open(-1, 30)[1].close()
    made.assert_refused("the segment ends before transaction 30, the next segment begins with 31", following=31)
    made.assert_refused("begins with 29", following=29)
    made.damage(data=made.data[: made.offsets[29]])
    made.assert_refused("ends before transaction 29, the next segment begins with 30", following=30)
    made.damage(data=made.data[:-1], index=made.index[:-8])
    made.assert_refused("ends before transaction 29, the next segment begins with 30", following=30)
    made.damage(index=made.index)
    made.damage(data=made.data + encode_record(record(30))[:-1])
    segment, handles = made.open(-1, 30)
    assert segment.next_transaction_id == 30
    handles.close()
    assert files.contents(made.path) == made.data


def test_wrong_files_are_refused(files: CrashFiles) -> None:
    made = Made(files, records(0, 3))
    other_key = KEY.__class__(int=7)
    assert read_header(files, made.path, KEY, PARTITION) == made.header
    for key, partition in ((other_key, PARTITION), (KEY, PARTITION + 1)):
        with pytest.raises(StorageError, match=f"^failed to open segment file: {made.path}$"):
            read_header(files, made.path, key, partition)
    made.damage(index=made.header._replace(cluster_key=other_key).encode() + made.index[128:])
    with pytest.raises(StorageError, match="^the cluster key does not match"):
        made.open()
    made.damage(index=made.header._replace(partition_id=9).encode() + made.index[128:])
    with pytest.raises(StorageError, match="^partition id does not match"):
        made.open()
    assert files.open_files == 0


@pytest.mark.parametrize("content", [b"", b"x" * 127, bytes(128)])
def test_header_of_an_interrupted_creation(files: CrashFiles, content: bytes) -> None:
    made = Made(files, [], first=0)
    made.damage(data=content)
    assert read_header(files, made.path, KEY, PARTITION) is None
    segment, handles = create_segment(files, "/", KEY, PARTITION, 0)
    handles.close()
    assert files.contents(segment.path) == made.data


def test_creation_discards_an_orphan_index_but_no_data(files: CrashFiles) -> None:
    made = Made(files, records(0, 3))
    with pytest.raises(StorageError, match=f"^segment file not empty: {made.path}$"):
        create_segment(files, "/", KEY, PARTITION, 0)
    files.remove(made.path)
    segment, handles = create_segment(files, "/", KEY, PARTITION, 0)
    handles.close()
    assert files.contents(segment.index_path) == made.header.encode()


def test_truncation_cuts_the_index_first(files: CrashFiles) -> None:
    """An index that reached further than the records would keep the original from opening the segment."""
    made = Made(files, records(0, 5))
    segment, handles = made.open()
    offset = segment.cut_offset(handles, 2)
    for step, (data_size, index_size) in enumerate([(made.offsets[5], 128 + 8 * 5), (made.offsets[5], 128 + 8 * 3)]):
        files.fail(OSError(errno.EIO, "injected"), operation="truncate", after=step)
        with pytest.raises(OSError, match="injected"):
            segment.truncate(handles, 2, offset)
        assert (len(files.contents(made.path)), len(files.contents(made.index_path))) == (data_size, index_size)
    assert files.node(made.index_path).pending == []
    handles.close()


@pytest.mark.parametrize("first", [0, 77])
def test_truncate_to_each_id(files: CrashFiles, first: int) -> None:
    made = Made(files, records(first, 12))
    segment, handles = made.open()
    for transaction_id in (first - 2, first + 12):
        with pytest.raises(StorageError, match=f"^transaction id out of range: file={made.path}$"):
            segment.cut_offset(handles, transaction_id)
    for count in range(12, -1, -1):
        transaction_id = first + count - 1
        segment.truncate(handles, transaction_id, segment.cut_offset(handles, transaction_id))
        assert files.contents(made.path) == made.data[: made.offsets[count]]
        assert files.contents(made.index_path) == made.index[: 128 + 8 * count]
        assert files.node(made.path).pending == []
        assert read(segment, handles) == made.items[:count]
    handles.close()


def test_truncation_does_not_believe_a_wrong_index(files: CrashFiles) -> None:
    made = Made(files, records(0, 12))
    segment, handles = made.open()
    wrong = made.index[: 128 + 8 * 5] + encode_index([3]) + made.index[128 + 8 * 6 :]
    made.damage(index=wrong)
    # Record 4 tells where it ends; record 6 is where its entry tells, when 5 cannot be found.
    assert segment.cut_offset(handles, 4) == made.offsets[5]
    assert segment.cut_offset(handles, 5) == made.offsets[6]
    made.flip(made.offsets[6] + 36)
    with pytest.raises(CorruptionError):
        segment.cut_offset(handles, 5)
    handles.close()


def test_wrong_index_is_noticed_when_read(files: CrashFiles) -> None:
    made = Made(files, records(0, 12))
    segment, handles = made.open()
    for wrong in (0, -8, 1 << 40, made.offsets[7], made.offsets[5] + 1):
        made.damage(index=made.index[: 128 + 8 * 5] + encode_index([wrong]) + made.index[128 + 8 * 6 :])
        with pytest.raises(CorruptionError):
            read(segment, handles, 5, 6)
        with pytest.raises(CorruptionError):
            read(segment, handles)
    made.damage(index=made.index[: 128 + 8 * 5])
    with pytest.raises(CorruptionError, match="too short"):
        read(segment, handles, 5, 6)
    handles.close()


def test_read_limits(files: CrashFiles) -> None:
    items = [record(i, b"x" * 60) for i in range(10)]
    segment, handles = Made(files, items).open()
    assert [len(read(segment, handles, max_bytes=limit)) for limit in (-1, 0, 99, 100, 199, 200, 999, 1000, 5000)] == [
        *(1, 1, 1, 1, 1, 2, 9, 10, 10)
    ]
    assert read(segment, handles, 3, 5) == items[3:5]
    handles.close()


def test_large_records_and_long_reads(files: CrashFiles) -> None:
    items = [record(i, bytes([i % 256]) * (3_000_000 if i in (2, 3, 4) else 10)) for i in range(9000)]
    segment, handles = Made(files, items).open()
    assert read(segment, handles) == items
    assert read(segment, handles, max_bytes=3_000_200) == items[:3]
    handles.close()


def test_verify(files: CrashFiles) -> None:
    made = Made(files, records(50, 12))
    segment, handles = made.open()
    checks = list(segment.verify(handles))
    assert [check.record for check in checks] == made.items
    assert all(check.index_ok and check.checksum_ok for check in checks)
    made.flip(made.offsets[3] + 36)
    made.damage(index=made.index[: 128 + 8 * 5] + encode_index([1 << 40, made.offsets[7]]) + made.index[128 + 8 * 7 :])
    checks = list(segment.verify(handles))
    assert [(c.transaction_id, c.index_ok, c.checksum_ok) for c in checks if not (c.index_ok and c.checksum_ok)] == [
        (53, True, False),
        (55, False, False),
        (56, False, True),
    ]
    with pytest.raises(StorageError, match="out of range"):
        segment.verify_record(handles, 62)
    handles.close()
