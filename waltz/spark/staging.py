"""The staging directory of a sink: rows before they are appended, and the decisions about them.

    STAGING/APP/log.json                    which log the rows are for, and which query they are of
    STAGING/APP/rows/NAME.arrow             rows that tasks have staged, of any epoch
    STAGING/APP/epochs/E/manifest.json      which of them are epoch E, and the log's marks before it was appended
    STAGING/APP/epochs/E/claim-N.json       the N-th client that took the appending of epoch E over
    STAGING/APP/done/E                      every row of epoch E, and of all before it, is in the log

The decisions and rows of the last completed epoch stay until the next epoch is completed: a late run finds them.

Every decision is the appearance of one name, which the file system grants to one only (``link``): the first log and the
first manifest win, every claim has its own number, and what is done stays done. A file has its content before it has
that name. Needed of the file system: shared by the driver and all workers; ``link`` and ``rename`` are atomic, and a
file that was just made can be opened by everyone, as with local disks and NFS.
"""

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote
from uuid import UUID, uuid4

import pyarrow as pa
import pyarrow.ipc

from waltz.spark.errors import SinkError, SinkFencedError
from waltz.spark.rows import Row

NOTHING_DONE = -1

_PIECE_BYTES = 4 << 20
"""Payload bytes of one partition that a task gathers before it writes them."""
_GATHERED_BYTES = 64 << 20
"""Limit of the bytes that are gathered for all partitions together."""
_MAX_NAME_BYTES = 200
_TRASH = "trash-"

_SCHEMA = pa.schema([pa.field("header", pa.int32(), nullable=False), pa.field("data", pa.binary(), nullable=False)])


