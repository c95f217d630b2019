"""The plain face for threads and for values that a serializer turns into bytes.

Made of ``waltz/client/plain/values.py`` by ``make twins``: change that module, not this one.
"""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from waltz.blocking.feeds import BatchFeed, TransactionFeed
from waltz.blocking.plain import PlainClient
from waltz.client.arguments import APPEND_TIMEOUT_S
from waltz.client.builder import Append, serialized
from waltz.client.decisions import Basis, serialized_choice
from waltz.client.plain.client import Locks
from waltz.common.records import Record
from waltz.common.serializers import Serializer

T = TypeVar("T")


class ValueClient(Generic[T]):
    """Made by ``client.with_serializer(serializer)``. Errors of the serializer are raised before anything is sent.

    Examples:
        ```python
        orders = client.with_serializer(waltz.JsonSerializer())
        transaction_id = orders.append(0, {"customer": "alice", "amount": 3})
        for transaction in client.feed(0, after=transaction_id - 1, until=transaction_id):
            print(orders.value(transaction))
        ```
    """

    __slots__ = ("_client", "_serializer")

    def __init__(self, client: PlainClient, serializer: Serializer[T]) -> None:
        self._client = client
        self._serializer = serializer

    def value(self, record: Record) -> T:
        """The value of ``record``; raises the errors of the serializer."""
        return self._serializer.deserialize(record.data)

    def append(
        self,
        partition_id: int,
        value: T,
        *,
        header: int = 0,
        write_locks: Locks = (),
        read_locks: Locks = (),
        append_locks: Locks = (),
        high_water_mark: int | None = None,
        consistency: str | None = None,
        timeout_s: float = APPEND_TIMEOUT_S,
    ) -> int:
        """Like ``append`` of the client."""
        return self._client.append(
            partition_id,
            self._serializer.serialize(value),
            header=header,
            write_locks=write_locks,
            read_locks=read_locks,
            append_locks=append_locks,
            high_water_mark=high_water_mark,
            consistency=consistency,
            timeout_s=timeout_s,
        )

    def append_many(
        self,
        partition_id: int,
        items: Iterable[T | Append[T]],
        *,
        high_water_mark: int | None = None,
        consistency: str | None = None,
        timeout_s: float = APPEND_TIMEOUT_S,
    ) -> list[int]:
        """Like ``append_many`` of the client, for values and for ``Append`` with values."""
        made = [serialized(item, self._serializer) for item in items]
        return self._client.append_many(
            partition_id, made, high_water_mark=high_water_mark, consistency=consistency, timeout_s=timeout_s
        )

    def transact(
        self,
        partition_id: int,
        decide: Callable[[Basis], T | Append[T] | None],
        *,
        feed: TransactionFeed | BatchFeed | None = None,
        reads_log: bool = False,
        timeout_s: float = APPEND_TIMEOUT_S,
        max_attempts: int | None = None,
    ) -> int | None:
        """Like ``transact`` of the client: ``decide`` returns a value, an ``Append`` with one, or ``None``."""
        return self._client.transact(
            partition_id,
            lambda basis: serialized_choice(decide(basis), self._serializer),
            feed=feed,
            reads_log=reads_log,
            timeout_s=timeout_s,
            max_attempts=max_attempts,
        )
