"""The transaction that an application fills in to be appended."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from waltz.client.engine.submission import AppendFields
from waltz.client.errors import ClientError
from waltz.client.locks import NO_LOCKS, PartitionLocalLock, lock_array
from waltz.common.serializers import Serializer

Data = bytes | bytearray | memoryview

if TYPE_CHECKING:
    from typing_extensions import (
        TypeVar as TypeVarWithDefault,
    )  # type checkers know it without an installation

    Value = TypeVarWithDefault("Value", covariant=True, default=Data)
else:
    Value = TypeVar("Value", covariant=True)
T = TypeVar("T")

_INT_MIN = -(1 << 31)
_INT_MAX = (1 << 31) - 1

_new_tuple = tuple.__new__  # the call behind a named tuple's constructor, at half its price


def checked_header(header: int) -> int:
    """``header``; raises ``TypeError`` for anything but an integer, and ``ValueError`` beyond 32 bits."""
    if not isinstance(header, int):
        raise TypeError(f"the header of a transaction must be an integer, not {type(header).__name__}")
    if not _INT_MIN <= header <= _INT_MAX:
        raise ValueError(f"the header of a transaction must fit into 32 bits, not {header}")
    return header


def checked_data(data: bytes | bytearray | memoryview) -> bytes:
    """``data`` as ``bytes``; raises ``TypeError`` for anything else."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"the data of a transaction must be bytes, not {type(data).__name__}")
    return bytes(data)


def append_fields(
    data: bytes | bytearray | memoryview,
    header: int,
    client_high_water_mark: int,
    write_locks: Iterable[PartitionLocalLock],
    read_locks: Iterable[PartitionLocalLock],
    append_locks: Iterable[PartitionLocalLock],
) -> AppendFields:
    """The fields of a transaction on the wire; raises ``TypeError`` and ``ValueError`` for wrong values."""
    return _new_tuple(
        AppendFields,
        (
            data if isinstance(data, bytes) else checked_data(data),
            header if type(header) is int and _INT_MIN <= header <= _INT_MAX else checked_header(header),
            client_high_water_mark,
            lock_array(write_locks) if write_locks != () else NO_LOCKS,
            lock_array(read_locks) if read_locks != () else NO_LOCKS,
            lock_array(append_locks) if append_locks != () else NO_LOCKS,
        ),
    )


@dataclass(frozen=True, slots=True)
class Append(Generic[Value]):
    """A transaction with more than its data. The data is bytes, or a value for the serializer in use.

    Examples:
        ```python
        orders = [waltz.Append(b"an order", header=1, append_locks=[lock]), waltz.Append(b"a remark")]
        first, second = await client.append_many(0, orders)
        ```
    """

    data: Value
    header: int = 0
    write_locks: Iterable[PartitionLocalLock] = ()
    read_locks: Iterable[PartitionLocalLock] = ()
    append_locks: Iterable[PartitionLocalLock] = ()


def serialized(item: T | Append[T], serializer: Serializer[T]) -> Append:
    """A transaction, or data alone, as a transaction whose data is bytes."""
    if isinstance(item, Append):
        data = serializer.serialize(item.data)
        return Append(data, item.header, item.write_locks, item.read_locks, item.append_locks)
    return Append(serializer.serialize(item))


def fields_of(append: Append, high_water_mark: int) -> AppendFields:
    """The fields of ``append`` on the wire; raises ``TypeError`` and ``ValueError`` for wrong values."""
    return append_fields(
        append.data, append.header, high_water_mark, append.write_locks, append.read_locks, append.append_locks
    )


class TransactionBuilder:
    """One attempt to append a transaction. It begins with header 0, no locks, no data. The last call of a setter wins.

    Examples:
        ```python
        class Deposit(waltz.TransactionContext):
            def partition_id(self, partition_count: int) -> int:
                return 0

            def execute(self, builder: waltz.TransactionBuilder) -> bool:
                builder.set_header(1)
                builder.set_write_locks([waltz.PartitionLocalLock("account", "alice")])
                builder.set_transaction_data({"account": "alice", "amount": 100}, waltz.JsonSerializer())
                return True  # False: nothing is appended


        await client.submit(Deposit())
        ```
    """

    __slots__ = (
        "_serializer",
        "append_lock_array",
        "client_high_water_mark",
        "data",
        "header",
        "read_lock_array",
        "write_lock_array",
    )

    def __init__(self, client_high_water_mark: int, serializer: Serializer[Any] | None = None) -> None:
        """``serializer`` is the client's, if it has one."""
        self._serializer = serializer
        self.client_high_water_mark = client_high_water_mark
        """Id of the transaction applied last when ``execute`` was called; what the locks are checked against."""
        self.header = 0
        self.data: bytes | None = None
        self.write_lock_array = self.read_lock_array = self.append_lock_array = NO_LOCKS

    def set_header(self, header: int) -> None:
        """Set the header, a signed number of 32 bits.

        Raises:
            TypeError: The header is not an integer.
            ValueError: The header does not fit into 32 bits.
        """
        self.header = checked_header(header)

    @overload
    def set_transaction_data(self, value: T, serializer: Serializer[T]) -> None: ...

    @overload
    def set_transaction_data(self, value: object) -> None: ...

    def set_transaction_data(self, value: Any, serializer: Serializer[Any] | None = None) -> None:
        """Set the data to ``value``, serialized by ``serializer`` or by the client's.

        Raises :class:`ClientError` when there is no serializer.
        """
        serializer = serializer or self._serializer
        if serializer is None:
            raise ClientError("neither set_transaction_data nor open_client was given a serializer")
        self.set_data(serializer.serialize(value))

    def set_data(self, data: bytes | bytearray | memoryview) -> None:
        """Set the data.

        Raises:
            TypeError: The data is not bytes.
        """
        self.data = data if isinstance(data, bytes) else checked_data(data)

    def set_write_locks(self, locks: Iterable[PartitionLocalLock]) -> None:
        """Refuse the append if one of these changed since the client's high-water mark; it changes them."""
        self.write_lock_array = lock_array(locks)

    def set_read_locks(self, locks: Iterable[PartitionLocalLock]) -> None:
        """Refuse the append if one of these changed since the client's high-water mark; they stay unchanged."""
        self.read_lock_array = lock_array(locks)

    def set_append_locks(self, locks: Iterable[PartitionLocalLock]) -> None:
        """This transaction changes these, without a check."""
        self.append_lock_array = lock_array(locks)

    def fields(self) -> AppendFields:
        """The filled-in fields.

        Raises:
            ClientError: There is no data.
        """
        data = self.data
        if data is None:
            raise ClientError("execute returned true without setting transaction data")
        return _new_tuple(
            AppendFields,
            (
                data,
                self.header,
                self.client_high_water_mark,
                self.write_lock_array,
                self.read_lock_array,
                self.append_lock_array,
            ),
        )
