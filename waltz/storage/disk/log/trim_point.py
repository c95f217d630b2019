"""The trim point of a log on disk: a file in the directory of the partition.

All transactions before the trim point were taken away from the partition, everywhere and for ever. The file is durable
before the first segment is removed. So a log without its first records is known to be trimmed, and not damaged.
"""

import struct
from pathlib import Path

from waltz.common.checksum import crc32
from waltz.storage.disk.files.files import Files, replace_file
from waltz.storage.errors import CorruptionError

FILE_NAME = "trim.point"

_FIELDS = struct.Struct(">8sq")
_CRC = struct.Struct(">I")
_MAGIC = b"WaltzTrm"
_SIZE_BYTES = _FIELDS.size + _CRC.size


def read_trim_point(files: Files, directory: str, partition_id: int) -> int:
    """The first id that was not trimmed; 0 without a file. Blocking.

    Raises ``CorruptionError`` when the file is damaged, ``OSError``.
    """
    path = str(Path(directory) / FILE_NAME)
    if not files.exists(path):
        return 0
    file = files.open(path, create=False)
    try:
        data = file.read(0, _SIZE_BYTES + 1)
    finally:
        file.close()
    if len(data) == _SIZE_BYTES and _CRC.unpack_from(data, _FIELDS.size)[0] == crc32(data[: _FIELDS.size]):
        magic, transaction_id = _FIELDS.unpack_from(data)
        if magic == _MAGIC and transaction_id >= 0:
            return int(transaction_id)
    raise CorruptionError(partition_id, None, path, "the trim point is damaged")


def write_trim_point(files: Files, directory: str, transaction_id: int) -> None:
    """Record the trim point, durably. Blocking. Raises ``OSError``; then the old or the new one is in the file."""
    fields = _FIELDS.pack(_MAGIC, transaction_id)
    replace_file(files, str(Path(directory) / FILE_NAME), [fields, _CRC.pack(crc32(fields))]).close()
    files.sync_directory(directory)


def forget_trim_point(files: Files, directory: str) -> None:
    """Remove the file, after all segments. Blocking. Raises ``OSError``."""
    path = str(Path(directory) / FILE_NAME)
    if files.exists(path):
        files.remove(path)
        files.sync_directory(directory)
