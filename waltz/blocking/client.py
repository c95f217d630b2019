"""The client that ``waltz.blocking.connect`` makes: the plain face for threads, values, databases and tables."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar, Unpack, overload

from waltz import asynchronous
from waltz.blocking.plain import PlainClient
from waltz.blocking.values import ValueClient
from waltz.client.arguments import APPEND_TIMEOUT_S
from waltz.client.configuration import ClientSettings, Token
from waltz.client.databases.batches import MAX_BATCH
from waltz.client.databases.kinds import Connection, Database
from waltz.client.engine.environment import Config
from waltz.client.events import OnEvent
from waltz.client.options import ClientOptions
from waltz.client.plain.client import MAX_IN_FLIGHT
from waltz.client.plain.to_database import THREADS
from waltz.client.positions.interface import PositionStore
from waltz.client.transaction import Transaction
from waltz.common.serializers import Serializer

if TYPE_CHECKING:
    from waltz.table.face.blocking import BlockingCursor, BlockingTable
    from waltz.table.face.blocking_several import BlockingPartitionedTable
    from waltz.table.properties import PartitionProperties
    from waltz.table.served.blocking import BlockingServedTable

C = TypeVar("C", bound=Connection)
T = TypeVar("T")


def connect(
    config: Config = None,
    *,
    max_in_flight: int = MAX_IN_FLIGHT,
    session_write: bool | None = None,
    exclusive_session: bool | None = None,
    options: ClientOptions | None = None,
    on_event: OnEvent | None = None,
    token: Token | None = None,
    **settings: Unpack[ClientSettings],
) -> "Client":
    """A client, to be opened with ``with``; the arguments are those of :func:`waltz.connect`.

    Examples:
        ```python
        with waltz.blocking.connect(cluster) as client:
            transaction_id = client.append(0, b"hello")
        ```
    """
    return Client(
        asynchronous.connect(
            config,
            max_in_flight=max_in_flight,
            session_write=session_write,
            exclusive_session=exclusive_session,
            options=options,
            on_event=on_event,
            token=token,
            **settings,
        )
    )


class Client(PlainClient):
    """The calls of :class:`waltz.Client`, each blocking until it is done, with the same errors.

    Examples:
        ```python
        transaction_id = client.append(0, b"paid", append_locks=[waltz.PartitionLocalLock("account", "alice")])
        for transaction in client.feed(0, after=-1, until=transaction_id):
            print(transaction.transaction_id, transaction.data)
        ```
    """

    _client: asynchronous.Client

    def __init__(self, client: asynchronous.Client) -> None:
        super().__init__(client)

    def with_serializer(self, serializer: Serializer[T]) -> ValueClient[T]:
        """This client for values that ``serializer`` turns into bytes and back; cheap enough for a single call."""
        return ValueClient(self, serializer)

    def apply_to_database(
        self,
        database: Database[C],
        apply: Callable[[Transaction, bytes, C], None],
        *,
        partition_ids: Collection[int] | None = None,
        follow: bool = True,
        max_batch: int = MAX_BATCH,
        threads: int = THREADS,
    ) -> None:
        """Have ``apply(transaction, data, connection)`` change a database for each transaction: exactly once.

        Like ``apply_to_database`` of :class:`waltz.Client`: one database transaction applies up to ``max_batch``
        waiting transactions, and ``threads`` partitions are applied side by side. With ``follow`` the call never
        returns; otherwise it returns when all transactions are applied that were committed at its begin.

        Raises the errors of ``apply``, after applying everything before that transaction (another call continues
        there), ``StoredMarkError`` and ``ValueError``.
        """
        self.run(
            self._client.apply_to_database(
                database,
                apply,
                partition_ids=partition_ids,
                follow=follow,
                max_batch=max_batch,
                threads=threads,
            )
        )

    @overload
    def table(
        self,
        partition_id: int,
        *,
        store: str | None = None,
        directory: str | os.PathLike[str] | None = None,
        properties: "PartitionProperties | None" = None,
        snapshots: str | None = None,
        view: Literal["local"] = "local",
    ) -> "BlockingTable": ...

    @overload
    def table(
        self,
        partition_id: int,
        *,
        view: Literal["served"],
        zone: str | None = None,
        timeout_s: float = APPEND_TIMEOUT_S,
    ) -> "BlockingServedTable": ...

    def table(
        self,
        partition_id: int,
        *,
        store: str | None = None,
        directory: str | os.PathLike[str] | None = None,
        properties: "PartitionProperties | None" = None,
        snapshots: str | None = None,
        view: Literal["local", "served"] = "local",
        zone: str | None = None,
        timeout_s: float | None = None,
    ) -> "BlockingTable | BlockingServedTable":
        """The table in a partition, to be opened with ``with`` while the client is open.

        The errors of :class:`waltz.Client` are raised by opening it.

        Args:
            partition_id: The partition, from 0.
            store: Name of the view's store; by default that of the partition's properties, or else ``memory``.
            directory: Directory of the store's files, for this table only.
            properties: Properties in place of the partition's properties in the cluster.
            snapshots: Address of an object store with saved snapshots, or ``cluster`` for the store of the cluster's
                archive. An empty view begins with the newest snapshot that fits.
            view: ``local``: the table has a view in this process. ``served``: view nodes serve it; the four arguments
                before have no place then, and the last two have one only then.
            zone: Prefer view nodes of this zone.
            timeout_s: Limit of each call that names no limit of its own, in seconds. Default: 30.

        Raises:
            PartitionNotFoundError: By the call: the cluster has no such partition, for a served table.
            TypeError: By the call: an argument has no place with this view.
        """
        if view == "served":
            from waltz.table.served.blocking import BlockingServedTable

            if any(each is not None for each in (store, directory, properties, snapshots)):
                raise TypeError("a served table has no store, directory, properties or snapshots in this process")
            limit_s = APPEND_TIMEOUT_S if timeout_s is None else timeout_s
            return BlockingServedTable(
                self, self._client.table(partition_id, view="served", zone=zone, timeout_s=limit_s)
            )
        if zone is not None or timeout_s is not None:
            raise TypeError('zone and timeout_s have a place only with view="served"')
        from waltz.table.face.blocking import BlockingTable  # imported only where tables are used

        path = None if directory is None else Path(directory)
        return BlockingTable(self, partition_id, properties, store=store, directory=path, snapshots=snapshots)

    def partitioned_table(
        self,
        partition_ids: Sequence[int],
        *,
        store: str | None = None,
        directory: str | os.PathLike[str] | None = None,
        properties: "PartitionProperties | None" = None,
        snapshots: str | None = None,
        view: Literal["local", "served"] = "local",
    ) -> "BlockingPartitionedTable":
        """One table in several partitions, like :class:`waltz.table.PartitionedTable`, to be opened with ``with``.

        ``snapshots`` is the address of an object store: empty views begin with saved snapshots. With
        ``view="served"`` view nodes serve it; raises ``TypeError`` for the arguments between then.
        """
        from waltz.table.face.blocking_several import BlockingPartitionedTable

        path = None if directory is None else Path(directory)
        if view == "served":
            if any(each is not None for each in (store, directory, properties, snapshots)):
                raise TypeError("a served table has no store, directory, properties or snapshots in this process")
            return BlockingPartitionedTable.of([self.table(each, view="served") for each in partition_ids])
        return BlockingPartitionedTable(
            self, partition_ids, properties, store=store, directory=path, snapshots=snapshots
        )

    def configure_table(self, partition_id: int, changes: Mapping[str, object]) -> "PartitionProperties":
        """Change properties of a partition, like :func:`waltz.table.configure`."""
        from waltz.table.face.configured import configure

        return self.run(configure(self._client, partition_id, changes))

    def named_cursor(self, group: str, partition_id: int) -> "BlockingCursor":
        """Deprecated, as :class:`waltz.table.NamedCursor` is; use :meth:`zookeeper_positions`."""
        from waltz.table.face.blocking import BlockingCursor
        from waltz.table.face.cursors import NamedCursor

        return BlockingCursor(NamedCursor(self._client, group, partition_id), self.run)

    def zookeeper_positions(self, group: str) -> PositionStore:
        """Positions in the cluster's ZooKeeper, for :meth:`consume`: :class:`waltz.ZooKeeperPositions`.

        Raises ``ValueError`` when the name of the group cannot be that of a node.
        """
        from waltz.table.face.positions import ZooKeeperPositions

        return ZooKeeperPositions(self._client, group)
