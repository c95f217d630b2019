"""docker-compose.yml without a container engine: its very commands as plain processes."""

import re
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.integration.site import ROOT, WAIT_S, Site
from waltz.local.processes import Child, Children
from waltz.local.zookeeper import LocalZooKeeper

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
STORAGES = ("storage-1", "storage-2", "storage-3")
SERVERS = ("server-1", "server-2")
VIEW = "view"
HOST = "localhost"
"""The name of every container for the others: all share one network."""


def mounts(service: str) -> dict[str, str]:
    """The mounts of a service, by their paths in the container."""
    return dict(volume.split(":")[1::-1] for volume in SERVICES[service].get("volumes", []))


def interpolated(text: str) -> str:
    """``text`` where no variable is set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


class Engine:
    """Starts services as the container engine would, with the programs in ``programs``, from ``directory``."""

    def __init__(
        self,
        directory: Path,
        zookeeper: LocalZooKeeper,
        children: Children,
        programs: Path = Path(sys.executable).parent,
    ) -> None:
        files = {there: ROOT / here for name in SERVICES for there, here in mounts(name).items() if here[0] == "."}
        self.site = Site(
            directory,
            zookeeper,
            children,
            hosts=(HOST,),
            ensemble=f"{HOST}:2181",
            files=files,
            programs=programs,
        )

    def run(self, service: str) -> str:
        """Run a service that ends by itself; what it printed."""
        return self.site.run(service, _command(service))

    def start(self, service: str) -> Child:
        """Start a service that goes on."""
        return self.site.start(service, HOST, _command(service), _environment(service))

    def wait_until_healthy(self, service: str, child: Child) -> None:
        """Run the service's health check until it says so."""
        kind, check = SERVICES[service]["healthcheck"]["test"]
        assert kind == "CMD-SHELL"
        deadline = time.monotonic() + WAIT_S
        while (found := self.site.attempt(service, ["sh", "-c", check], _environment(service))).returncode != 0:
            child.check()
            assert time.monotonic() < deadline, f"{service}: {found.stderr}{child.log_tail()}"

    def start_cluster(self) -> None:
        """All services in the order of their dependencies, the one-time ones twice; returns when all are healthy."""
        self.run("create")
        storages = {name: self.start(name) for name in STORAGES}
        for name, child in storages.items():
            self.wait_until_healthy(name, child)
        for service in ("assign", "create", "assign"):
            self.run(service)
        servers = {name: self.start(name) for name in SERVERS}
        for name, child in servers.items():
            self.wait_until_healthy(name, child)
        self.wait_until_healthy(VIEW, self.start(VIEW))


def _command(service: str) -> list[str]:
    return shlex.split(interpolated(SERVICES[service]["command"]))


def _environment(service: str) -> Mapping[str, str]:
    return {name: interpolated(str(value)) for name, value in SERVICES[service].get("environment", {}).items()}
