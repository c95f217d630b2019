"""Rounds over the partitions of a server, which log the changes of their replicas.

They also have the storages enter the times of commits, and check whether idle partitions could commit: those whose
health was read, and one other partition now and then. So silent storages, which have replicas of many partitions, are
noticed at a cost that does not grow with the number of partitions.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from waltz.server.process.replica_journal import ReplicaJournal
from waltz.server.store.replica.replica_view import ReplicaView

logger = logging.getLogger(__name__)

ROUND_S = 1.0
"""Interval of the comparison of the replicas' states with the last reports."""

LOOKED_AT_TOGETHER = 20
"""Partitions whose replicas are checked in one turn of the loop: a thousand would block it for tens of milliseconds."""


ROUNDS_PER_UNASKED = 2
"""Rounds after which the next idle partition is checked although its health was not read."""


class Replicated(Protocol):
    """The part of a partition that the rounds need."""

    @property
    def replica_views(self) -> Sequence[ReplicaView]:
        """The view of the partition's session on every replica."""

    def confirm_if_idle(self, *, unasked: bool) -> None:
        """Find out whether the partition is healthy, for readers of its health or ``unasked``, unless it was proved
        recently."""

    def tell_time(self, time_ms: int) -> None:
        """Have the storages enter what is committed now."""


class ReplicaRounds:
    """Visits all partitions in turn, a few in each turn of the loop."""

    def __init__(self, partitions: Callable[[], Mapping[int, Replicated]], clock_ms: Callable[[], int]) -> None:
        self._partitions = partitions
        self._clock_ms = clock_ms
        self._journal = ReplicaJournal()
        self._left: list[int] = []  # partitions left in this round, in reverse order
        self._round = 0
        self._unasked: int | None = None  # the partition that is checked in this round although its health was not read
        self._delay_s = 0.0
        self._next: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Visit the first partitions now."""
        partitions = self._partitions()
        if not self._left:
            self._journal.keep(partitions)
            self._left = sorted(partitions, reverse=True)
            self._choose_unasked()
            turns = math.ceil(len(self._left) / LOOKED_AT_TOGETHER)
            self._delay_s = ROUND_S / max(1, turns)
        self._next = asyncio.get_running_loop().call_later(self._delay_s, self.start)
        now_ms = self._clock_ms()
        for _ in range(min(len(self._left), LOOKED_AT_TOGETHER)):
            partition_id = self._left.pop()
            partition = partitions.get(partition_id)
            if partition is None:
                continue
            for line in self._journal.look(partition_id, partition.replica_views):
                logger.log(line.level, "%s", line.text, extra={"partition": partition_id, "storage": line.storage})
            partition.tell_time(now_ms)
            partition.confirm_if_idle(unasked=partition_id == self._unasked)

    def _choose_unasked(self) -> None:
        number, rest = divmod(self._round, ROUNDS_PER_UNASKED)
        self._unasked = None if rest or not self._left else self._left[number % len(self._left)]
        self._round += 1

    def close(self) -> None:
        """Stop the rounds; may be called twice."""
        if self._next is not None:
            self._next.cancel()
