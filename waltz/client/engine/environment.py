"""What an engine is opened in: the configuration, the cluster that it joins, and how it reaches the servers."""

import os
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self, TypeAlias

from waltz.client.configuration import client_config
from waltz.client.engine.links.links import Connector
from waltz.client.events import OnEvent
from waltz.client.options import ClientOptions
from waltz.common.cluster.managed import ManagedClient
from waltz.common.cluster.manager import ClusterManager
from waltz.common.config.schemas import ClientConfig
from waltz.common.net.channel import connect
from waltz.common.zk.client import ZooKeeper
from waltz.common.zk.kazoo_client import connect_configured
from waltz.common.zk.store_admin import read_store_params

_NO_SETTINGS: Mapping[str, object] = {}


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
                self._config, connect_timeout_s=self._config.zookeeper_connect_timeout_ms / 1000
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
    on_event: OnEvent | None = None
    """Told of what happens to the client."""
    clock: Callable[[], float] = time.monotonic
    """Monotonic seconds, for durations that are measured."""

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


Config: TypeAlias = ClientConfig | Mapping[str, object] | str | os.PathLike[str] | Driver | None
"""What an application may give as the configuration of a client."""


def environment_of(
    config: Config,
    zookeeper: ZooKeeper | None,
    options: ClientOptions | None,
    settings: Mapping[str, object] = _NO_SETTINGS,
    on_event: OnEvent | None = None,
) -> Environment:
    """``config`` and ``settings`` as applications give them: see :mod:`waltz.client.configuration`.

    Raises ``ConfigError``, and ``TypeError`` for what is no configuration and for unknown settings.
    """
    options = options or ClientOptions()
    if isinstance(config, Driver):
        environment = config.environment(options)
        settled = client_config(environment.config, settings, os.environ)
        return replace(environment, config=settled, on_event=on_event)
    config = client_config(config, settings, os.environ)
    return Environment(config, ZooKeeperCluster(config, zookeeper), options=options, on_event=on_event)
