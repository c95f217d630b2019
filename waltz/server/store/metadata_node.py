"""The znode with the metadata of a partition: the begin of a session, and compare-and-set."""

import contextlib

from waltz.common.zk.client import BadVersionError, NodeExistsError, NoNodeError, ZooKeeper
from waltz.common.zk.znodes import EMPTY_PARTITION_METADATA, PartitionMetadata
from waltz.server.store.interface import SupersededError

BEGIN_ATTEMPTS = 5


class MetadataNode:
    """The node. Every method raises ``ZooKeeperError`` when ZooKeeper fails, and ``ProtocolError`` for an undecodable
    value."""

    def __init__(self, zookeeper: ZooKeeper, path: str) -> None:
        self._zookeeper = zookeeper
        self.path = path

    async def read(self) -> tuple[PartitionMetadata, int]:
        """Value and version."""
        data, stat = await self._zookeeper.get(self.path)
        return PartitionMetadata.decode(data, self.path), stat.version

    async def write(self, metadata: PartitionMetadata, version: int) -> int:
        """Compare-and-set; the new version."""
        return (await self._zookeeper.set(self.path, metadata.encode(), version)).version

    async def begin_session(self, generation: int) -> tuple[PartitionMetadata, int]:
        """Take the next session id for an owner of this generation. The first session of a partition creates the node.

        The states of the replicas, which describe the last recovered session, stay unchanged. Session ids of failed
        attempts are never used again. Raises :class:`SupersededError` when a newer generation has taken a session id.
        """
        for _ in range(BEGIN_ATTEMPTS):
            stored, version = await self._read_or_create()
            if stored.generation > generation:
                raise SupersededError(
                    f"generation {stored.generation} has opened the partition, this server has generation {generation}"
                )
            metadata = PartitionMetadata(generation, stored.session_id + 1, stored.replicas)
            # Another server, or an ending session of this server, may have written in between.
            with contextlib.suppress(BadVersionError):
                return metadata, await self.write(metadata, version)
        raise SupersededError(f"{self.path} was changed before each write")

    async def _read_or_create(self) -> tuple[PartitionMetadata, int]:
        try:
            return await self.read()
        except NoNodeError:
            with contextlib.suppress(NodeExistsError):
                await self._zookeeper.create(self.path, EMPTY_PARTITION_METADATA.encode())
            return await self.read()
