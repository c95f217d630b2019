"""The client that :func:`waltz.connect` makes: the plain one, and tables over it.

``waltz.client`` knows nothing of tables, and tables know the client; so what has both stands above them.
"""

import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, Unpack

from waltz.client.configuration import ClientSettings
from waltz.client.database_batches import MAX_BATCH
from waltz.client.databases import Connection, Database
from waltz.client.engine.environment import Config
from waltz.client.events import OnEvent
from waltz.client.options import ClientOptions
from waltz.client.plain import client as plain
from waltz.client.plain.client import MAX_IN_FLIGHT, environment_for
from waltz.client.plain.to_database import THREADS, apply_to_database
from waltz.client.plain.values import ValueClient
from waltz.client.transaction import Transaction
from waltz.common.serializers import Serializer
from waltz.common.zk.client import ZooKeeper

if TYPE_CHECKING:
    from waltz.table.face.table import Table
    from waltz.table.properties import PartitionProperties

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
    **settings: Unpack[ClientSettings],
) -> "Client":
    """A client of the cluster that ``config`` describes, to be opened with ``async with`` or ``await``.

    ``config`` is the path of a configuration file, its content as a mapping, a ``ClientConfig``, or a mock driver.
    Without it that is the file that ``WALTZ_CONFIG`` names, if there is one. Environment variables
    (``WALTZ_CLUSTER_ROOT`` for ``cluster.root``) count more than a file, and ``settings``, the attributes of a
    ``ClientConfig`` as keyword arguments, count more than everything else.

    At most ``max_in_flight`` appends of each partition are under way; ``client.maxConcurrentTransactions`` does not
    count. With ``session_write`` appends belong to write sessions, and with ``exclusive_session``, too, to sessions in
    which nobody else may write; ``None`` leaves that to the configuration. ``zookeeper`` is used if given, and left
    open. ``options`` are limits and times that the configuration does not name. ``on_event`` is called with each
    :class:`~waltz.client.events.ClientEvent`, on the loop of the client; it must not block.

    Raises ``ConfigError``, ``TypeError`` for unknown arguments, and when it is opened ``ZooKeeperUnreachableError`` and
    ``StoreAdminError`` (there is no such cluster).

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
        """This client for values that ``serializer`` turns into bytes and back; it may be made for a single call."""
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

        As with :class:`~waltz.client.database.DatabaseCallbacks`, which says what ``apply`` may do, the high-water mark
        of each partition is stored by the database transaction that makes the changes, of up to ``max_batch``
        transactions that wait. ``partition_ids`` are all by default; as many of them as there are ``threads`` are
        applied at a time. Goes on with what will be committed until it is cancelled; without
        ``follow`` it ends when everything is applied that was committed at the call.

        Errors of the database are tried again for ever, with growing delays. Raises what ``apply`` raises, when
        everything before that transaction is applied: calling it again goes on there. Raises ``StoredMarkError`` when
        the database does not know of transactions that it had applied, ``ValueError`` when ``max_batch`` or
        ``threads`` is less than 1, and as :meth:`feed`.
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

    def table(
        self,
        partition_id: int,
        *,
        store: str | None = None,
        directory: str | os.PathLike[str] | None = None,
        properties: "PartitionProperties | None" = None,
    ) -> "Table":
        """The table in a partition, to be opened with ``async with`` while the client is open.

        ``store`` is the name of one, by default that of the partition's properties, or else ``memory``; ``directory``
        is where it keeps its files, of this table only. ``properties`` count instead of those that the cluster has for
        the partition. Opening raises ``PropertiesError`` for a partition that is no table, ``StoreError`` when the
        store cannot be used, ``CodecUnavailableError``, and ``ZooKeeperError``.
        """
        from waltz.table.face.table import Table  # for those only who use tables

        return Table(
            self, partition_id, properties, store=store, directory=None if directory is None else Path(directory)
        )
