"""The environment of an engine: the configuration, the cluster that it joins, and the connections to servers."""

import os
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self, TypeAlias

from waltz.client.configuration import Token, client_config, token_source
from waltz.client.engine.links.links import Connector
from waltz.client.events import OnEvent
from waltz.client.options import ClientOptions
from waltz.common.cluster.managed import ManagedClient
from waltz.common.cluster.manager import ClusterManager
from waltz.common.config.schemas import ClientConfig
from waltz.common.net.channel import connect
from waltz.common.net.token_sender import TokenSource
from waltz.common.zk.client import ZooKeeper
from waltz.common.zk.kazoo_client import connect_configured
from waltz.common.zk.store_admin import read_store_params

_NO_SETTINGS: Mapping[str, object] = {}


class Directory(NamedTuple):
    """The nodes of a cluster, and their root."""

    nodes: ZooKeeper
    root: str


class Cluster(ABC):
    """Assigns ids to its members, and reports the owners of the partitions to them."""

    @property
    @abstractmethod
    def directory(self) -> Directory:
        """The nodes in ZooKeeper, or a substitute. Available while there are members."""

    @abstractmethod
    async def key(self) -> str:
        """A key that distinguishes the logs of this cluster from those of all other clusters of the same name. For
        members."""

    @abstractmethod
    async def join(self, member: ManagedClient) -> None:
        """Report the state of the cluster to ``member``, before the return and at every change."""

    @abstractmethod
    async def leave(self, member: ManagedClient) -> None:
        """Stop the reports to ``member``."""

    @abstractmethod
    async def close(self) -> None:
        """Close the shared resources. Called when all members have left."""


class ZooKeeperCluster(Cluster):
    """The cluster of a configuration. Its members share one ZooKeeper session."""

    def __init__(self, config: ClientConfig, zookeeper: ZooKeeper | None = None) -> None:
        """``zookeeper``, if given, is used and left open."""
        self._config = config
        self._zookeeper = zookeeper
        self._own_zookeeper: ZooKeeper | None = None
        self._managers: dict[ManagedClient, ClusterManager] = {}

    @property
    def directory(self) -> Directory:
        return Directory(self._connected(), self._config.cluster_root)

    async def key(self) -> str:
        """The key. Raises ``ZooKeeperError``, and ``StoreAdminError`` when the cluster was deleted."""
        return str((await read_store_params(self._connected(), self._config.cluster_root)).key)

    def _connected(self) -> ZooKeeper:
        assert self._zookeeper is not None, "there are members"
        return self._zookeeper

    async def join(self, member: ManagedClient) -> None:
        """Join. Raises ``ZooKeeperError``, and ``WaltzError`` when there is no such cluster."""
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
    """Everything that an engine gets from outside: a real engine, or one in tests or a simulation."""

    config: ClientConfig
    cluster: Cluster
    connector: Connector = connect
    options: ClientOptions = field(default_factory=ClientOptions)
    random_source: random.Random | None = None
    on_event: OnEvent | None = None
    """A function that is called with the events of the client."""
    clock: Callable[[], float] = time.monotonic
    """A clock with monotonic seconds, for measured durations."""
    token: TokenSource | None = None
    """The application's token; ``None``: that of the configuration."""
    serves_tables: Callable[[], bool] | None = None
    """Of a cluster in memory: whether a view in this process answers for tables without view nodes."""

    def with_sessions(self, session_write: bool | None, exclusive_session: bool | None) -> Self:
        """A copy with other settings of write sessions. ``None``: a setting stays."""
        given = {"enable_session_write": session_write, "enable_exclusive_session": exclusive_session}
        changes = {name: value for name, value in given.items() if value is not None}
        return replace(self, config=self.config.model_copy(update=changes))


class Driver(ABC):
    """A substitute for a cluster: a :class:`~waltz.client.mock.driver.MockDriver`."""

    @abstractmethod
    def environment(self, options: ClientOptions) -> Environment:
        """The environment of one client."""


Config: TypeAlias = ClientConfig | Mapping[str, object] | str | os.PathLike[str] | Driver | None
"""The forms of a client's configuration."""


def environment_of(
    config: Config,
    zookeeper: ZooKeeper | None,
    options: ClientOptions | None,
    settings: Mapping[str, object] = _NO_SETTINGS,
    on_event: OnEvent | None = None,
    token: Token | None = None,
) -> Environment:
    """The environment for an application's ``config`` and ``settings``: see :mod:`waltz.client.configuration`.

    Raises ``ConfigError``, and ``TypeError`` for other types of configurations and for unknown settings.
    """
    options = options or ClientOptions()
    if isinstance(config, Driver):
        environment = config.environment(options)
        settled = client_config(environment.config, settings, os.environ)
        return replace(environment, config=settled, on_event=on_event)
    config = client_config(config, settings, os.environ)
    cluster, source = ZooKeeperCluster(config, zookeeper), token_source(token, config.tls)
    return Environment(config, cluster, options=options, on_event=on_event, token=source)
