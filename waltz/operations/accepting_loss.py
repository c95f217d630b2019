"""Continues a partition with the remaining replicas after the permanent loss of a majority.

The decision is made under a fence: a store session number that no server has, and that every remaining storage has
seen. So no former owner can write. The metadata are written by compare-and-set, so no server can begin a session in
between.
"""

import contextlib
from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from waltz.common.cluster.handle import ClusterHandle
from waltz.common.errors import WaltzError
from waltz.common.ids import Endpoint
from waltz.common.wire.structures import SessionInfo
from waltz.common.zk import store_admin
from waltz.common.zk.client import BadVersionError, NoNodeError
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.znodes import PartitionMetadata
from waltz.operations.lost_replicas import Acceptance, Held, LossRefused, accept_loss, describe
from waltz.operations.replica_moves import ReplicaMove
from waltz.operations.storages import TIMEOUT_S, connection
from waltz.storage.remote.client import StorageClient


class ReplicaClient(Protocol):
    """The part of a connection to the data port of a storage that is used here."""

    async def last_session_info(self, session_id: int, partition_id: int, *, timeout_s: float) -> SessionInfo: ...

    async def max_transaction_id(self, session_id: int, partition_id: int, *, timeout_s: float) -> int: ...

    async def truncate(self, session_id: int, partition_id: int, transaction_id: int, *, timeout_s: float) -> int: ...


Connect = Callable[[str], AbstractAsyncContextManager[ReplicaClient]]
"""A function that opens a connection to a storage, given its connect string; raises ``WaltzError``."""


class Finding(NamedTuple):
    """A possible decision."""

    acceptance: Acceptance
    lines: list[str]
    """The decision as text, for operators."""


class LossAcceptance:
    """The loss of some replicas of one partition."""

    def __init__(
        self, cluster: ClusterHandle, partition_id: int, lost: Collection[str], connect: Connect | None = None
    ) -> None:
        """``lost`` are the connect strings of the permanently lost storages."""
        self._cluster = cluster
        self._partition_id = partition_id
        self._lost = frozenset(lost)
        self._connect = connect or self._connect_to_data_port
        self._path = ClusterPaths.of(cluster.root).partition(partition_id)

    async def find(self) -> Finding:
        """Find the decision for the present state. Nothing is changed.

        The storages are asked under the store session number in the metadata. A session that still runs under an older
        number ends by that. Raises ``WaltzError``.
        """
        return await self._find((await self._read())[0])

    async def apply(self, agreed: Acceptance) -> None:
        """Carry out a decision after the operator's consent.

        Raises:
            LossRefused: The replicas have changed, or a server has begun a store session.
            WaltzError: ZooKeeper or a storage failed. Metadata or assignments may not be written yet: find the decision
                again.
        """
        metadata, version = await self._read()
        metadata = metadata._replace(session_id=metadata.session_id + 1)
        version = await self._write(metadata, version)
        acceptance = (await self._find(metadata)).acceptance
        if acceptance != agreed:
            raise LossRefused(
                "its replicas or the metadata have changed since the decision was shown: repeat the command"
            )
        version = await self._write(metadata, version)  # no session may begin before all storages are fenced
        for storage, mark in acceptance.truncations.items():
            async with self._connect(storage) as client:
                await client.last_session_info(metadata.session_id, self._partition_id, timeout_s=TIMEOUT_S)
                await client.truncate(metadata.session_id, self._partition_id, mark, timeout_s=TIMEOUT_S)
        await self._write(metadata._replace(replicas=dict(acceptance.states)), version)
        # Servers that wait for the lost storages start again when the assignment changes.
        zookeeper, root, _ = self._cluster
        await store_admin.give_up_replicas(zookeeper, root, self._partition_id, self._lost)
        await self._forget_move()

    async def _forget_move(self) -> None:
        """Remove the record of a move from or to a lost storage, which cannot be finished."""
        path = ClusterPaths.of(self._cluster.root).replica_move(self._partition_id)
        with contextlib.suppress(NoNodeError):
            move = ReplicaMove.decode((await self._cluster.zookeeper.get(path))[0], path)
            if not self._lost.isdisjoint(move):
                await self._cluster.zookeeper.delete(path)

    async def _read(self) -> tuple[PartitionMetadata, int]:
        await store_admin.sync_cluster(self._cluster.zookeeper, self._cluster.root)
        try:
            data, stat = await self._cluster.zookeeper.get(self._path)
        except NoNodeError:
            raise LossRefused("it never had a store session") from None
        return PartitionMetadata.decode(data, self._path), stat.version

    async def _write(self, metadata: PartitionMetadata, version: int) -> int:
        try:
            return (await self._cluster.zookeeper.set(self._path, metadata.encode(), version)).version
        except BadVersionError:
            raise LossRefused("a server has begun a store session meanwhile: repeat the command") from None

    async def _find(self, metadata: PartitionMetadata) -> Finding:
        held: dict[str, Held] = {}
        silent: dict[str, str] = {}
        for replica_id, state in sorted(metadata.replicas.items()):
            storage = replica_id.connect_string
            try:
                async with self._connect(storage) as client:
                    ids = (metadata.session_id, self._partition_id)
                    info = await client.last_session_info(*ids, timeout_s=TIMEOUT_S)
                    maximum = await client.max_transaction_id(*ids, timeout_s=TIMEOUT_S)
                held[storage] = Held(state, info.session_id, info.low_water_mark, maximum)
            except WaltzError as error:
                silent[storage] = str(error)
        acceptance = accept_loss(metadata, held, silent, self._lost)
        return Finding(acceptance, describe(acceptance, held, self._lost, self._partition_id))

    def _connect_to_data_port(self, storage: str) -> AbstractAsyncContextManager[ReplicaClient]:
        return connection(StorageClient, self._cluster, Endpoint.parse(storage))
