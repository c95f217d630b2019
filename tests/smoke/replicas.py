"""The committed part of a log as the storages hold it, read from all of them and compared.

As every bulk reader (rule S6) it reads a replica only while the metadata list it in the current session: one that has
been away may hold a tail that was never committed, until it joins again and the tail is cut.
"""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Sequence

from waltz.common.cluster.replicas import read_replicas
from waltz.common.config.schemas import CliConfig, load
from waltz.common.errors import ConnectFailedError, WaltzError
from waltz.common.ids import Endpoint
from waltz.common.net.tls import client_context
from waltz.common.records import Record
from waltz.common.zk.store_admin import read_store_params
from waltz.local.cluster import LocalCluster
from waltz.local.layout import NODE_HOST, ROOT, Node
from waltz.storage.remote.admin_client import StorageAdminClient

CHUNK = 1000
POLL_INTERVAL_S = 0.1
TIMEOUT_S = 60.0


class ReplicasDifferError(AssertionError):
    """The storages do not hold the same, or one of them does not catch up."""


class Replicas:
    """Connections to the administration ports of storages, by default all; an asynchronous context manager."""

    def __init__(self, cluster: LocalCluster, storages: Sequence[Node] | None = None) -> None:
        self._cluster = cluster
        self._storages = cluster.layout.storages if storages is None else storages
        self._open = contextlib.AsyncExitStack()
        self._clients: dict[str, StorageAdminClient] = {}

    async def __aenter__(self) -> "Replicas":
        async with self._open:
            tls = client_context(load(self._cluster.layout.cli_config_path, CliConfig).tls)
            self._zookeeper = await self._cluster.zookeeper()
            self._open.push_async_callback(self._zookeeper.close)
            params = await read_store_params(self._zookeeper, ROOT)
            deadline_s = asyncio.get_running_loop().time() + TIMEOUT_S
            for node in self._storages:
                while node.name not in self._clients:
                    try:
                        self._clients[node.name] = await StorageAdminClient.connect(
                            Endpoint(NODE_HOST, node.admin_port),
                            cluster_key=params.key,
                            partition_count=params.partition_count,
                            tls=tls,
                            timeout_s=TIMEOUT_S,
                        )
                    except ConnectFailedError:  # it may just have been started
                        if asyncio.get_running_loop().time() > deadline_s:
                            raise
                        await asyncio.sleep(POLL_INTERVAL_S)
                self._open.push_async_callback(self._clients[node.name].close)
            self._open = self._open.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    async def committed(
        self, partition_id: int, high_water_mark: int, timeout_s: float = 60
    ) -> AsyncIterator[list[Record]]:
        """The records up to ``high_water_mark``, which every storage must come to hold within ``timeout_s``.

        Raises :class:`ReplicasDifferError`.
        """
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        while len(members := await self._members(partition_id)) < len(self._clients):
            if asyncio.get_running_loop().time() > deadline_s:
                raise ReplicasDifferError(f"partition {partition_id}: only {sorted(members)} take part")
            await asyncio.sleep(POLL_INTERVAL_S)
        first = 0
        while first <= high_water_mark:
            count = min(CHUNK, high_water_mark + 1 - first)
            copies = await asyncio.gather(
                *(self._range(name, partition_id, first, count, deadline_s) for name in self._clients)
            )
            for name, copy in zip(self._clients, copies, strict=True):
                _compare(f"{name}, partition {partition_id}", copy, copies[0])
            yield copies[0]
            first += count

    async def holds(self, storage: str, partition_id: int, transaction_id: int) -> bool:
        """Whether a storage takes part and has the record, which is known to be committed."""
        return storage in await self._members(partition_id) and bool(
            await self._clients[storage].records(partition_id, transaction_id, 1)
        )

    async def _members(self, partition_id: int) -> set[str]:
        """The storages of the current session. What they hold up to a mark that is committed already is right."""
        choice = (await read_replicas(self._zookeeper, ROOT, [partition_id])).choose(partition_id)
        admins = {source.admin for source in choice.sources}
        nodes = self._cluster.layout.storages
        return {node.name for node in nodes if Endpoint(NODE_HOST, node.admin_port) in admins}

    async def _range(self, storage: str, partition_id: int, first: int, count: int, deadline_s: float) -> list[Record]:
        records: list[Record] = []
        while len(records) < count:
            try:
                more = await self._clients[storage].records(partition_id, first + len(records), count - len(records))
            except WaltzError as error:
                raise ReplicasDifferError(f"{storage} cannot be read: {error}") from error
            records += more
            if not more:
                if asyncio.get_running_loop().time() > deadline_s:
                    raise ReplicasDifferError(
                        f"{storage} has no transaction {first + len(records)} of partition {partition_id}"
                    )
                await asyncio.sleep(POLL_INTERVAL_S)
        return records


async def until_all_hold(cluster: LocalCluster, partition_id: int, high_water_mark: int) -> None:
    """Return when every storage, also one that was just started again, takes part and holds what is committed."""
    async with Replicas(cluster) as replicas:
        async for _ in replicas.committed(partition_id, high_water_mark):
            pass


def _compare(what: str, copy: Sequence[Record], first_copy: Sequence[Record]) -> None:
    if copy != first_copy:
        for mine, theirs in itertools.zip_longest(copy, first_copy):
            if mine != theirs:
                raise ReplicasDifferError(f"{what} has {mine!r} where the first storage has {theirs!r}")
