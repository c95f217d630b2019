"""A log with the real lock table, on which runs of a sink crash, lose appends, and have some arrive late."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, field

from waltz.client.locks import PartitionLocalLock
from waltz.server.partition.locks import LockTable
from waltz.spark.exactly_once import Guard, NotAllAppendedError
from waltz.spark.rows import Row

FOREIGN_CLIENT = 999


class Crash(BaseException):
    """The process ends here: nothing of it may go on."""


@dataclass
class ModelPartition:
    """What is committed, and its locks."""

    table: LockTable
    log: list[tuple[int, Row]] = field(default_factory=list)

    def admit(self, client_id: int, row: Row, guard: Guard | None) -> bool:
        mark, write, read, append = guard or Guard(0)
        writes, reads, appends = ([lock.hash for lock in locks] for locks in (write, read, append))
        if self.table.admit(writes, reads, appends, mark, len(self.log)) is not None:
            return False
        self.log.append((client_id, row))
        return True

    def rows_of_sinks(self) -> Counter[Row]:
        return Counter(row for client_id, row in self.log if client_id != FOREIGN_CLIENT)


class ModelCluster:
    """Partitions, and what is on its way to them."""

    def __init__(self, partition_count: int, dice: random.Random, table_size: int = 64) -> None:
        self.dice = dice
        self.partitions = [ModelPartition(LockTable(table_size, -1)) for _ in range(partition_count)]
        self.late: list[tuple[int, int, Row, Guard | None]] = []
        self.trouble = 0.0
        """Probability that something goes wrong with an append."""

    def happen(self) -> None:
        """Something that the sink has no part in."""
        dice = self.dice
        partition = dice.choice(self.partitions)
        what = dice.random()
        if what < 0.3 and self.late:
            partition_id, client_id, row, guard = self.late.pop(dice.randrange(len(self.late)))
            self.partitions[partition_id].admit(client_id, row, guard)
        elif what < 0.6:
            locks = tuple(PartitionLocalLock("foreign", dice.randrange(1000)) for _ in range(3))
            partition.admit(FOREIGN_CLIENT, Row(0, b"foreign"), Guard(0, append=locks))
        elif what < 0.7:
            partition.table.reset(len(partition.log) - 1)


class ModelLog:
    """One client; ``steps`` operations from now it crashes."""

    def __init__(self, cluster: ModelCluster, client_id: int, steps: int | None = None) -> None:
        self.cluster = cluster
        self.steps = steps
        self.searched = 0
        self.gate = asyncio.Event()
        """Nothing is done while it is not set."""
        self.gate.set()
        self._client_id = client_id

    @property
    def client_id(self) -> int:
        return self._client_id

    def step(self) -> None:
        """Crash, if it is time."""
        if self.steps is not None:
            self.steps -= 1
            if self.steps < 0:
                raise Crash

    async def _pause(self) -> None:
        self.step()
        await self.gate.wait()
        for _ in range(self.cluster.dice.randrange(3)):
            await asyncio.sleep(0)
        if self.cluster.trouble:
            self.cluster.happen()
        self.step()

    async def high_water_mark(self, partition_id: int) -> int:
        await self._pause()
        mark = len(self.cluster.partitions[partition_id].log) - 1
        if self.cluster.dice.random() < self.cluster.trouble:
            mark = max(-1, mark - self.cluster.dice.randrange(5))  # of a server that was replaced and does not know
        await self._pause()
        return mark

    async def rows(
        self, partition_id: int, after: int, up_to: int, client_ids: Collection[int]
    ) -> AsyncIterator[tuple[int, Row]]:
        for transaction_id in range(after + 1, up_to + 1):
            self.searched += 1
            client_id, row = self.cluster.partitions[partition_id].log[transaction_id]
            if client_id in client_ids:
                yield transaction_id, row
        await self._pause()

    async def append(self, partition_id: int, rows: Sequence[Row], guard: Guard | None) -> int:
        dice, partition = self.cluster.dice, self.cluster.partitions[partition_id]
        complaint = ""
        last = -1
        for row in rows:
            await self._pause()
            if dice.random() < self.cluster.trouble:
                if dice.random() < 0.7:
                    self.cluster.late.append((partition_id, self.client_id, row, guard))
                complaint = "got lost"
            elif partition.admit(self.client_id, row, guard):
                last = len(partition.log) - 1
                if guard is not None and not complaint and dice.random() < 0.5:
                    guard = guard._replace(high_water_mark=last)
            else:
                complaint = "refused"
        await self._pause()
        if complaint:
            raise NotAllAppendedError(complaint)
        return last
