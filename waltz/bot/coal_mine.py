"""The coal mine: canaries are let in, counted, and let out again, for ever."""

import asyncio
import time
from collections.abc import Mapping
from typing import NamedTuple

from waltz.bot.bot import Bot
from waltz.bot.prover import Prover
from waltz.common.metrics import Json

SPACE = "canary"


class CoalMineOptions(NamedTuple):
    """The defaults are those of Amza's coal mine."""

    canaries: int = 10_000
    interval_s: float = 300.0
    """From the beginning of a round to that of the next one."""
    value_size: int = 99
    batch_rows: int = 1000


class CoalMine(Bot):
    """Rounds: write all canaries, compare, delete all, look whether nothing is left."""

    def __init__(self, prover: Prover, options: CoalMineOptions, operations: int | None) -> None:
        """``operations``: after how many rounds the work is done; ``None`` for no end."""
        super().__init__(prover.journal, prover.troubles)
        self.prover = prover
        self._options = options
        self._operations = operations
        self._keys = [f"{number:05}" for number in range(options.canaries)]

    @property
    def valid(self) -> Mapping[str, Json]:
        return self.journal.expected.valid

    @property
    def counts(self) -> Mapping[str, int | str]:
        return {"rounds": self.done, "writes of unknown outcome": self.journal.unknown, "scans": self.prover.scans}

    async def check(self) -> None:
        for process in range(self.prover.processes):
            await self.prover.scan(process)

    async def work(self) -> None:
        self.done = 0
        await self.prover.delete_all(self._keys)
        while self._operations is None or self.done < self._operations:
            began_s = time.monotonic()
            keys = [key for key in self._keys if key not in self.prover.journal.expected.quarantine]
            if not keys:
                return
            await self._in_batches(keys, alive=True)
            await self.prover.scan_all()
            await self._in_batches(keys, alive=False)
            await self.prover.scan_all()
            await self.prover.sweep()
            self.done += 1
            if self.prover.journal.is_full:
                self.prover.journal.begin_anew()
                await self.prover.delete_all(self._keys)
            if self._operations is None or self.done < self._operations:
                await asyncio.sleep(max(0.0, began_s + self._options.interval_s - time.monotonic()))

    async def _in_batches(self, keys: list[str], *, alive: bool) -> None:
        """By the clients in turn."""
        rows = self._options.batch_rows
        for number, begin in enumerate(range(0, len(keys), rows)):
            process = number % self.prover.processes
            await self.prover.troubles.insist(self._write, process, keys[begin : begin + rows], alive=alive)

    async def _write(self, process: int, keys: list[str], *, alive: bool) -> None:
        size = self._options.value_size
        await self.prover.write(process, {key: self.prover.new_value(size) if alive else None for key in keys})
