"""docker-compose.yml without a container engine: its very commands as plain processes on addresses of their own."""

import json
import os
import shlex
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any
from urllib.error import URLError

import yaml

from waltz.local.processes import Child, Children
from waltz.local.zookeeper import LocalZooKeeper

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
_NETWORK = f"127.{1 + os.getpid() // 256 % 250}.{os.getpid() % 256}"
ADDRESSES = {
    name: f"{_NETWORK}.{number}"
    for number, name in enumerate(("storage-1", "storage-2", "storage-3", "server-1", "server-2"), 1)
}
"""The containers' host names, as addresses of the loopback network that no other run of the tests has."""
WAIT_S = 60.0


def translated(text: str, zookeeper: LocalZooKeeper) -> str:
    """``text`` with the addresses that take the place of the containers' host names."""
    for name, address in ADDRESSES.items():
        text = text.replace(name, address)
    return text.replace("zookeeper:2181", zookeeper.connect_string)


class Engine:
    """Starts services as the container engine would, with the programs in ``programs``, from ``directory``."""

    def __init__(
        self,
        directory: Path,
        zookeeper: LocalZooKeeper,
        children: Children,
        programs: Path = Path(sys.executable).parent,
    ) -> None:
        self.zookeeper = zookeeper
        self._directory = directory
        self._children = children
        self._programs = programs

    def command(self, service: str) -> list[str]:
        """The service's command, with its mounted configuration file."""
        mounts = dict(volume.split(":")[1::-1] for volume in SERVICES[service].get("volumes", []))
        program, *arguments = shlex.split(translated(SERVICES[service]["command"], self.zookeeper))
        return [
            str(self._programs / program),
            *(self._mounted(service, mounts[word]) if word in mounts else word for word in arguments),
        ]

    def _mounted(self, service: str, source: str) -> str:
        content = yaml.safe_load(translated((ROOT / source).read_text(), self.zookeeper))
        data = self._directory / service
        data.mkdir(exist_ok=True)
        kind = service.split("-")[0]
        if service in ADDRESSES:
            content[f"{kind}.bindAddress"] = ADDRESSES[service]
        if kind == "storage":
            content["storage.directory"] = str(data)
        if kind == "server":
            content["server.host"] = ADDRESSES[service]
        path = data / Path(source).name
        path.write_text(yaml.safe_dump(content))
        return str(path)

    def run(self, service: str) -> str:
        """Run a service that ends by itself; what it printed."""
        result = subprocess.run(
            self.command(service), cwd=self._directory, capture_output=True, text=True, timeout=WAIT_S, check=False
        )
        assert result.returncode == 0, f"{service}: {result.stderr}"
        return result.stdout

    def start(self, service: str) -> Child:
        """Start a service that goes on."""
        return self._children.start(service, self.command(service), self._directory / f"{service}.log")

    def start_cluster(self) -> None:
        """All services in the order of their dependencies, the one-time ones twice; returns when all are healthy."""
        self.run("create")
        storages = {name: self.start(name) for name in ADDRESSES if name.startswith("storage")}
        for name, child in storages.items():
            assert get(f"http://{ADDRESSES[name]}:6200/ping", child) == b"pong\n"
        for service in ("assign", "create", "assign"):
            self.run(service)
        servers = {name: self.start(name) for name in ADDRESSES if name.startswith("server")}
        for name, child in servers.items():
            health = json.loads(get(f"http://{ADDRESSES[name]}:7200/health", child))
            assert health["server-health-check"]["healthy"] is True

    def client_configuration(self) -> dict[str, object]:
        """What an application needs to know."""
        zookeeper = translated("zookeeper:2181", self.zookeeper)
        return {"zookeeper.connectString": zookeeper, "zookeeper.sessionTimeout": 4000, "cluster.root": "/waltz"}


def get(url: str, child: Child) -> bytes:
    """What the URL gives, as soon as somebody listens there."""
    deadline = time.monotonic() + WAIT_S
    while True:
        child.check()
        try:
            with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
                content: bytes = answer.read()
                return content
        except URLError:
            assert time.monotonic() < deadline, child.log_tail()
            time.sleep(0.05)
