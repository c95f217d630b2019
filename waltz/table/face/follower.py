"""Applies the log to the store of a table, and lets others wait for its progress."""

import asyncio
import bisect
import contextlib
import logging
from collections.abc import Sequence
from itertools import count
from operator import itemgetter

from waltz.client.errors import ClientClosedError, TrimmedError
from waltz.client.plain.feed import BatchFeed
from waltz.common.records import Record
from waltz.table.envelope import Envelope, announced_body_bytes
from waltz.table.errors import CodecUnavailableError, TableError
from waltz.table.face.clock import Told
from waltz.table.face.decoding import LOOP_BYTES, decoded
from waltz.table.stores.interface import Changes, Store
from waltz.table.view import steps

logger = logging.getLogger(__name__)

_first = itemgetter(0)


class Follower:
    """Reads the log of a partition from the end of the store on, on the loop of its client."""

    def __init__(self, feed: BatchFeed, store: Store, max_body_bytes: int) -> None:
        """``feed`` begins at the end of the store."""
        self._feed = feed
        self._partition_id = feed.partition_id
        self._store = store
        self._max_body_bytes = max_body_bytes
        self.newest = Told()
        """The times of the rows that were applied."""
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = count()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to follow."""
        self._task = asyncio.create_task(self._follow(), name=f"table of partition {self._partition_id}")
        self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """End the follower; waiting calls raise an error."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._feed.aclose()

    async def reached(self, transaction_id: int) -> None:
        """Return when the store has the effect of the transaction.

        Raises:
            TableError: The view has stopped, even after that transaction; the reason is the exception's cause.
            CodecUnavailableError: It has stopped at an envelope of a codec that is not installed.
            TrimmedError: It has stopped because what comes next is trimmed.
        """
        task = self._task
        if task is None or task.done():  # even for applied transactions: an old state would pass for the present one
            raise self._stopped()
        if self._store.progress.applied >= transaction_id:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        bisect.insort(self._waiting, (transaction_id, next(self._numbers), future), key=_first)
        await future

    async def _follow(self) -> None:
        async with self._feed as feed:
            await feed.begin_at_last(
                lambda error: logger.warning(
                    "the view of partition %d waits for its log: %s", self._partition_id, error
                )
            )
            while True:
                if self._store.removing:  # one page of a removal, then new records
                    await self._apply(await feed.next_batch(timeout_s=0.0))
                    await self._remove_page()
                else:
                    await self._apply(await feed.next_batch())

    async def _apply(self, records: Sequence[Record]) -> None:
        small: list[tuple[int, bytes]] = []
        for transaction_id, data in ((record.transaction_id, record.data) for record in records):
            if announced_body_bytes(data) <= LOOP_BYTES:
                small.append((transaction_id, data))
                continue
            await self._write(small, records)
            small = []
            envelope = await decoded(transaction_id, data, self._max_body_bytes)
            await self._write([(transaction_id, envelope)], records)
        await self._write(small, records)

    async def _write(
        self, transactions: Sequence[tuple[int, bytes | Envelope | None]], records: Sequence[Record]
    ) -> None:
        """Write some of ``records``."""
        for step in steps(transactions, self._store.progress.applied, max_body_bytes=self._max_body_bytes):
            step = step._replace(request_id=bytes(records[step.applied - records[0].transaction_id].req_id))
            if isinstance(step, Changes):
                self._store.apply(step)
            else:
                while self._store.removing:
                    await self._remove_page()
                self._store.sweep(step)
            self._wake()
            await asyncio.sleep(0)  # a write takes milliseconds; other work gets a turn between two writes

    async def _remove_page(self) -> None:
        self._store.remove_page()
        await asyncio.sleep(0)

    def _wake(self) -> None:
        self.newest.tell(self._store.progress.newest_ms, asyncio.get_running_loop().time())
        behind = bisect.bisect_right(self._waiting, self._store.progress.applied, key=_first)
        for _, _, future in self._waiting[:behind]:
            if not future.done():
                future.set_result(None)
        del self._waiting[:behind]

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, ClientClosedError):
            logger.error(
                "the view of partition %d has stopped, and is not read until the table is opened again: %s",
                self._partition_id,
                error,
            )
        waiting, self._waiting = self._waiting, []
        for _, _, future in waiting:
            if not future.done():
                future.set_exception(self._stopped())

    def _stopped(self) -> TableError | TrimmedError:
        cause: BaseException | None = None
        if self._task is not None and self._task.done():
            with contextlib.suppress(asyncio.CancelledError):
                cause = self._task.exception()
        if isinstance(cause, TrimmedError):
            return TrimmedError(cause.partition_id, cause.first_available)
        kind = CodecUnavailableError if isinstance(cause, CodecUnavailableError) else TableError
        error = kind(f"the view of partition {self._partition_id} has stopped: {cause or 'it is closed'}")
        error.__cause__ = cause
        return error
