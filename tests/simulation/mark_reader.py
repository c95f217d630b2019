"""A machine that asks for the high-water marks of all partitions, again and again, and what it may be told."""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from unittest import mock

from tests.simulation.checker import Checker
from tests.simulation.cluster import ROOT, Host
from tests.simulation.loop import Process, running_process
from waltz.common.cluster import marks
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.errors import WaltzError

PATIENCE_S = 3.0


class MarkReaderHost(Host):
    """Asks as tools and bulk readers do; nothing ever happens to its machine."""

    answers = 0
    """Marks that it was told."""

    async def program(self, process: Process) -> None:
        zookeeper = await self.connect_zookeeper(process)
        partition_ids = range(self.world.options.partitions)
        while True:
            await asyncio.sleep(self.world.options.mark_interval_s)
            deadline_s = self.world.loop.time() + PATIENCE_S
            try:
                found, _ = await marks.ask_committed_marks(
                    ClusterHandle(zookeeper, ROOT, None), partition_ids, deadline_s=deadline_s
                )
            except WaltzError as error:
                self.world.trace.line(self.name, f"learns no marks: {error}")
            else:
                self.answers += len(found)


@contextlib.contextmanager
def answers_are_checked(checker: Checker) -> Iterator[None]:
    """Compare every mark that anybody is told with what was committed at the question, and is at the answer."""
    ask = marks.ask_committed_marks

    async def asked(
        cluster: ClusterHandle, partition_ids: Iterable[int], *, deadline_s: float, time_ms: int | None = None
    ) -> tuple[dict[int, int], dict[int, str]]:
        committed_before = list(checker.marks)
        found, reasons = await ask(cluster, partition_ids, deadline_s=deadline_s, time_ms=time_ms)
        process = running_process()
        for partition_id, mark in found.items():
            who = "-" if process is None else process.host
            checker.mark_answered(who, partition_id, mark, committed_before[partition_id])
        return found, reasons

    with mock.patch.object(marks, "ask_committed_marks", asked):
        yield
