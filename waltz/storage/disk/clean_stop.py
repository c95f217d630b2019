"""The note that an orderly stop leaves in the storage directory: the end of every partition.

The note tells the next start the expected content. So a damaged last record is damage, not a torn write, and a damaged
entry of the control file is not an interrupted update. The note is removed, durably, before any change. Another program
may still have changed a partition, because the original does not know the note. Therefore an entry counts only while
the control file has the same session and marks, or has lost them by damage.

The file is one JSON document in a line, and the CRC-32 of that line in another.
"""

import json
import logging
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from waltz.common.checksum import crc32
from waltz.storage.disk.control_file import PartitionInfo
from waltz.storage.disk.files.files import Files
from waltz.storage.disk.log.group_encoder import LogEnd

logger = logging.getLogger(__name__)

FILE_NAME = "waltz-storage.clean"
_MAX_SIZE_BYTES = 64 << 20


class CleanPartition(NamedTuple):
    """The state of one partition at the stop."""

    info: PartitionInfo
    end: LogEnd


def write_clean_stop(files: Files, directory: str, cluster_key: UUID, partitions: dict[int, CleanPartition]) -> None:
    """Write the note durably, after everything that it describes. Blocking. Raises ``OSError``."""
    document = {
        "cluster": str(cluster_key),
        "partitions": {partition_id: [*clean.info, *clean.end] for partition_id, clean in partitions.items()},
    }
    line = json.dumps(document, separators=(",", ":")).encode()
    path = str(Path(directory) / FILE_NAME)
    file = files.open(path + ".new", create=True)
    try:
        file.truncate(0)
        file.write(0, [line, b"\n%08x\n" % crc32(line)])
        file.sync()
    finally:
        file.close()
    files.rename(path + ".new", path)
    files.sync_directory(directory)


def take_clean_stop(files: Files, directory: str, cluster_key: UUID) -> dict[int, CleanPartition] | None:
    """Read the note and remove it, durably; ``None`` when there is none. Blocking. Raises ``OSError``."""
    path = str(Path(directory) / FILE_NAME)
    if not files.exists(path):
        return None
    file = files.open(path, create=False)
    try:
        content = file.read(0, _MAX_SIZE_BYTES)
    finally:
        file.close()
    files.remove(path)
    files.sync_directory(directory)
    try:
        return _decode(content, cluster_key)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        logger.error("%s is damaged (%s); recovering as after a crash", path, error)
        return {}


def _decode(content: bytes, cluster_key: UUID) -> dict[int, CleanPartition]:
    line, _, rest = content.partition(b"\n")
    if rest != b"%08x\n" % crc32(line):
        raise ValueError("wrong checksum")
    document = json.loads(line)
    if document["cluster"] != str(cluster_key):
        raise ValueError("it belongs to another cluster")
    return {
        int(partition_id): CleanPartition(PartitionInfo(*_integers(values[:5])), LogEnd(*_integers(values[5:])))
        for partition_id, values in document["partitions"].items()
    }


def _integers(values: list[object]) -> list[int]:
    integers = [value for value in values if type(value) is int]
    if len(integers) < len(values):
        raise ValueError("a number is missing")
    return integers
