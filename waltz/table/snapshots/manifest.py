"""The manifest of a saved snapshot: which files it is, and of which state of which log. Pure.

A snapshot is there if its manifest is there. The manifest is created last, and only if there is none of the same
transaction; it is removed first. So no reader takes a part of a snapshot for a whole one.
"""

from typing import NamedTuple
from uuid import UUID

from waltz.archive.documents import decode_document, encode_document
from waltz.archive.errors import ArchiveDamagedError
from waltz.common.ids import ReqId

_HEAD = b"waltz-snapshot 1 "
"""Ends with the version of the form."""


class SavedFile(NamedTuple):
    """A file of a snapshot."""

    name: str
    """Below the folder of the partition's snapshots."""
    size_bytes: int
    crc: int
    """CRC-32 of all its bytes."""
    rows: int


class Manifest(NamedTuple):
    """A snapshot: all rows of a table after one transaction, in the order of their keys."""

    cluster_key: UUID
    """Key of the cluster of which the log is: a cluster that is made anew has another one."""
    partition_id: int
    applied: int
    """The last transaction whose effect is in the rows."""
    request_id: bytes
    """Request id of that transaction."""
    properties_change: int | None
    """Number of changes of the partition's properties by then; ``None`` if the view had other properties."""
    max_body_bytes: int
    """The property on which the rows depend: transactions with larger bodies are no envelopes."""
    rows: int
    """Number of rows, tombstones and expired rows among them."""
    tombstones: int
    skipped: int
    """Number of transactions that were no envelopes."""
    newest_ms: int
    """The latest time at which a batch was written, in milliseconds since the epoch, by the clock of its writer."""
    saved_at_ms: int
    """When the snapshot was saved, in milliseconds since the epoch."""
    files: tuple[SavedFile, ...]
    """In the order of the keys."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(each.size_bytes for each in self.files)


def manifest_name(applied: int) -> str:
    """The name of a manifest within its folder."""
    return f"{applied:019d}"


def file_name(applied: int, token: str, number: int) -> str:
    """The name of a file. The token is of one attempt to save: no two attempts write the same file."""
    return f"{applied:019d}/{token}/{number:05d}.parquet"


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of a manifest."""
    fields = manifest._asdict()
    return encode_document(
        _HEAD, {**fields, "cluster_key": str(manifest.cluster_key), "request_id": manifest.request_id.hex()}
    )


def decode_manifest(data: bytes, cluster_key: UUID, partition_id: int, applied: int, name: str) -> Manifest:
    """The manifest of the snapshot of transaction ``applied``; ``name`` begins the text of errors.

    Raises ``ArchiveDamagedError``, also for a manifest of another log.
    """
    document = decode_document(_HEAD, data, "the manifest of a snapshot", name)
    try:
        fields = {
            **document,
            "cluster_key": UUID(document["cluster_key"]),
            "request_id": bytes.fromhex(document["request_id"]),
            "files": tuple(SavedFile(*each) for each in document["files"]),
        }
        manifest = Manifest(**fields)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ArchiveDamagedError(f"{name} is damaged: its fields are not those of a manifest") from None
    if (manifest.cluster_key, manifest.partition_id) != (cluster_key, partition_id):
        raise ArchiveDamagedError(
            f"{name} is of partition {manifest.partition_id} of cluster {manifest.cluster_key}: it was copied to a "
            "wrong place"
        )
    if manifest.applied != applied or len(manifest.request_id) != ReqId.SIZE_BYTES:
        raise ArchiveDamagedError(f"{name} is damaged: it does not name transaction {applied}")
    if sum(each.rows for each in manifest.files) != manifest.rows:
        raise ArchiveDamagedError(f"{name} is damaged: its files do not hold as many rows as it says")
    return manifest


def misfit(max_body_bytes: int, manifest: Manifest) -> str | None:
    """Why a view with that property cannot begin with the snapshot; ``None`` if it can."""
    if manifest.max_body_bytes == max_body_bytes:
        return None
    return (
        f"it was saved when maxDecompressedSizeInBytes was {manifest.max_body_bytes}, and it is {max_body_bytes} now: "
        "other transactions may count"
    )
