"""The coal mine: canaries are written, counted and deleted again, for ever."""

import asyncio
import time
from collections.abc import Mapping
from typing import NamedTuple

from waltz.bot.prover import Prover
from waltz.bot.row_bot import RowBot

SPACE = "canary"


class CoalMineOptions(NamedTuple):
    """The defaults are those of Amza's coal mine."""

    canaries: int = 10_000
    interval_s: float = 300.0
    """The time from the begin of one round to the begin of the next."""
    value_size: int = 99
    batch_rows: int = 1000


class CoalMine(RowBot):
    """Rounds: write all canaries, compare, delete all, check that none is left."""

    def __init__(self, prover: Prover, options: CoalMineOptions, operations: int | None) -> None:
        super().__init__(prover, [f"{number:05}" for number in range(options.canaries)], operations)
        self._options = options

    @property
    def counts(self) -> Mapping[str, int | str]:
        return {"rounds": self.done, "writes of unknown outcome": self.journal.unknown, "scans": self.prover.scans}

    async def work(self) -> None:
        self.done = 0
        await self._begin()
        while True:
            began_s = time.monotonic()
            keys = [key for key in self._keys if key not in self.journal.expected.quarantine]
            await self._in_batches(keys, alive=True)
            await self.prover.scan_all()
            await self._in_batches(keys, alive=False)
            await self.prover.scan_all()
            await self.prover.sweep()
            self.done += 1
            if not keys or self.done == self._operations:
                return
            await self._begin_anew_if_full()
            await asyncio.sleep(max(0.0, began_s + self._options.interval_s - time.monotonic()))

    async def _in_batches(self, keys: list[str], *, alive: bool) -> None:
        """Write the keys in batches. The clients take turns."""
        rows = self._options.batch_rows
        for number, begin in enumerate(range(0, len(keys), rows)):
            process = number % self.prover.processes
            await self.troubles.insist(self._write, process, keys[begin : begin + rows], alive=alive)

    async def _write(self, process: int, keys: list[str], *, alive: bool) -> None:
        size = self._options.value_size
        await self.prover.write(process, {key: self.prover.new_value(size) if alive else None for key in keys})
