"""Reads the log of one partition in order, with data: in bulk if the server has bulk reads, otherwise one by one."""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeAlias

from waltz.client.engine.engine import Engine
from waltz.client.engine.joining import Joining
from waltz.client.engine.partition.feed import Applier
from waltz.client.engine.partition.partition import StreamPartition
from waltz.client.engine.reads.data_lists import PendingList
from waltz.client.engine.reads.data_requests import MAX_CHECKSUM_FAILURES
from waltz.client.engine.tasks import Signal
from waltz.client.errors import ClientClosedError, DataChecksumError, RpcError
from waltz.client.transaction import Transaction
from waltz.common.checksum import checksum, crc32
from waltz.common.errors import DeadlineExceededError, WaltzError
from waltz.common.net.backoff import Backoff
from waltz.common.records import Record

_FIRST_COUNT = 500
_MAX_COUNT = 10_000
_MAX_BYTES = 8 << 20
"""The limits for reads by servers."""

_QUEUED_RECORDS = 1024
"""The largest number of transactions that were read one by one and wait for the consumer."""


OpenEngine: TypeAlias = Callable[[Applier], Coroutine[Any, Any, Engine]]
"""A function that opens an engine with an applier for its feed."""


class Share(NamedTuple):
    """The limits of one reader for data that is under way or not consumed yet."""

    requests: int
    """The number of bulk reads."""
    request_bytes: int
    """The largest size of transaction data in one bulk read. A single transaction may be larger."""


class BulkReader:
    """A reader with a few bulk reads under way while earlier batches are consumed. Has no task of its own."""

    def __init__(self, engine: Engine, partition_id: int, after: int, share: Share | None = None) -> None:
        self.partition: StreamPartition | None = None
        """Has to be set before the first batch is read."""
        self.next_id = after + 1
        """The id of the first transaction in the next batch."""
        options = engine.options
        self._engine = engine
        self._partition_id = partition_id
        self._options = options
        self.share = share or Share(options.list_requests, options.list_request_bytes)
        """The limits of its reads."""
        self._max_bytes = _MAX_BYTES if share is None else share.request_bytes
        self._ahead: deque[PendingList] = deque()
        self._asked_until = after + 1
        self._count = _FIRST_COUNT
        self._known_mark = -1
        self._checksum_failures = 0
        self._backoff = Backoff(options.data_retry_initial_s, options.data_retry_maximum_s, random.Random())

    async def next_batch(self) -> list[Record]:
        """The next transactions. Waits until there is at least one.

        Raises ``BulkReadsNotSupportedError``, ``DeadlineExceededError`` when servers fail for too long,
        ``DataChecksumError``, ``TrimmedError`` and ``ClientClosedError``.
        """
        loop = asyncio.get_running_loop()
        failing_since_s: float | None = None
        while True:
            try:
                records = await self._try()
            except RpcError as error:
                self._start_over()
                now_s = loop.time()
                failing_since_s = failing_since_s or now_s
                if now_s - failing_since_s >= self._options.data_request_lifetime_s:
                    raise DeadlineExceededError(
                        f"transaction {self.next_id} of partition {self._partition_id} could not be read within "
                        f"{self._options.data_request_lifetime_s:g} s: {error}"
                    ) from error
                await asyncio.sleep(self._backoff.next_delay_s())
                continue
            except BaseException:
                self._start_over()
                raise
            self._backoff.reset()
            return records

    async def _try(self) -> list[Record]:
        self._ask()
        if not self._ahead:
            await self._engine.advanced(self._partition_id, self.next_id)
            self._ask()
        request = self._ahead[0]
        records = await request.wait()
        self._known_mark = max(self._known_mark, request.high_water_mark)
        records = self._checked(records)
        self._ahead.popleft()
        self.next_id += len(records)
        if len(records) < request.max_count:
            self._start_over()  # the later reads would leave a gap
        return records

    def _ask(self) -> None:
        assert self.partition is not None
        mark = max(self._known_mark, self.partition.feed.applied)
        while len(self._ahead) < self.share.requests and self._asked_until <= mark:
            count = min(self._count, mark + 1 - self._asked_until)
            self._ahead.append(self._engine.request_list(self._partition_id, self._asked_until, count, self._max_bytes))
            self._asked_until += count

    def _start_over(self) -> None:
        self._ahead.clear()
        self._asked_until = self.next_id

    def _checked(self, records: list[Record]) -> list[Record]:
        """``records`` up to the first damaged one."""
        expected_id = self.next_id
        if not records or records[0][0] != expected_id or records[-1][0] != expected_id + len(records) - 1:
            raise RpcError(f"the server has no transaction {expected_id}, or not the next ones")
        size_bytes = 0
        for index, (transaction_id, _, _, data, expected) in enumerate(records):
            if crc32(data) != expected & 0xFFFF_FFFF:
                if index:
                    return records[:index]
                self._damaged(transaction_id)
            size_bytes += len(data)
        self._checksum_failures = 0
        average_bytes = size_bytes / len(records) + 32
        self._count = max(1, min(_MAX_COUNT, int(self.share.request_bytes / average_bytes)))
        return records

    def _damaged(self, transaction_id: int) -> None:
        self._checksum_failures += 1
        text = f"the data of transaction {transaction_id} of partition {self._partition_id} came with a wrong checksum"
        if self._checksum_failures >= MAX_CHECKSUM_FAILURES:
            raise DataChecksumError(f"{text}, {MAX_CHECKSUM_FAILURES} times")
        raise RpcError(text)


