"""Errors of tables."""

from waltz.common.errors import WaltzError


class TableError(WaltzError):
    """Base of all errors of tables.

    Examples:
        ```python
        try:
            await table.put_if(b"alice", b"200", version=waltz.table.Version(0, 0))
        except waltz.table.TableError as error:
            print(error)
        ```
    """


class EnvelopeError(TableError):
    """The data of a transaction is not an envelope of this version. Views count and skip such transactions.

    Examples:
        ```python
        try:
            await table.batch([waltz.table.Row(b"", b"key", b"value", timestamp_ms=1 << 70)], any_timestamp=True)
        except waltz.table.EnvelopeError as error:
            print("it does not fit into the envelope:", error)
        ```
    """


class CodecUnavailableError(TableError):
    """The library that a codec needs is not installed.

    A view stops here: skipping the transaction would make it differ from views that can read it.

    Examples:
        ```python
        await waltz.table.configure(client, 0, {"rowType": "zstd"})
        try:
            async with client.table(0) as table:
                await table.refresh()
        except waltz.table.CodecUnavailableError as error:
            print(error)  # it names the package to be installed
        ```
    """


class PropertiesError(TableError):
    """Properties of a partition are not accepted, or do not make it a table.

    Examples:
        ```python
        try:
            async with client.table(1) as table:
                await table.put(b"key", b"value")
        except waltz.table.PropertiesError as error:
            print(error)  # it says how the partition is made a table
        ```
    """


class StoreError(TableError):
    """Base of the errors of stores.

    Examples:
        ```python
        try:
            async with client.table(0, store="sqlite", directory=directory) as table:
                print(await table.get([b"key"]))
        except waltz.table.StoreError as error:
            print("the view cannot be used:", error)
        ```
    """


class StoreLockedError(StoreError):
    """This or another process already has the directory of the store open.

    Examples:
        ```python
        async with client.table(0, store="sqlite", directory=directory):
            try:
                async with client.table(0, store="sqlite", directory=directory) as table:
                    print("not reached")
            except waltz.table.StoreLockedError as error:
                print("each table has a directory of its own:", error)
        ```
    """


class StoreUnavailableError(StoreError):
    """The store is unknown, or the library that it needs is not installed.

    Examples:
        ```python
        try:
            async with client.table(0, store="papyrus") as table:
                print("not reached")
        except waltz.table.StoreUnavailableError as error:
            print(error)  # it names the stores that there are
        ```
    """


class StoreDamagedError(StoreError):
    """The store is damaged. When it is opened again, it is empty, and is filled from the log.

    Examples:
        ```python
        try:
            print(await table.get([b"key"]))
        except waltz.table.StoreDamagedError as error:
            print("open the table again, which builds its view from the log:", error)
        ```
    """


class KeyTooLongError(StoreError):
    """Prefix and key of a row are longer than the store can hold.

    Examples:
        ```python
        properties = waltz.table.PartitionProperties(format="table", max_key_bytes=100)
        async with client.table(0, properties=properties) as table:
            try:
                await table.put(bytes(101), b"value")
            except waltz.table.KeyTooLongError as error:
                print(error)
        ```
    """


class TimestampError(TableError, ValueError):
    """A timestamp is not positive, or further ahead than the partition allows.

    A given timestamp is compared with the clock of the process; the clock with the newest row and with ZooKeeper.

    Examples:
        ```python
        tomorrow_ms = (int(time.time()) + 86_400) * 1000
        try:
            await table.put(b"key", b"value", timestamp_ms=tomorrow_ms)
        except waltz.table.TimestampError as error:
            print("it would win over all that is written until then:", error)
        ```
    """


class ViewGapError(StoreError):
    """Changes do not begin where the store ends; nothing was applied."""


class VersionConflict(TableError):  # the name says what happened
    """The row has another version than a conditional write expects; nothing was written.

    Examples:
        ```python
        try:
            await table.put_if(b"alice", b"200", version=None)  # if there is no row yet
        except waltz.table.VersionConflict as error:
            print("somebody was faster:", error)
        ```
    """


class LeaseHeldError(TableError):
    """Somebody else has the lease, or had it a moment ago.

    Examples:
        ```python
        await table.acquire(b"mailer", "process-1", duration_s=30)
        try:
            await table.acquire(b"mailer", "process-2", duration_s=30, timeout_s=0.1)
        except waltz.table.LeaseHeldError as error:
            print(error.holder)
        ```
    """

    def __init__(self, holder: str, wait_s: float) -> None:
        super().__init__(f"the lease is held by {holder!r}; if it is not renewed, it ends in {wait_s:.1f} s")
        self.holder = holder
        self.wait_s = wait_s
        """After so many seconds without a renewal the lease can be granted, in seconds."""


class LeaseLostError(TableError):
    """A lease has ended, or may have: it was not renewed in time, or somebody has it in a later term.

    Examples:
        ```python
        lease = await table.acquire(b"mailer", "process-1", duration_s=30)
        await table.acquire(b"mailer", "process-1", duration_s=30)  # the process has begun again
        try:
            await table.renew(lease)
        except waltz.table.LeaseLostError as error:
            print("stop:", error)
        ```
    """


class CursorConflict(TableError):  # the name says what happened
    """Another process has moved a deprecated named cursor since it was read; the cursor was left unchanged.

    Positions in ZooKeeper, which replace cursors, raise ``PositionConflictError``.

    Examples:
        ```python
        import warnings

        with warnings.catch_warnings(action="ignore"):
            one, other = waltz.table.NamedCursor(client, "mails", 0), waltz.table.NamedCursor(client, "mails", 0)
        for cursor in (one, other):
            await cursor.read()
        await one.advance(1)
        try:
            await other.advance(2)
        except waltz.table.CursorConflict as error:
            print(error)  # stop: somebody else does the work
        ```
    """


class ViewUnavailableError(TableError):
    """No view node answers for a partition, or none has applied what the call demands.

    Examples:
        ```python
        try:
            async with client.table(0, view="served", timeout_s=0.2) as table:
                await table.get([b"alice"])
        except waltz.table.ViewUnavailableError as error:
            print("start a view node, or use a view of this process:", error)
        ```
    """
