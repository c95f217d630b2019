"""Blocks of archived objects as chunks, against the log that was archived."""

import asyncio
import random
from pathlib import Path

import pytest

from tests.unit.archive.logs import archive_log
from tests.unit.common.cluster.fakes import KEY, make_record
from waltz.archive import object_format
from waltz.archive.chain import Place, read_ranges
from waltz.archive.errors import ArchiveDamagedError, NotFoundInStoreError
from waltz.archive.manifest import covering
from waltz.common.records import Record
from waltz.spark import archive_reading
from waltz.spark.archive_reading import ArchiveSplit, archived_chunks
from waltz.spark.offsets import OffsetRange

pytest.importorskip("obstore")

COUNT = 60


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[Record]:
    """Records of many sizes, where blocks and fetches are small."""
    monkeypatch.setattr(object_format, "BLOCK_BYTES", 300)
    monkeypatch.setattr(archive_reading, "FETCH_BYTES", 900)
    chance = random.Random(1)
    return [make_record(0, each, chance.randbytes(chance.choice([0, 3, 90, 700]))) for each in range(COUNT)]


def split_of(directory: Path, place: Place, start: int, end: int) -> ArchiveSplit:
    objects = tuple(covering(asyncio.run(read_ranges(place)), start, end))
    return ArchiveSplit(OffsetRange(0, start, end), f"file://{directory}", KEY, objects)


def test_every_range_is_read_as_it_was_written(log: list[Record], tmp_path: Path) -> None:
    place = asyncio.run(archive_log(tmp_path, KEY, 0, log, 17))
    for start, end in [(0, COUNT), (5, 6), (16, 18), (17, 34), (30, 59), (59, 60)]:
        chunks = [*archived_chunks(split_of(tmp_path, place, start, end))]
        ids = [each for chunk in chunks for each in chunk.transaction_ids().to_pylist()]
        assert ids == [*range(start, end)]
        assert [data for chunk in chunks for data in chunk.payloads.to_pylist()] == [x.data for x in log[start:end]]
        assert [each for chunk in chunks for each in chunk.checksums()] == [x.checksum for x in log[start:end]]
        assert [each for chunk in chunks for each in chunk.heads().column("header")] == [
            x.header for x in log[start:end]
        ]


def test_damage_is_noticed_wherever_it_is_read(log: list[Record], tmp_path: Path) -> None:
    place = asyncio.run(archive_log(tmp_path, KEY, 0, log, COUNT))
    split = split_of(tmp_path, place, 0, COUNT)
    path = tmp_path / place.object_path(split.objects[0])
    whole = path.read_bytes()
    for at in range(object_format.HEADER_BYTES, len(whole), 97):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 16]) + whole[at + 1 :])
        with pytest.raises(ArchiveDamagedError):
            list(archived_chunks(split))
    path.write_bytes(whole[:-40])
    with pytest.raises(ArchiveDamagedError, match="truncated"):
        list(archived_chunks(split))
    path.unlink()
    with pytest.raises(NotFoundInStoreError, match="does not exist"):
        list(archived_chunks(split))
