"""The ports, data directories and configuration files of the nodes of a local cluster."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import yaml

from waltz.common.errors import WaltzError
from waltz.local.ports import HOST, free_ports

STATE_FILE = "cluster.json"
ROOT = "/waltz"
SESSION_TIMEOUT_MS = 4_000
NODE_HOST = "localhost"
"""The host name of all nodes: the loopback interface."""

Overrides = Mapping[str, object]
"""Configuration keys, under the original's names. They are added to the file of a node, or replace its values."""


@dataclass(frozen=True)
class Node:
    """One process of the cluster. ``admin_port`` is the admin port of a storage node; a server has none."""

    name: str
    port: int
    admin_port: int
    http_port: int

    @property
    def connect_string(self) -> str:
        """The name of the node in the cluster, ``host:port``."""
        return f"{NODE_HOST}:{self.port}"


@dataclass(frozen=True)
class Layout:
    """The nodes of a cluster. The layout is written into the directory of the cluster, so that the cluster can be
    restarted, and found by other processes."""

    directory: Path
    partitions: int
    plaintext: bool
    zookeeper_port: int
    storages: tuple[Node, ...]
    servers: tuple[Node, ...]
    server_overrides: dict[str, object] = field(default_factory=dict)
    storage_overrides: dict[str, object] = field(default_factory=dict)

    @classmethod
    def plan(
        cls,
        directory: Path,
        *,
        storages: int,
        servers: int,
        partitions: int,
        plaintext: bool,
        server_overrides: Overrides,
        storage_overrides: Overrides,
    ) -> "Layout":
        """Choose free ports for a new cluster."""
        ports = iter(free_ports(1 + 3 * storages + 2 * servers))
        return cls(
            directory=directory.absolute(),
            partitions=partitions,
            plaintext=plaintext,
            zookeeper_port=next(ports),
            storages=tuple(
                Node(f"storage-{number}", next(ports), next(ports), next(ports)) for number in range(1, storages + 1)
            ),
            servers=tuple(Node(f"server-{number}", next(ports), 0, next(ports)) for number in range(1, servers + 1)),
            server_overrides=dict(server_overrides),
            storage_overrides=dict(storage_overrides),
        )

    @classmethod
    def read(cls, directory: Path) -> "Layout | None":
        """The layout of the cluster in ``directory``; ``None`` if there is none. Raises :class:`WaltzError`."""
        path = directory.absolute() / STATE_FILE
        try:
            state = json.loads(path.read_text())
            for kind in ("storages", "servers"):
                state[kind] = tuple(Node(**node) for node in state[kind])
            return cls(**{**state, "directory": directory.absolute()})
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise WaltzError(f"{path} is not the description of a local cluster: {error}") from error

    def write(self) -> None:
        """Write the layout and the configuration files of all nodes, of clients and of the command-line tools."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for node in self.storages:
            self.data_directory(node).mkdir(parents=True, exist_ok=True)
            self._write_yaml(self.config_path(node.name), self._storage_config(node))
        for node in self.servers:
            self._write_yaml(self.config_path(node.name), self._server_config(node))
        self._write_yaml(self.client_config_path, self._common() | self._tls("client.ssl"))
        self._write_yaml(self.cli_config_path, self._common() | self._tls("ssl"))
        state = asdict(self)
        del state["directory"]
        temporary = self.directory / f"{STATE_FILE}.new"
        temporary.write_text(json.dumps(state, indent=2) + "\n")
        temporary.replace(self.directory / STATE_FILE)

    @property
    def names(self) -> list[str]:
        """The names of all nodes, including ZooKeeper, in the order of their start."""
        return ["zookeeper", *(node.name for node in (*self.storages, *self.servers))]

    def node(self, name: str) -> Node:
        """The storage or server of that name."""
        return next(node for node in (*self.storages, *self.servers) if node.name == name)

    def ports(self, name: str) -> list[int]:
        """Ports of the node of that name."""
        if name == "zookeeper":
            return [self.zookeeper_port]
        node = self.node(name)
        return [port for port in (node.port, node.admin_port, node.http_port) if port]

    @property
    def zookeeper_connect_string(self) -> str:
        """``host:port`` of ZooKeeper."""
        return f"{HOST}:{self.zookeeper_port}"

    @property
    def client_config_path(self) -> Path:
        """Configuration file for :class:`waltz.client.callbacks.WaltzClient`."""
        return self.config_path("client")

    @property
    def cli_config_path(self) -> Path:
        """Configuration file for the command-line tools (``-c``)."""
        return self.config_path("cli")

    def config_path(self, name: str) -> Path:
        """The configuration file of the node of that name."""
        return self.directory / f"{name}.yml"

    def log_path(self, name: str) -> Path:
        """The log file of the node of that name."""
        return self.directory / f"{name}.log"

    def data_directory(self, node: Node) -> Path:
        """The directory of a storage node's partitions."""
        return self.directory / node.name

    @property
    def zookeeper_directory(self) -> Path:
        """The directory of ZooKeeper's data."""
        return self.directory / "zookeeper"

    def _common(self) -> dict[str, object]:
        return {
            "zookeeper.connectString": self.zookeeper_connect_string,
            "zookeeper.sessionTimeout": SESSION_TIMEOUT_MS,
            "cluster.root": ROOT,
        }

    def _tls(self, prefix: str) -> dict[str, object]:
        return {f"{prefix}.plaintext": True} if self.plaintext else {}

    def _storage_config(self, node: Node) -> dict[str, object]:
        return {
            **self._common(),
            **self._tls("storage.ssl"),
            "storage.port": node.port,
            "storage.admin.port": node.admin_port,
            "storage.jetty.port": node.http_port,
            "storage.bindAddress": HOST,
            "storage.directory": str(self.data_directory(node)),
            **self.storage_overrides,
        }

    def _server_config(self, node: Node) -> dict[str, object]:
        return {
            **self._common(),
            **self._tls("server.ssl"),
            "server.port": node.port,
            "server.jetty.port": node.http_port,
            "server.host": NODE_HOST,
            "server.bindAddress": HOST,
            **self.server_overrides,
        }

    def _write_yaml(self, path: Path, content: Mapping[str, object]) -> None:
        path.write_text(yaml.safe_dump(dict(content), sort_keys=False))
