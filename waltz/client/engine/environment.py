"""What an engine is opened in: the configuration, the cluster that it joins, and how it reaches the servers."""

import os
import random
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Self

from waltz.client.engine.links import Connector
from waltz.client.options import ClientOptions
from waltz.common.cluster.managed import ManagedClient
from waltz.common.cluster.manager import ClusterManager
from waltz.common.config import ClientConfig, from_mapping, load
from waltz.common.net.channel import connect
from waltz.common.zk.client import ZooKeeper
from waltz.common.zk.kazoo_client import connect_configured
from waltz.common.zk.store_admin import read_store_params

_CONNECT_TIMEOUT_S = 30.0


class Directory(NamedTuple):
    """Where a cluster keeps what it knows of itself."""

    nodes: ZooKeeper
    root: str


class Cluster(ABC):
    """Tells its members who they are, and which server owns which partition."""

    @property
    @abstractmethod
    def directory(self) -> Directory:
        """Of ZooKeeper, or what stands in for it; there as long as there are members."""

    @abstractmethod
    async def key(self) -> str:
        """Tells the logs of this cluster from those of every other that ever had its name; for members."""

    @abstractmethod
    async def join(self, member: ManagedClient) -> None:
        """Tell ``member`` of the cluster, before this returns and at every change."""

    @abstractmethod
    async def leave(self, member: ManagedClient) -> None:
        """Tell ``member`` nothing any more."""

    @abstractmethod
    async def close(self) -> None:
        """Close what the members share; called when all have left."""


class ZooKeeperCluster(Cluster):
    """The cluster that a configuration names; its members share one ZooKeeper session."""

    def __init__(self, config: ClientConfig, zookeeper: ZooKeeper | None = None) -> None:
        """``zookeeper`` is used if given, and left open."""
        self._config = config
        self._zookeeper = zookeeper
        self._own_zookeeper: ZooKeeper | None = None
        self._managers: dict[ManagedClient, ClusterManager] = {}

    @property
    def directory(self) -> Directory:
        return Directory(self._connected(), self._config.cluster_root)

    async def key(self) -> str:
        """Raises ``ZooKeeperError``, and ``StoreAdminError`` when the cluster is gone."""
        return str((await read_store_params(self._connected(), self._config.cluster_root)).key)

    def _connected(self) -> ZooKeeper:
        assert self._zookeeper is not None, "there are members"
        return self._zookeeper

    async def join(self, member: ManagedClient) -> None:
        """Raises ``ZooKeeperError``, and ``WaltzError`` when there is no such cluster."""
        if self._zookeeper is None:
            self._zookeeper = self._own_zookeeper = await connect_configured(
                self._config, connect_timeout_s=_CONNECT_TIMEOUT_S
            )
        manager = self._managers[member] = await ClusterManager.open(self._zookeeper, self._config.cluster_root)
        await manager.manage_client(member)

    async def leave(self, member: ManagedClient) -> None:
        manager = self._managers.pop(member, None)
        if manager is not None:
            await manager.close()

    async def close(self) -> None:
        zookeeper, self._own_zookeeper = self._own_zookeeper, None
        if zookeeper is not None:
            await zookeeper.close()


@dataclass(frozen=True, slots=True)
class Environment:
    """Everything that engines, real, tested and simulated ones, are given from outside."""

    config: ClientConfig
    cluster: Cluster
    connector: Connector = connect
    options: ClientOptions = field(default_factory=ClientOptions)
    random_source: random.Random | None = None

    def with_sessions(self, session_write: bool | None, exclusive_session: bool | None) -> Self:
        """The same with other write sessions than configured, where they are not ``None``."""
        given = {"enable_session_write": session_write, "enable_exclusive_session": exclusive_session}
        changes = {name: value for name, value in given.items() if value is not None}
        return replace(self, config=self.config.model_copy(update=changes))


class Driver(ABC):
    """Stands in for a cluster: a :class:`~waltz.client.mock.driver.MockDriver`."""

    @abstractmethod
    def environment(self, options: ClientOptions) -> Environment:
        """For one client."""


def environment_of(
    config: ClientConfig | Mapping[str, object] | str | os.PathLike[str] | Driver,
    zookeeper: ZooKeeper | None,
    options: ClientOptions | None,
) -> Environment:
    """``config`` as applications give it: a file, its content, a configuration or a driver; raises ``ConfigError``."""
    options = options or ClientOptions()
    if isinstance(config, Driver):
        return config.environment(options)
    if isinstance(config, str | os.PathLike):
        config = load(Path(config), ClientConfig)
    elif isinstance(config, Mapping):
        config = from_mapping(config, ClientConfig)
    elif not isinstance(config, ClientConfig):
        raise TypeError(
            "config must be the path of a configuration file, its content as a mapping, a ClientConfig or a mock "
            f"driver, not {config!r}"
        )
    return Environment(config, ZooKeeperCluster(config, zookeeper), options=options)
