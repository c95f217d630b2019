"""A cluster that never changes."""

import itertools
from collections.abc import Iterable, Mapping, Sequence

from waltz.client.engine.environment import Cluster, Directory
from waltz.client.mock.nodes import MockNodes
from waltz.common.cluster.managed import ManagedClient
from waltz.common.ids import Endpoint
from waltz.common.zk.znodes import PartitionGeneration

_ROOT = "/mock"
_client_ids = itertools.count()


class FixedCluster(Cluster):
    """Its members get the owners of the partitions when they join, and no later news."""

    def __init__(
        self,
        name: str,
        partition_count: int,
        endpoints: Mapping[Endpoint, Sequence[PartitionGeneration]],
        *,
        client_ids: Iterable[int] = (),
        nodes: MockNodes | None = None,
    ) -> None:
        """``client_ids`` are those of its first members; others have ids that are unique in this process.

        Clusters with the same ``nodes`` are one cluster.
        """
        self._name = name
        self._partition_count = partition_count
        self._endpoints = {endpoint: list(partitions) for endpoint, partitions in endpoints.items()}
        self._client_ids = itertools.chain(client_ids, _client_ids)
        self._nodes = nodes or MockNodes()
        self._session = self._nodes.session()

    @property
    def directory(self) -> Directory:
        return Directory(self._session, _ROOT)

    async def key(self) -> str:
        return self._nodes.key

    async def join(self, member: ManagedClient) -> None:
        member.cluster_joined(self._name, next(self._client_ids), self._partition_count)
        member.set_endpoints(self._endpoints)

    async def leave(self, member: ManagedClient) -> None:
        pass

    async def close(self) -> None:
        await self._session.close()
