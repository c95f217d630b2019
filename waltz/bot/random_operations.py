"""The bot of random operations: several clients read and write the same rows, with scans of all rows at intervals."""

import asyncio
import random
from collections.abc import Mapping
from typing import NamedTuple

from waltz.bot.prover import Prover
from waltz.bot.row_bot import RowBot

SPACE = "random"


class RandomOptions(NamedTuple):
    """The defaults are those of Amza's bot, which has one client."""

    keys: int = 10_000
    value_size: int = 99
    """The largest length of a value, in characters."""
    batch_rows: int = 999
    """The largest number of rows in a batch."""
    pause_s: float = 0.01
    """The longest pause between two operations of a client."""
    round_operations: int = 1000
    """The number of operations between two scans of all rows."""


class RandomOperations(RowBot):
    """Rounds of operations, each followed by a scan of all rows by every client."""

    def __init__(self, prover: Prover, options: RandomOptions, operations: int | None) -> None:
        super().__init__(prover, [f"{number:05}" for number in range(options.keys)], operations)
        self._options = options
        self._kinds = (self._read, self._delete, self._write_batch, self._delete_batch, self._swap) + 2 * (self._write,)

    @property
    def counts(self) -> Mapping[str, int | str]:
        return {"operations": self.done, "of unknown outcome": self.journal.unknown, "scans": self.prover.scans}

    async def work(self) -> None:
        self.done = 0
        await self._begin()
        while (count := self._next_round()) > 0:
            share, rest = divmod(count, self.prover.processes)
            async with asyncio.TaskGroup() as group:
                for process in range(self.prover.processes):
                    group.create_task(self._operate(process, share + (process < rest)))
            await self.prover.scan_all()
            await self.prover.sweep()
            await self._begin_anew_if_full()

    def _next_round(self) -> int:
        """The number of operations of the next round."""
        if len(self.journal.expected.quarantine) >= self._options.keys:
            return 0
        left = self._options.round_operations
        return left if self._operations is None else min(left, self._operations - self.done)

    async def _operate(self, process: int, count: int) -> None:
        for _ in range(count):
            await self.troubles.insist(random.choice(self._kinds), process)
            self.done += 1
            await asyncio.sleep(random.random() * self._options.pause_s)

    async def _read(self, process: int) -> None:
        for key in self._choose(1):
            await self.prover.read(process, key)

    async def _write(self, process: int) -> None:
        await self._write_rows(process, 1)

    async def _write_batch(self, process: int) -> None:
        await self._write_rows(process, self._batch_size())

    async def _delete(self, process: int) -> None:
        await self._delete_rows(process, 1)

    async def _delete_batch(self, process: int) -> None:
        await self._delete_rows(process, self._batch_size())

    async def _swap(self, process: int) -> None:
        for key in self._choose(1):
            expected, version = await self.prover.read(process, key)
            await self.prover.swap(process, key, expected, version, self._new_value())

    async def _write_rows(self, process: int, count: int) -> None:
        if keys := self._choose(count):
            await self.prover.write(process, {key: self._new_value() for key in keys})

    async def _delete_rows(self, process: int, count: int) -> None:
        if keys := self._choose(count):
            await self.prover.write(process, dict.fromkeys(keys))

    def _batch_size(self) -> int:
        return random.randint(1, self._options.batch_rows)

    def _new_value(self) -> str:
        return self.prover.new_value(random.randint(0, self._options.value_size))

    def _choose(self, count: int) -> list[str]:
        """At most ``count`` random keys that are not in quarantine."""
        quarantine = self.journal.expected.quarantine
        drawn = [key for key in random.sample(self._keys, min(count, len(self._keys))) if key not in quarantine]
        return drawn or [key for key in self._keys if key not in quarantine][:1]