class SingleReader:
    """A reader for servers without bulk reads: an engine of its own applies the feed."""

    def __init__(self, partition_id: int, after: int, open_engine: OpenEngine, share: Share) -> None:
        self.next_id = after + 1
        """The id of the first transaction in the next batch."""
        self._after = after
        self._partition_id = partition_id
        self._joining = Joining(lambda: open_engine(Applier(self._apply, self._failed)))
        self._begun = False
        self._records: deque[Record] = deque()
        self._queued_bytes = 0
        self._max_bytes = share.requests * share.request_bytes
        self._error: Exception | None = None
        self._changed = Signal()
        self._closed = False

    async def next_batch(self) -> list[Record]:
        """The transactions received so far. Waits for at least one.

        Raises the error that prevented the join of the cluster or the read of a transaction; the next call tries again.
        Raises ``ClientClosedError``.
        """
        if not self._begun:
            await self._begin()
        while not self._records:
            if self._error is not None:
                error, self._error = self._error, None
                self._changed.notify()
                raise error
            if self._closed:
                raise ClientClosedError
            await self._changed.wait()
        records = list(self._records)
        self._records.clear()
        self._queued_bytes = 0
        self.next_id += len(records)
        self._changed.notify()
        return records

    async def close(self) -> None:
        """Stop reading."""
        self._closed = True
        self._changed.notify()
        await self._joining.close()

    async def _begin(self) -> None:
        engine = await self._joining.engine()
        await engine.set_partitions({self._partition_id}, self._mark)
        self._begun = True

    async def _mark(self, partition_id: int) -> int:
        return self._after

    @property
    def _full(self) -> bool:
        records = self._records
        return len(records) >= _QUEUED_RECORDS or (len(records) > 0 and self._queued_bytes >= self._max_bytes)

    async def _apply(self, transaction: Transaction) -> None:
        """Take a transaction when there is room for it."""
        while not self._closed and (self._error is not None or self._full):
            await self._changed.wait()
        try:
            data = await transaction.data_bytes()
        except WaltzError as error:
            self._error = error
            self._changed.notify()
            raise
        record = Record(transaction.transaction_id, transaction.req_id, transaction.header, data, checksum(data))
        self._records.append(record)
        self._queued_bytes += len(data)
        self._changed.notify()

    def _failed(self, partition_id: int, transaction_id: int, error: BaseException) -> None:
        """Keep an error for :meth:`next_batch`."""
