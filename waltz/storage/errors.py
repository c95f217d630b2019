"""Errors of the storage node, and their texts on the wire.

The original renders an exception on the wire as its Java class name, a colon and the message. Servers, tools and tests
compare these texts, so every error here has its Java name.
"""

import os
from typing import ClassVar

from waltz.common.errors import WaltzError
from waltz.common.wire.fencing import CONCURRENT_UPDATE_EXCEPTION, STORAGE_EXCEPTION


class _NamedError(WaltzError):
    """An error with a Java class name of its own."""

    java_class: ClassVar[str]

    def wire_text(self) -> str:
        """The text of the failure reply: Java class name and message."""
        return _java_text(self.java_class, str(self))


class StorageError(_NamedError):
    """A request cannot be served: bad order, missing permission, wrong key, damaged or closed file."""

    java_class = STORAGE_EXCEPTION


class ConcurrentUpdateError(_NamedError):
    """The request's session has been replaced by a newer one."""

    java_class = CONCURRENT_UPDATE_EXCEPTION


class PartitionNotAssignedError(_NamedError):
    """The partition is not assigned to this node, or is just being closed."""

    java_class = "java.lang.Exception"

    def __init__(self, partition_id: int) -> None:
        super().__init__(f"Partition:{partition_id} is not assigned.")
        self.partition_id = partition_id


class UnknownRequestError(_NamedError):
    """A message that is not a request arrived."""

    java_class = "java.lang.IllegalStateException"

    def __init__(self, message_type: int) -> None:
        super().__init__(f"unknown message type: {message_type}")


class CorruptionError(StorageError):
    """Bytes that were durable once are damaged or missing; they have to come from another replica.

    ``transaction_id`` is the first damaged record, ``None`` if the damage is not in a record.
    """

    def __init__(self, partition_id: int, transaction_id: int | None, path: str, reason: str) -> None:
        record = "" if transaction_id is None else f", transaction {transaction_id}"
        super().__init__(f"corrupted: partition {partition_id}{record}, file {path}: {reason}")
        self.partition_id = partition_id
        self.transaction_id = transaction_id
        self.path = path
        self.reason = reason


class ReadOnlyError(StorageError):
    """An earlier write or sync failed; nothing is written until an operator has checked the disk and restarted the
    node."""


class OverCapacityError(StorageError):
    """There is no room for the request now; nothing has changed, and the partition stays in service."""


def wire_text(error: Exception) -> str:
    """The text of the failure reply for any exception, in the original's form."""
    if isinstance(error, _NamedError):
        return error.wire_text()
    if isinstance(error, FileNotFoundError) and error.filename is not None:
        return _java_text("java.nio.file.NoSuchFileException", os.fsdecode(error.filename))
    if isinstance(error, OSError):
        return _java_text("java.io.IOException", error.strerror or str(error))
    return _java_text("java.lang.RuntimeException", str(error))


def _java_text(java_class: str, message: str) -> str:
    return f"{java_class}: {message}" if message else java_class
