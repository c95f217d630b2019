"""Which nodes may still judge requests by access rules older than some.

A node says which rules it applies in an ephemeral znode, so a node without a ZooKeeper session says nothing. For a
storage there is its address in the tree. For a server there are its partitions: they are its own until another server
has opened a store session of them, since storages then refuse what the former owner writes. The assignment in
``serverDescriptors`` names the owner, and ``store/partition/P`` says whether that owner has opened its session.
"""

import asyncio
from collections.abc import Mapping

from waltz.common.acl.store import Place, read_applied
from waltz.common.partition_ids import named_partitions
from waltz.common.zk.client import ZooKeeper
from waltz.common.zk.store_admin import (
    read_connections,
    read_partition_assignment,
    read_partition_metadata,
    read_server_descriptors,
)
from waltz.common.zk.znodes import PartitionMetadata, ServerDescriptor

_AT_ONCE = 50


async def read_silent(zookeeper: ZooKeeper, root: str, applied: Mapping[str, Place]) -> list[str]:
    """Names of the live servers, and of the cluster's storages, that do not say which rules they apply."""
    servers = await read_server_descriptors(zookeeper, root)
    return await _silent(zookeeper, root, servers, applied)


async def _silent(
    zookeeper: ZooKeeper, root: str, servers: list[ServerDescriptor], applied: Mapping[str, Place]
) -> list[str]:
    storages = (await read_connections(zookeeper, root)).admin_ports
    expected = {f"server {server.endpoint}" for server in servers} | {f"storage {name}" for name in storages}
    return sorted(expected - applied.keys())


class LateNodes:
    """The nodes that are late with some rules, until there are none."""

    def __init__(self, zookeeper: ZooKeeper, root: str, place: Place) -> None:
        """``place`` is that of the rules, which this session has written or read."""
        self._zookeeper = zookeeper
        self._root = root
        self._place = place
        self._opened: dict[int, int] = {}
        """Generations whose owner has opened a store session, by partition."""

    async def find(self) -> list[str]:
        """A text for each late node. Raises ``WaltzError`` of ZooKeeper.

        Whoever is late at the first of these reads is found by it or by a later one: servers are read first, then what
        they apply, then the owners.
        """
        servers = await read_server_descriptors(self._zookeeper, self._root)
        applied = await read_applied(self._zookeeper, self._root)
        late = [
            f"{name} applies version {found.version}"
            for name, found in applied.items()
            if not found.covers(self._place)
        ]
        silent = await _silent(self._zookeeper, self._root, servers, applied)
        late += [f"{name} does not answer (down, or acl.enabled is not set)" for name in silent]
        return late or await self._former_owners({server.server_id: str(server.endpoint) for server in servers})

    async def _former_owners(self, servers: Mapping[int, str]) -> list[str]:
        assignment = await read_partition_assignment(self._zookeeper, self._root)
        late = []
        for server_id, owned in sorted(assignment.servers.items()):
            generations = dict(owned)
            if generations and server_id not in servers:
                late.append(
                    f"a server without a ZooKeeper session (down, or cut off from ZooKeeper), id {server_id}, owns "
                    f"{named_partitions(generations.keys())}"
                )
            elif waiting := await self._not_opened(generations):
                late.append(
                    f"server {servers[server_id]} has no store session yet at {named_partitions(waiting)}, where "
                    "another server may go on"
                )
        return late

    async def _not_opened(self, generations: Mapping[int, int]) -> list[int]:
        waiting = [each for each in sorted(generations) if self._opened.get(each) != generations[each]]
        for start in range(0, len(waiting), _AT_ONCE):
            group = waiting[start : start + _AT_ONCE]
            reads = (read_partition_metadata(self._zookeeper, self._root, each) for each in group)
            for partition_id, metadata in zip(group, await asyncio.gather(*reads), strict=True):
                if has_no_other_owner(metadata, generations[partition_id]):
                    self._opened[partition_id] = generations[partition_id]
        return [each for each in waiting if self._opened.get(each) != generations[each]]


def has_no_other_owner(metadata: PartitionMetadata | None, generation: int) -> bool:
    """Whether only the owner of this generation, or of a later one, can write to the partition. Pure.

    A store session has begun when its id is in the metadata, and is open, with all storages of a quorum refusing
    earlier ones, when a replica has that id.
    """
    if metadata is None or not metadata.replicas:
        return True  # nobody has ever opened a session
    is_open = any(state.session_id == metadata.session_id for state in metadata.replicas.values())
    return is_open and metadata.generation >= generation
