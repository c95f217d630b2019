"""The client that :func:`waltz.connect` makes: the plain one, and tables over it.

``waltz.client`` does not import tables, and tables import the client; this module stands above both.
"""

import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar, Unpack, overload

from waltz.client.arguments import APPEND_TIMEOUT_S, check_seconds
from waltz.client.configuration import ClientSettings, Token
from waltz.client.databases.batches import MAX_BATCH
from waltz.client.databases.kinds import Connection, Database
from waltz.client.engine.environment import Config
from waltz.client.errors import PartitionNotFoundError
from waltz.client.events import OnEvent
from waltz.client.options import ClientOptions
from waltz.client.plain import client as plain
from waltz.client.plain.client import MAX_IN_FLIGHT, environment_for
from waltz.client.plain.to_database import THREADS, apply_to_database
from waltz.client.plain.values import ValueClient
from waltz.client.transaction import Transaction
from waltz.common.net.tls import client_context, configured_token
from waltz.common.serializers import Serializer
from waltz.common.zk.client import ZooKeeper

if TYPE_CHECKING:
    from waltz.table.face.table import Table
    from waltz.table.properties import PartitionProperties
    from waltz.table.served.table import ServedTable

C = TypeVar("C", bound=Connection)
T = TypeVar("T")


def connect(
    config: Config = None,
    *,
    max_in_flight: int = MAX_IN_FLIGHT,
    session_write: bool | None = None,
    exclusive_session: bool | None = None,
    zookeeper: ZooKeeper | None = None,
    options: ClientOptions | None = None,
    on_event: OnEvent | None = None,
    token: Token | None = None,
    **settings: Unpack[ClientSettings],
) -> "Client":
    """A client of a cluster, to be opened with ``async with`` or ``await``.

    Environment variables (``WALTZ_CLUSTER_ROOT`` for ``cluster.root``) override a file, and ``settings`` override
    both.

    Args:
        config: The path of a configuration file, its content as a mapping, a ``ClientConfig``, or a mock driver. By
            default the file that ``WALTZ_CONFIG`` names, if there is one.
        max_in_flight: Maximum number of appends under way for each partition; ``client.maxConcurrentTransactions`` is
            ignored.
        session_write: Whether appends belong to write sessions; ``None``: as configured.
        exclusive_session: Whether they belong to sessions in which no other client may write.
        zookeeper: A connection to ZooKeeper to use, which is left open.
        options: Limits and times that are not in the configuration.
        on_event: Called with each :class:`~waltz.client.events.ClientEvent`, on the loop of the client; must not block.
        token: A bearer token in place of a certificate, the path of a file with one, or a function that gives one and
            may block. Files and functions are asked again in time before the token expires. Needs a trust store.
        settings: Attributes of a ``ClientConfig``.

    Raises:
        ConfigError: The configuration cannot be used.
        TypeError: There is no such argument.
        ZooKeeperUnreachableError: By opening: ZooKeeper does not answer.
        StoreAdminError: By opening: there is no such cluster.

    Examples:
        ```python
        async with waltz.connect(cluster) as client:
            transaction_id = await client.append(0, b"hello")
        ```
    """
    return Client(
        environment_for(
            config,
            max_in_flight=max_in_flight,
            session_write=session_write,
            exclusive_session=exclusive_session,
            zookeeper=zookeeper,
            options=options,
            on_event=on_event,
            token=token,
            settings=settings,
        )
    )


