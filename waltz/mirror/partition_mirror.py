"""One partition, mirrored from the end of its target on, again and again.

The position is the target's own end of log: nothing else is kept, so nothing can contradict it. An attempt

1. looks whether the target may be a mirror, and is a beginning of the source, without disturbing anybody;
2. fences: no append of an earlier attempt, of this process or of another one, follows the end that it learns;
3. claims the partition, which fails if it was promoted before;
4. appends what follows in the source, as much at a time as the window allows, each transaction at its own id.

It ends with the first trouble, whatever that is, and the next attempt begins anew.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from waltz.client.errors import TrimmedError
from waltz.common.cluster.owners import read_owners
from waltz.common.errors import DeadlineExceededError, WaltzError
from waltz.mirror.attempts import Attempts, SourceFailedError, Target
from waltz.mirror.claims import Claims
from waltz.mirror.errors import MirrorError, MirrorStoppedError, SourceTrimmedError
from waltz.mirror.mirror_metrics import MirrorState, PartitionState, Stage
from waltz.mirror.source_log import ClientLog, check_beginning
from waltz.mirror.target_link import TargetLink
from waltz.mirror.window import Window, WindowLimit

logger = logging.getLogger(__name__)

STALL_S = 30.0
"""A target that has committed nothing of what was sent for so long is given up, and asked anew."""


class PartitionMirror:
    """Mirrors one partition, until it is cancelled or has to stop for good."""

    def __init__(
        self,
        partition_id: int,
        source: ClientLog,
        source_key: str,
        target: Target,
        limit: WindowLimit,
        process: MirrorState,
        next_connection: Callable[[], int],
    ) -> None:
        """``next_connection`` gives growing numbers."""
        self._partition_id = partition_id
        self._source = source
        self._source_key = source_key
        self._target = target
        self._limit = limit
        self._process = process
        self._state = process.partitions.setdefault(partition_id, PartitionState())
        self._claims = Claims(target.zookeeper, target.root)
        self._next_connection = next_connection
        self._next_number = 0
        self._attempts = Attempts(partition_id, target, self._state)

    async def run(self) -> None:
        """Mirror. Returns when that is over for good: the state of the partition then says why."""
        await self._attempts.run(lambda: self._claims.check(self._partition_id, self._source_key), self._attempt)

    async def _attempt(self) -> None:
        owners = await read_owners(self._target.zookeeper, self._target.root)
        if self._partition_id not in owners:
            raise MirrorError(f"no server owns partition {self._partition_id} of the target; is a server running?")
        window: Window | None = None

        def committed(transaction_id: int) -> None:
            if window is not None:
                self._count(window, transaction_id)

        link = await TargetLink.open(
            owners[self._partition_id],
            self._partition_id,
            self._target.client_id,
            committed,
            self._next_number,
            tls=self._target.tls,
        )
        try:
            last_id = await self._session(link)
            window = Window(last_id, self._limit)
            await link.begin(last_id, self._next_connection())
            self._state.mirrored_id = last_id
            self._attempts.show(Stage.WORKING)
            logger.info("partition %d is mirrored behind transaction %d", self._partition_id, last_id)
            await self._copy(link, window)
        finally:
            self._next_number = link.next_number
            await link.close()

    async def _session(self, link: TargetLink) -> int:
        """Begin the exclusive session of this attempt; the end of the target."""
        seen_id = await link.last_transaction_id()
        await self._check_beginning(link, seen_id)
        last_id = await link.fence()
        self._state.sessions += 1
        try:
            if last_id != seen_id:
                await self._check_beginning(link, last_id)
            await self._claims.take(self._partition_id, self._source_key)
        except MirrorStoppedError:
            await link.release()  # others may have a right to write there
            raise
        return last_id

    async def _check_beginning(self, link: TargetLink, last_id: int) -> None:
        try:
            await check_beginning(self._partition_id, self._source, link, last_id)
        except MirrorError:
            raise
        except TrimmedError as error:
            raise SourceTrimmedError(self._partition_id, last_id, error.first_available) from error
        except WaltzError as error:
            if link.ended.done():
                raise
            raise SourceFailedError(str(error)) from error

    def _count(self, window: Window, transaction_id: int) -> None:
        count, size_bytes = window.committed(transaction_id)
        self._process.transactions += count
        self._process.size_bytes += size_bytes
        self._state.mirrored_id = window.committed_id
        self._state.in_flight_bytes = window.size_bytes
        if count:
            self._attempts.progressed()

    async def _copy(self, link: TargetLink, window: Window) -> None:
        """Append for ever. Raises the error that ends it."""
        works: tuple[Coroutine[Any, Any, None], ...] = (self._send(link, window), _watch(link, window))
        tasks = {asyncio.get_running_loop().create_task(work) for work in works}
        try:
            await asyncio.wait({*tasks, link.ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if link.ended.done():  # the others only follow
            link.ended.result()
        for task in tasks:
            if not task.cancelled():
                task.result()

    async def _send(self, link: TargetLink, window: Window) -> None:
        batches = self._source.following(window.committed_id)
        async with contextlib.aclosing(batches):
            while True:
                try:
                    records = await anext(batches)
                except TrimmedError as error:
                    raise SourceTrimmedError(self._partition_id, window.next_id, error.first_available) from error
                except WaltzError as error:
                    raise SourceFailedError(str(error)) from error
                for record in records:
                    size_bytes = len(record.data)
                    while not (link.may_send and window.admits(size_bytes)):
                        link.hurry.clear()
                        await link.hurry.wait()
                    assert record.transaction_id == window.next_id, "the feed of the source has no gap"
                    window.sent(size_bytes)
                    link.append(record)
                self._state.in_flight_bytes = window.size_bytes


async def _watch(link: TargetLink, window: Window) -> None:
    """End when the target commits nothing of what was sent."""
    while True:
        before = window.committed_id
        waited = window.transactions > 0
        await asyncio.sleep(STALL_S / 2)
        if not waited or window.committed_id != before:
            continue
        link.ask_outcome()
        await asyncio.sleep(STALL_S / 2)
        if window.committed_id == before:
            raise DeadlineExceededError(f"the target has committed nothing of what was sent for {STALL_S:g} s")
