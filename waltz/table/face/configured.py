"""The properties of an open table: those of its partition's node, with their changes, or given ones."""

import asyncio
import logging
from collections.abc import Mapping

from waltz.client.errors import ClientClosedError
from waltz.client.plain.client import Client
from waltz.common.partition_ids import check_partition
from waltz.common.tasks import owned
from waltz.common.zk.client import ZooKeeperError
from waltz.table.ages import NO_AGES, Ages
from waltz.table.codecs import check_available
from waltz.table.errors import PropertiesError, TableError
from waltz.table.properties import PartitionProperties, change_properties, read_properties

logger = logging.getLogger(__name__)

RETRY_S = 1.0


async def configure(client: Client, partition_id: int, changes: Mapping[str, object]) -> PartitionProperties:
    """Change properties of a partition. Returns all of them.

    May be called whenever a program starts: without a change nothing is written, and concurrent changes of other
    properties stay.

    Args:
        client: An open client.
        partition_id: The partition, from 0.
        changes: New values by their keys; ``None`` resets a value to its default.

    Raises:
        PropertiesError: A value cannot be used.
        ZooKeeperError: After a ``ConnectionLossError`` the change may have been made, and can be made again.

    Examples:
        ```python
        await waltz.table.configure(client, 0, {"format": "table", "rowType": "zlib"})
        async with client.table(0) as table:
            await table.put(b"alice", b"100")
        ```
    """
    check_partition(partition_id, client.partition_count, PropertiesError)
    nodes, root = client.directory
    return (await change_properties(nodes, root, partition_id, changes)).properties


async def properties_of(client: Client, partition_id: int) -> PartitionProperties:
    """The properties of a partition.

    Raises:
        PropertiesError: They cannot be used.
        ZooKeeperError: They cannot be read.

    Examples:
        ```python
        properties = await waltz.table.properties_of(client, 0)
        print(properties.format, properties.codec, properties.disabled)
        ```
    """
    check_partition(partition_id, client.partition_count, PropertiesError)
    nodes, root = client.directory
    return (await read_properties(nodes, root, partition_id)).properties


def check_table(properties: PartitionProperties, partition_id: int) -> None:
    """Raise ``PropertiesError`` for a partition that is no table, ``CodecUnavailableError`` for a missing codec."""
    if properties.format != "table":
        raise PropertiesError(
            f"partition {partition_id} is not a table: its format is {properties.format}. If nobody else uses it, make "
            f'it one with waltz.table.configure(client, {partition_id}, {{"format": "table"}}), or on the command line '
            f"with waltz partition configure -p {partition_id} format=table"
        )
    check_available(properties.codec)


def check_enabled(properties: PartitionProperties, partition_id: int) -> None:
    """Raise ``PropertiesError`` for a partition that is disabled."""
    if properties.disabled:
        raise PropertiesError(
            f"partition {partition_id} is disabled: nothing is written until its property `disabled` is false"
        )


class Configured:
    """The present properties of a table."""

    def __init__(self, client: Client, partition_id: int, given: PartitionProperties | None) -> None:
        """``given`` properties stay unchanged; without them, those of the partition's node count."""
        self._client = client
        self._partition_id = partition_id
        self._given = given
        self._properties: PartitionProperties | None = None
        self._refused: TableError | None = None
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.ages: Ages = NO_AGES
        """Of rows; that very object if there are none."""
        if given is not None:
            check_table(given, partition_id)
            self._use(given)

    @property
    def properties(self) -> PartitionProperties:
        """The present properties. Raises ``TableError`` when the open table cannot continue with them."""
        if self._refused is not None:
            raise self._refused
        assert self._properties is not None, "it is open"
        return self._properties

    async def open(self) -> None:
        """Read the properties, and watch their node. Raises like :func:`properties_of` and :func:`check_table`."""
        if self._given is not None:
            return
        properties = await self._read()
        if properties.format != "table":  # it may have become a table just now, unseen by a ZooKeeper member that lags
            nodes, root = self._client.directory
            await nodes.sync(root)
            properties = await self._read()
        check_table(properties, self._partition_id)
        self._use(properties)
        self._task = owned(self._watch(), f"watch of the properties of partition {self._partition_id}", self._failed)

    async def close(self) -> None:
        """Watch no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _read(self) -> PartitionProperties:
        check_partition(self._partition_id, self._client.partition_count, PropertiesError)
        nodes, root = self._client.directory
        return (await read_properties(nodes, root, self._partition_id, self._changed.set)).properties

    def _use(self, properties: PartitionProperties) -> None:
        self._properties = properties
        self.ages = NO_AGES if properties.ages == NO_AGES else properties.ages  # compared by identity for every row

    async def _watch(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                properties = await self._read()
                check_table(properties, self._partition_id)
                self._check_same_view(properties)
            except TableError as error:
                self._refused = error
            except ClientClosedError:
                return
            except ZooKeeperError as error:
                logger.info("properties of partition %d cannot be read: %s", self._partition_id, error)
                await asyncio.sleep(RETRY_S)
                self._changed.set()
            else:
                self._refused = None
                self._use(properties)

    def _check_same_view(self, properties: PartitionProperties) -> None:
        present = self._properties
        if present is not None and properties.max_body_bytes != present.max_body_bytes:
            raise TableError(
                f"maxDecompressedSizeInBytes of partition {self._partition_id} has changed; open the table again, to "
                "have its view rebuilt"
            )

    def _failed(self, error: Exception) -> None:
        self._refused = TableError(f"the properties of partition {self._partition_id} are not watched: {error}")
