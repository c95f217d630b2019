"""The lean pipeline, as a target."""

import asyncio
import itertools
import os
from collections.abc import Mapping
from pathlib import Path

from benchmarks.cluster import boot
from benchmarks.cluster.lean_client import LeanLoad
from benchmarks.cluster.line import Line
from benchmarks.cluster.load import Load
from benchmarks.cluster.measurement import Target
from benchmarks.cluster.scenarios import Scenario, Shape
from benchmarks.cluster.summary import Metrics
from benchmarks.cluster.window import Progress
from waltz.local.ports import free_ports

STORAGES = 3


class LeanTarget(Target):
    """Its processes write into a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._shapes = itertools.count(1)
        self._numbers = itertools.count()
        self._load: LeanLoad | None = None

    async def open(self, shape: Shape) -> None:
        directory = self._directory / f"cluster-{next(self._shapes)}"
        await asyncio.to_thread(directory.mkdir, parents=True)
        self._port, *storage_ports = free_ports(1 + STORAGES)
        flags = ["--tls"] if shape.tls else []
        self._nodes: dict[str, Line] = {}
        for number, port in enumerate(storage_ports, 1):
            name = f"storage-{number}"
            command = boot.command("lean", "storage", str(port), str(directory / name), *flags)
            self._nodes[name] = await Line.open(name, command, self._directory / f"{name}.log")
        command = boot.command("lean", "server", str(self._port), *map(str, storage_ports), *flags)
        self._nodes["server-1"] = await Line.open("server", command, self._directory / "server.log")
        await self.progress()

    async def prepare(self, scenario: Scenario) -> None:
        self._load = LeanLoad(scenario, self._numbers)
        await self._load.open(self._port)

    @property
    def load(self) -> Load | None:
        return self._load

    async def read(self) -> int:
        raise NotImplementedError("the lean pipeline keeps nothing that could be read")

    def processes(self) -> Mapping[str, int]:
        return {"client": os.getpid(), **{name: node.process_id for name, node in self._nodes.items()}}

    async def progress(self) -> Progress:
        answers = dict(zip(self._nodes, await asyncio.gather(*(n.ask() for n in self._nodes.values())), strict=True))
        batches = float(answers.pop("server-1"))
        return Progress(asyncio.get_running_loop().time(), batches, tuple(answers.values()))

    async def audience_seen(self) -> Metrics:
        return {}

    async def finish(self) -> None:
        if self._load is not None:
            self._load.close()

    async def close(self) -> None:
        for node in reversed(self._nodes.values()):
            await node.close()