class Client(plain.Client):
    """The plain client, values, databases and tables.

    Examples:
        ```python
        transaction_id = await client.append(0, b"paid", append_locks=[waltz.PartitionLocalLock("account", "alice")])
        async for transaction in client.feed(0, after=-1, until=transaction_id):
            print(transaction.transaction_id, transaction.data)
        ```
    """

    def with_serializer(self, serializer: Serializer[T]) -> ValueClient[T]:
        """This client for values that ``serializer`` turns into bytes and back; cheap enough for a single call."""
        return ValueClient(self, serializer)

    async def apply_to_database(
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

        As with :class:`waltz.DatabaseCallbacks`, which documents ``apply``, the high-water mark of each partition is
        stored by the database transaction that makes the changes. Database transactions that fail are repeated for
        ever, with growing delays.

        Args:
            database: The database, with its table of marks.
            apply: Changes the database; called on threads.
            partition_ids: The partitions; by default all.
            follow: Apply later transactions, too, until the call is cancelled; otherwise the call ends when all
                transactions are applied that were committed at its begin.
            max_batch: Maximum number of transactions that one database transaction applies.
            threads: Number of partitions that are applied side by side.

        Raises:
            StoredMarkError: The database lacks transactions that it had applied.
            ValueError: ``max_batch`` or ``threads`` is less than 1.

        Raises the errors of ``apply``, after applying everything before that transaction (another call continues
        there), and the errors of :meth:`feed`.
        """
        await apply_to_database(
            self,
            database,
            apply,
            partition_ids=partition_ids,
            follow=follow,
            max_batch=max_batch,
            threads=threads,
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
    ) -> "Table": ...

    @overload
    def table(
        self,
        partition_id: int,
        *,
        view: Literal["served"],
        zone: str | None = None,
        timeout_s: float = APPEND_TIMEOUT_S,
    ) -> "ServedTable": ...

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
    ) -> "Table | ServedTable":
        """The table in a partition, to be opened with ``async with`` while the client is open.

        The errors are raised by opening it.

        Args:
            partition_id: The partition, from 0.
            store: Name of the view's store; by default that of the partition's properties, or else ``memory``.
            directory: Directory of the store's files, for this table only.
            properties: Properties in place of the partition's properties in the cluster.
            snapshots: Address of an object store with saved snapshots, or ``cluster`` for the store of the cluster's
                archive. An empty view begins with the newest snapshot that fits, instead of the begin of the log.
            view: ``local``: the table has a view in this process. ``served``: it is read from view nodes, and written
                through them; the first four arguments have no place then, and the last two have one only then.
            zone: Prefer view nodes of this zone.
            timeout_s: Limit of each call that names no limit of its own, in seconds. Default: 30.

        Raises:
            PropertiesError: The partition is no table.
            ConfigError: The address cannot be used, or a package is missing.
            StoreError: The store cannot be used.
            CodecUnavailableError: A codec is not installed.
            ZooKeeperError: The properties cannot be read.
            ConfigError: The library for view nodes is not installed, or the files for TLS cannot be used.
            PartitionNotFoundError: The cluster has no such partition.
            TypeError: By the call: an argument has no place with this view.
        """
        if view == "served":
            if any(each is not None for each in (store, directory, properties, snapshots)):
                raise TypeError("a served table has no store, directory, properties or snapshots in this process")
            return self._served_table(partition_id, zone, APPEND_TIMEOUT_S if timeout_s is None else timeout_s)
        if zone is not None or timeout_s is not None:
            raise TypeError('zone and timeout_s have a place only with view="served"')
        from waltz.table.face.table import Table  # imported only where tables are used

        return Table(
            self,
            partition_id,
            properties,
            store=store,
            directory=None if directory is None else Path(directory),
            snapshots=snapshots,
        )

    def _served_table(self, partition_id: int, zone: str | None, timeout_s: float) -> "ServedTable":
        from waltz.table.served.calls import Ways  # imported only where served tables are used
        from waltz.table.served.table import ServedTable

        if not 0 <= partition_id < self.partition_count:
            raise PartitionNotFoundError(partition_id, self.partition_count)
        check_seconds(timeout_s, "timeout_s")
        tls = self._environment.config.tls
        token = self._environment.token or configured_token(tls)
        ways = Ways(client_context(tls, token), token, zone)
        stands_in = self._environment.serves_tables
        return ServedTable(self, partition_id, ways, timeout_s=timeout_s, stands_in=stands_in)
