"""The client of the lean pipeline, as a load."""

import asyncio
import itertools
import os
import struct
import time
import zlib
from collections.abc import Iterator, Sequence

from benchmarks.cluster.lean import (
    APPEND,
    CLIENT,
    FRAME,
    REQUEST_ID,
    REST,
    UNSIGNED,
    Bounds,
    Frames,
    connected,
)
from benchmarks.cluster.load import Load
from benchmarks.cluster.pace import TICK_S, Pace, Ticker
from benchmarks.cluster.scenarios import Scenario


class LeanLoad(Load):
    """The client as a load: its own connection is told what was applied, and sends what follows in the same turn."""

    def __init__(self, scenario: Scenario, numbers: Iterator[int]) -> None:
        super().__init__()
        self._scenario = scenario
        self._numbers = numbers
        self._partitions = itertools.cycle(range(scenario.partitions))
        self._data = os.urandom(scenario.size_bytes)
        self._due_s: dict[int, float] = {}
        self._running = False
        self._drained = asyncio.Event()

    async def open(self, port: int) -> None:
        """Connect to the server."""
        self._connection = await connected(lambda: _Applied(self), port, tls=self._scenario.tls)

    def close(self) -> None:
        """Disconnect."""
        self._connection.transport.close()

    def start(self) -> None:
        self._running = True
        self._drained.clear()
        if self._scenario.rate:
            self._pace = Pace(self._scenario.rate, time.perf_counter())
            self._ticker = Ticker(TICK_S, self._submit_due)
        else:
            self._submit([time.perf_counter()] * self._scenario.in_flight)

    async def stop(self) -> None:
        self._running = False
        if self._scenario.rate:
            self._ticker.close()
        if self._due_s:
            await self._drained.wait()

    def _submit_due(self) -> None:
        due_s = self._pace.due(time.perf_counter())
        if due_s:
            self._submit(due_s)

    def _submit(self, due_s: Sequence[float]) -> None:
        data, write_count, read_count = self._data, self._scenario.write_locks, self._scenario.read_locks
        locks = struct.Struct(f">{write_count}ii{read_count}i")
        size = APPEND.size + locks.size + REST.size + len(data) + UNSIGNED.size
        header, rest, all_due_s = FRAME.pack(1, 4, size), REST.pack(0, 7, len(data)), self._due_s
        out: list[bytes] = []
        for due, number, partition in zip(due_s, self._numbers, self._partitions, strict=False):
            low = partition << 32 | number & 0xFFFFFFFF
            all_due_s[low] = due
            lock = number * 2654435761 & 0x7FFFFFF0
            out += (
                header,
                APPEND.pack(3, CLIENT, low, number, write_count),
                locks.pack(*range(lock, lock + write_count), read_count, *range(-lock - read_count, -lock)),
                rest,
                data,
                UNSIGNED.pack(zlib.crc32(data)),
            )
        self._connection.transport.write(b"".join(out))

    def applied(self, data: bytes, bounds: Bounds) -> None:
        """These transactions are committed, and this client has been told."""
        now_s = time.perf_counter()
        due_s, latencies_s = self._due_s, self.latencies_s
        for at, _ in bounds:
            latencies_s.append(now_s - due_s.pop(REQUEST_ID.unpack_from(data, at)[2]))
        if self._running and not self._scenario.rate:
            self._submit([now_s] * len(bounds))
        elif not due_s:
            self._drained.set()


class _Applied(Frames):
    def __init__(self, load: LeanLoad) -> None:
        self.frames = load.applied  # type: ignore[method-assign]  # the hot path, without a call between
