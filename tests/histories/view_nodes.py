"""The view nodes of a campaign, each behind a relay."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import yaml

from tests.histories.planted import command
from tests.smoke.lines import BEHIND
from tests.smoke.proxy import Proxy
from waltz.local.layout import ROOT, SESSION_TIMEOUT_MS, Layout
from waltz.local.ports import HOST, free_ports
from waltz.local.processes import Child, Children

UP = b"view node is up"
"""A node logs it when it is there."""


class ViewNodes:
    """All view nodes; used within :meth:`within`."""

    def __init__(
        self, names: Sequence[str], layout: Layout, partition_ids: Sequence[int], zookeeper: str, planted: str
    ) -> None:
        """They serve these partitions. ``zookeeper`` is where they find ZooKeeper."""
        self._layout = layout
        self._partition_ids = partition_ids
        self._zookeeper = zookeeper
        self._planted = planted
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.relays = {name: Proxy(HOST, port, BEHIND) for name, port in self._ports.items()}
        """The relay before each of them, by its name."""
        self._running: dict[str, Child] = {}
        self._logged_before: dict[str, int] = {}
        """The size of a log when its node was started last."""
        self._children: Children

    @property
    def endpoints(self) -> list[str]:
        """``HOST:PORT`` of all of them."""
        return [f"{HOST}:{port}" for port in self._ports.values()]

    @contextlib.asynccontextmanager
    async def within(self, children: Children) -> AsyncIterator[None]:
        """They are among these children; at the end they are killed."""
        self._children = children
        try:
            yield
        finally:
            for name in list(self._running):
                self.kill(name)
            for relay in self.relays.values():
                await relay.close()

    async def start(self) -> None:
        """Start all. Return when they listen."""
        for name in self._ports:
            self.start_one(name)
        await asyncio.gather(*(relay.open() for relay in self.relays.values()))

    def start_one(self, name: str) -> None:
        """Start the one of that name; it goes on from where its store is."""
        config = self._config(name)
        log = self._layout.log_path(name)
        self._logged_before[name] = log.stat().st_size if log.exists() else 0
        program = command("waltz.view", [str(config)], self._planted)
        self._running[name] = self._children.start(name, program, log)

    def _config(self, name: str) -> Path:
        directory = self._layout.directory / name
        directory.mkdir(exist_ok=True)
        path = self._layout.config_path(name)
        keys = {
            "zookeeper.connectString": self._zookeeper,
            "zookeeper.sessionTimeout": SESSION_TIMEOUT_MS,
            "cluster.root": ROOT,
            "view.ssl.plaintext": True,
            "view.host": HOST,
            "view.bindAddress": BEHIND,
            "view.port": self._ports[name],
            "view.directory": str(directory),
            "view.partitions": ",".join(map(str, self._partition_ids)),
        }
        path.write_text(yaml.safe_dump(keys))
        return path

    def child(self, name: str) -> Child:
        """The running process."""
        return self._running[name]

    def processes(self) -> dict[str, int]:
        """The process ids of those that run."""
        return {name: child.process_id for name, child in self._running.copy().items() if child.running}

    def kill(self, name: str) -> None:
        """End one with SIGKILL."""
        self._children.kill(self._running.pop(name))

    def check(self, unwell: Mapping[str, int]) -> None:
        """Nobody who is not unwell may end, except at its start: without the cluster it waits to be started again.

        Raises :class:`~waltz.common.errors.WaltzError`.
        """
        for name, child in self._running.copy().items():
            if child.running or unwell.get(name):
                continue
            with child.log.open("rb") as log:
                log.seek(self._logged_before[name])
                if UP in log.read():
                    child.check()
            self.kill(name)
            self.start_one(name)
