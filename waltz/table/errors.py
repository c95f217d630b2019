"""What can go wrong with tables."""

from waltz.common.errors import WaltzError


class TableError(WaltzError):
    """Base of all errors of tables."""


class EnvelopeError(TableError):
    """The data of a transaction is not an envelope of this version. A view counts and skips it."""


class CodecUnavailableError(TableError):
    """The library that a codec needs is not installed.

    A view stops here: skipping the transaction would make it differ from views that can read it.
    """


class PropertiesError(TableError):
    """Properties of a partition that are not accepted, or those of a partition that is no table."""


class StoreError(TableError):
    """Base of the errors of stores."""


class StoreLockedError(StoreError):
    """Another process, or this one, has the directory of the store open already."""


class StoreUnavailableError(StoreError):
    """The store is unknown, or the library that it needs is not installed."""


class StoreDamagedError(StoreError):
    """The store cannot be believed. Opened again, it is empty, and to be filled from the log."""


class KeyTooLongError(StoreError):
    """Prefix and key of a row are longer than the store can hold."""


class TimestampError(TableError, ValueError):
    """A timestamp that is not positive, or further ahead of the writer's clock than the partition allows."""


class ViewGapError(StoreError):
    """Changes do not begin where the store ends; nothing was applied."""


class VersionConflict(TableError):  # the name says what happened
    """The row has another version than the one on which a conditional write was to rest; nothing was written."""


class CursorConflict(TableError):  # the name says what happened
    """Somebody else has moved a named cursor since it was read; it was left as it is."""