class LogIdentity(NamedTuple):
    """The log that the rows of a sink go to, and the query that they come from.

    An epoch that was completed here says nothing about another log, a sink of the other format, or another query.
    """

    cluster_key: UUID
    format: str
    """The format of the sink, by the name that Spark knows."""
    query: str | None = None
    """The id of the query in its checkpoint; ``None`` if it cannot be read, and for batches."""

    def encode(self) -> bytes:
        """The JSON document that is stored."""
        document = {"cluster_key": str(self.cluster_key), "format": self.format, "query": self.query}
        return json.dumps(document).encode()

    @classmethod
    def decode(cls, content: bytes) -> "LogIdentity":
        """Raises ``ValueError``, ``KeyError`` or ``TypeError`` for another document."""
        document = json.loads(content)
        key, sink_format, query = UUID(str(document["cluster_key"])), str(document["format"]), document.get("query")
        return cls(key, sink_format, None if query is None else str(query))

    def admits(self, other: "LogIdentity") -> bool:
        """Whether ``other`` may use this identity's directory; an unknown query matches every query."""
        return self[:2] == other[:2] and (None in (self.query, other.query) or self.query == other.query)

    def __str__(self) -> str:
        query = "" if self.query is None else f", for the query {self.query}"
        return f"format {self.format} on the cluster with the key {self.cluster_key}{query}"


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file of staged rows: record batches, each of one partition."""

    name: str
    pieces: tuple[tuple[int, int], ...]
    """Partition and number of rows of each record batch."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of an epoch: a decision that is made once."""

    files: tuple[StagedFile, ...]
    marks: dict[int, int]
    """Each partition's high-water mark when nothing of the epoch had been appended yet."""

    def encode(self) -> bytes:
        """The JSON document that is stored."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, content: bytes) -> "Manifest":
        """Raises ``ValueError`` or ``KeyError`` for another document."""
        document = json.loads(content)
        files = tuple(
            StagedFile(file["name"], tuple((partition_id, count) for partition_id, count in file["pieces"]))
            for file in document["files"]
        )
        return cls(files, {int(partition_id): mark for partition_id, mark in document["marks"].items()})


def partitions_of(files: Iterable[StagedFile]) -> list[int]:
    """The partitions that have rows in some files, sorted."""
    return sorted({partition_id for file in files for partition_id, count in file.pieces if count})


class StagingArea:
    """The directory of one sink. Every method raises ``SinkError`` (or ``OSError``) when the directory fails."""

    def __init__(self, staging_path: str, app_id: str) -> None:
        name = quote(app_id, safe="")
        if len(name) > _MAX_NAME_BYTES or name in (".", ".."):
            raise SinkError(f"{app_id!r} cannot be the name of a directory; choose a shorter txnAppId")
        self._root = Path(staging_path) / name

    def bind(self, log: LogIdentity) -> bool:
        """Use the directory for this log only; a directory without a log's name is taken over.

        Returns:
            Whether everything in the directory is known to be of the same query.

        Raises:
            SinkError: The directory is for another log or another query, whose completed epochs are not completed here.
        """
        path = self._made() / "log.json"
        if not path.exists():
            _publish(path, log.encode())
        try:
            found = LogIdentity.decode(path.read_bytes())
        except (ValueError, KeyError, TypeError) as error:
            raise SinkError(f"{path} does not say which log the directory is for: {error}") from error
        if not found.admits(log):
            raise SinkError(
                f"the staging directory {self._root} belongs to {found}, and this write is {log}; give it another "
                "txnAppId or stagingPath"
            )
        return found.query is not None and found.query == log.query

    # Rows

    def writer(self) -> "RowStager":
        """A writer that stages the rows of one task."""
        return RowStager(self._made("rows"))

    def rows(self, manifest: Manifest, partition_id: int) -> Iterator[Row]:
        """The rows of a partition, always in the same order. Raises ``SinkError`` when a file is gone or damaged."""
        for file in manifest.files:
            wanted = [index for index, (found, _) in enumerate(file.pieces) if found == partition_id]
            if wanted:
                yield from self._read(self._root / "rows" / file.name, wanted)

    @staticmethod
    def _read(path: Path, wanted: list[int]) -> Iterator[Row]:
        try:
            with pa.memory_map(str(path)) as source, pyarrow.ipc.open_file(source) as reader:
                for index in wanted:
                    batch = reader.get_batch(index)
                    yield from map(Row, batch.column(0).to_pylist(), batch.column(1).to_pylist())
        except (OSError, pa.ArrowException) as error:
            raise SinkError(f"staged rows cannot be read: {path}: {error}") from error

    def discard(self, files: Iterable[StagedFile]) -> None:
        """Remove staged rows that belong to no manifest."""
        for file in files:
            (self._root / "rows" / file.name).unlink(missing_ok=True)

    # Decisions

    def is_done(self, epoch: int) -> bool:
        """Whether the epoch, or a later one, was completed."""
        return epoch <= self._last_done()

    def manifest(self, epoch: int) -> Manifest | None:
        """The manifest that won, if there is one."""
        path = self._epoch(epoch) / "manifest.json"
        try:
            return Manifest.decode(path.read_bytes())
        except FileNotFoundError:
            return None
        except (ValueError, KeyError) as error:
            raise SinkError(f"{path} is not a manifest: {error}") from error

    def propose(self, epoch: int, manifest: Manifest) -> bool:
        """Make this the manifest of the epoch; ``False`` if there is another, or the epoch was completed meanwhile."""
        directory = self._made("epochs", str(epoch))
        try:
            return _publish(directory / "manifest.json", manifest.encode())
        except FileNotFoundError:
            return False

    def claims(self, epoch: int, client_id: int) -> "Claims":
        """The claims of a client to append an epoch; none is made yet."""
        return Claims(self._epoch(epoch), client_id)

    def complete(self, epoch: int) -> None:
        """Record that every row of the epoch is in the log, and remove the files of the epochs before it.

        The epoch's own manifest, claims and rows stay until the next one is completed.
        """
        done = self._made("done")
        _publish(done / str(epoch), b"")
        for directory in list(self._made("epochs").iterdir()):
            if directory.name.isdigit() and int(directory.name) < epoch:
                self._remove_epoch(directory)
            elif directory.name.startswith(_TRASH):
                shutil.rmtree(directory, ignore_errors=True)
        for older in list(done.iterdir()):
            if older.name.isdigit() and int(older.name) < epoch:
                older.unlink(missing_ok=True)

    def _remove_epoch(self, directory: Path) -> None:
        manifest = self.manifest(int(directory.name))
        if manifest is not None:
            self.discard(manifest.files)
        # Renamed first: a run that still works on the epoch finds all of its decisions or none.
        trash = directory.with_name(f"{_TRASH}{uuid4()}")
        with suppress(FileNotFoundError):
            directory.rename(trash)
        shutil.rmtree(trash, ignore_errors=True)

    def remove(self) -> None:
        """Remove the whole directory; its name is not used again."""
        shutil.rmtree(self._root, ignore_errors=True)

    def _last_done(self) -> int:
        try:
            names = [path.name for path in (self._root / "done").iterdir()]
        except FileNotFoundError:
            return NOTHING_DONE
        return max((int(name) for name in names if name.isdigit()), default=NOTHING_DONE)

    def _epoch(self, epoch: int) -> Path:
        return self._root / "epochs" / str(epoch)

    def _made(self, *names: str) -> Path:
        directory = self._root.joinpath(*names)
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SinkError(f"cannot make {directory}; check the option stagingPath: {error}") from error
        return directory


class Claims:
    """Which clients may have appended rows of an epoch.

    A client claims an epoch *after* it has learnt the marks up to which it searches for rows, and *before* it appends:
    so every client that appended anything below those marks is among the claims that it finds.
    """

    def __init__(self, directory: Path, client_id: int) -> None:
        self._directory = directory
        self._client_id = client_id
        self._count = 0
        self.client_ids: set[int] = set()
        """All who have claimed the epoch, this client included."""

    def claim(self) -> bool:
        """Claim the epoch (again); whether anyone, this client included, had claimed it before.

        Raises ``SinkFencedError`` when another client came after this one, and ``FileNotFoundError`` when the epoch was
        completed meanwhile.
        """
        mine = json.dumps({"client_id": self._client_id}).encode()
        first = not self.client_ids
        while not _publish(self._directory / f"claim-{self._count + 1}.json", mine):
            if not first:
                raise SinkFencedError(
                    "another run of this query appends now; this one stops. Rows are in the log once, whatever happens"
                )
            path = self._directory / f"claim-{self._count + 1}.json"
            self.client_ids.add(int(json.loads(path.read_bytes())["client_id"]))
            self._count += 1
        self._count += 1
        self.client_ids.add(self._client_id)
        return self._count > 1


class RowStager:
    """Writes the rows of one task; they count only when a manifest names the file."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / f"{uuid4()}.arrow"
        self._gathered: dict[int, list[Row]] = {}
        self._sizes: dict[int, int] = {}
        self._total_bytes = 0
        self._pieces: list[tuple[int, int]] = []
        self._file: pa.NativeFile | None = None
        self._writer: pyarrow.ipc.RecordBatchFileWriter | None = None

    def add(self, partition_id: int, row: Row) -> None:
        """Stage a row."""
        size_bytes = len(row.data) + 16
        self._gathered.setdefault(partition_id, []).append(row)
        self._sizes[partition_id] = self._sizes.get(partition_id, 0) + size_bytes
        self._total_bytes += size_bytes
        if self._sizes[partition_id] >= _PIECE_BYTES:
            self._write(partition_id)
        elif self._total_bytes >= _GATHERED_BYTES:
            self._write(max(self._sizes, key=self._sizes.__getitem__))

    def finish(self) -> StagedFile | None:
        """Write the remaining rows durably; ``None`` if there was no row."""
        for partition_id in sorted(self._gathered):
            self._write(partition_id)
        if self._writer is None or self._file is None:
            return None
        self._writer.close()
        self._file.close()
        _sync(self._path)
        _sync(self._path.parent)
        return StagedFile(self._path.name, tuple(self._pieces))

    def abandon(self) -> None:
        """Remove the file."""
        for opened in (self._writer, self._file):
            if opened is not None:
                with suppress(OSError, pa.ArrowException):
                    opened.close()
        self._path.unlink(missing_ok=True)

    def _write(self, partition_id: int) -> None:
        rows = self._gathered.pop(partition_id)
        self._total_bytes -= self._sizes.pop(partition_id)
        if self._writer is None:
            self._file = pa.OSFile(str(self._path), "wb")
            self._writer = pyarrow.ipc.new_file(self._file, _SCHEMA)
        headers, payloads = zip(*rows, strict=True)
        columns = [pa.array(headers, type=pa.int32()), pa.array(payloads, type=pa.binary())]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA))
        self._pieces.append((partition_id, len(rows)))


def _publish(path: Path, content: bytes) -> bool:
    """Make a file appear with its content, durably; ``False`` if the name is taken.

    Raises ``FileNotFoundError`` when its directory is gone.
    """
    temporary = path.with_name(f".{path.name}.{uuid4()}")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
    finally:
        temporary.unlink(missing_ok=True)
    _sync(path.parent)
    return True


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
