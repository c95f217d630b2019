"""Rounds over the partitions of a server, in which the log is told what has become of their replicas.

In them idle partitions are asked, too, whether they could commit: those whose health somebody has looked at, and, from
time to time, another one. So silent storages are noticed, which are those of many partitions, at a cost that does not
grow with the number of partitions.
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
"""How often the states of the replicas are compared with what the log says of them."""

LOOKED_AT_TOGETHER = 20
"""Partitions whose replicas are looked at in one turn of the loop: a thousand would hold it up for tens of
milliseconds."""


ROUNDS_PER_UNASKED = 2
"""Rounds after which the next partition is asked whether it is healthy, if it is idle, though nobody has looked."""


class Replicated(Protocol):
    """The part of a partition that the rounds need."""

    @property
    def replica_views(self) -> Sequence[ReplicaView]:
        """Every replica as the partition's session sees it."""

    def confirm_if_idle(self, *, unasked: bool) -> None:
        """Find out whether the partition is healthy, for those who have looked or ``unasked``, if nothing has proved
        it lately."""


class ReplicaRounds:
    """Goes round the partitions that there are, a few in each turn of the loop."""

    def __init__(self, partitions: Callable[[], Mapping[int, Replicated]]) -> None:
        self._partitions = partitions
        self._journal = ReplicaJournal()
        self._left: list[int] = []  # of this round, in reverse order
        self._round = 0
        self._unasked: int | None = None  # the partition that is asked in this round though nobody has looked
        self._delay_s = 0.0
        self._next: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look at the first ones now."""
        partitions = self._partitions()
        if not self._left:
            self._journal.keep(partitions)
            self._left = sorted(partitions, reverse=True)
            self._choose_unasked()
            turns = math.ceil(len(self._left) / LOOKED_AT_TOGETHER)
            self._delay_s = ROUND_S / max(1, turns)
        self._next = asyncio.get_running_loop().call_later(self._delay_s, self.start)
        for _ in range(min(len(self._left), LOOKED_AT_TOGETHER)):
            partition_id = self._left.pop()
            partition = partitions.get(partition_id)
            if partition is None:
                continue
            for line in self._journal.look(partition_id, partition.replica_views):
                logger.log(line.level, "%s", line.text, extra={"partition": partition_id, "storage": line.storage})
            partition.confirm_if_idle(unasked=partition_id == self._unasked)

    def _choose_unasked(self) -> None:
        number, rest = divmod(self._round, ROUNDS_PER_UNASKED)
        self._unasked = None if rest or not self._left else self._left[number % len(self._left)]
        self._round += 1

    def close(self) -> None:
        """Look no more; may be called twice."""
        if self._next is not None:
            self._next.cancel()
