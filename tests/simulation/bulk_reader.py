"""A machine that reads the whole log from its replicas, again and again, as a Spark job does (rule S6)."""

import asyncio
import contextlib
import struct
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

from tests.simulation.checker import Checker, Entry
from tests.simulation.cluster import ROOT, Host, World
from tests.simulation.loop import Process
from tests.simulation.zookeeper import ProcessZooKeeper
from waltz.common.cluster import marks
from waltz.common.errors import WaltzError
from waltz.spark import planning
from waltz.spark.chunk import Chunk
from waltz.spark.options import parse_options
from waltz.spark.reading import SplitReader

PLANNING_TIMEOUT_S = 5.0

_RECORD_HEAD = struct.Struct(">q16si")
"""Transaction id, request id, header: what every record begins with."""


class BulkReaderHost(Host):
    """Plans and reads; nothing ever happens to its machine."""

    def __init__(self, world: World, name: str, checker: Checker) -> None:
        super().__init__(world, name)
        self._checker = checker
        self._options = parse_options({"zookeeper": "zookeeper:2181", "clusterRoot": ROOT})
        self._draw = world.random(f"splits of {name}")
        self.reads = 0
        """Reads of the whole log that came to their end."""

    @contextlib.contextmanager
    def seeded(self) -> Iterator[None]:
        """Have the planner draw its pauses from the seed."""
        source = SimpleNamespace(Random=lambda: self.world.random(self.name))
        with mock.patch.object(marks, "random", source), mock.patch.object(planning, "random", source):
            yield

    async def program(self, process: Process) -> None:
        zookeeper = await self.connect_zookeeper(process)
        while True:
            await asyncio.sleep(self.world.options.bulk_read_interval_s)
            try:
                await self._read_all(zookeeper)
            except WaltzError as error:
                self.world.trace.line(self.name, f"cannot read: {error}")

    async def _read_all(self, zookeeper: ProcessZooKeeper) -> None:
        deadline_s = self.world.loop.time() + PLANNING_TIMEOUT_S
        # Pieces are spread over the replicas, so that another number of them reads each part from another replica.
        options = replace(self._options, min_partitions=self._draw.randint(1, 9))
        splits = await planning.plan_with(zookeeper, options, tls=None, deadline_s=deadline_s)
        for split in splits:
            reader = SplitReader(split, None, fetch_size=500, request_timeout_s=2.0)
            try:
                while (chunk := await reader.next_chunk()) is not None:
                    self._check(split.range.partition_id, chunk)
            finally:
                await reader.close()
        self.reads += 1
        self.world.trace.line(self.name, f"has read {[tuple(split.range) for split in splits]}")

    def _check(self, partition_id: int, chunk: Chunk) -> None:
        for record, data in zip(chunk.records, chunk.payloads, strict=True):
            transaction_id, req_id, header = _RECORD_HEAD.unpack_from(record.as_py())
            self._checker.read_in_bulk(self.name, partition_id, transaction_id, Entry(req_id, header), data.as_py())
