"""Answers to requests for transaction data of one partition: from the cache, else from the storages.

Requests that miss the cache are gathered by transaction id; a further request for the same id joins, and neighbours are
read together. A client that reads one transaction after the other gets a read ahead. A failed read fails its waiting
requests and leaves no state: the next request tries again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from waltz.common.errors import WaltzError
from waltz.common.records import Record, encode_records
from waltz.common.tasks import owned
from waltz.common.wire.client_server import TransactionDataRequest, TransactionDataResponse
from waltz.server.feeding.caches import TransactionCache
from waltz.server.requests.link import ClientLink

logger = logging.getLogger(__name__)

NOT_READY_TEXT = "partition not ready"
"""The original's answer for a partition that is not here; its clients back off and try again."""

MAX_READERS = 4
"""Reads in flight per partition."""

MAX_IDS_PER_READ = 256
MAX_BYTES_PER_READ = 4 << 20
READ_AHEAD_COUNT = 128
NEIGHBOUR_DISTANCE = 8
"""Two ids at most this far apart are read together, with all ids between them."""

MAX_WAITING_REQUESTS = 10_000
"""Limit of requests of one partition that wait for the storages; further ones are told to try again."""

_RECENT_READS = 16

ReadRecords = Callable[[int, int, int], Awaitable[list[Record]]]
"""Reads committed records from an id on, up to a number and about a size in bytes; raises ``WaltzError``."""

_Waiter = tuple[ClientLink, TransactionDataRequest]


def not_found_text(partition_id: int, transaction_id: int) -> str:
    """The original's answer for a transaction that does not exist (it does not separate its two numbers either)."""
    return (
        "com.wepay.waltz.store.exception.TransactionNotFoundException: "
        f"partition={partition_id}transactionId={transaction_id}"
    )


def error_response(request: TransactionDataRequest, text: str) -> TransactionDataResponse:
    """The answer with the reason for missing data."""
    return TransactionDataResponse(request.req_id, request.transaction_id, None, 0, text)


class TransactionDataReader:
    """Serves the requests of one partition; owns the tasks that read."""

    def __init__(
        self, partition_id: int, cache: TransactionCache, read_records: ReadRecords, on_miss: Callable[[], None]
    ) -> None:
        self._partition_id = partition_id
        self._cache = cache
        self._read_records = read_records
        self._on_miss = on_miss
        self._high_water_mark = -1
        self._wanted: dict[int, list[_Waiter]] = {}
        self._being_read: dict[int, list[_Waiter]] = {}
        self._waiting_count = 0
        self._recent_ends: deque[int] = deque(maxlen=_RECENT_READS)
        self._readers: set[asyncio.Task[None]] = set()

    def request(self, link: ClientLink, request: TransactionDataRequest, high_water_mark: int) -> None:
        """Answer now or later; a link that has too much unsent gets its request back, postponed."""
        if not link.channel.writable:
            link.postpone(request)
            return
        transaction_id = request.transaction_id
        if not 0 <= transaction_id <= high_water_mark:
            link.send(error_response(request, not_found_text(self._partition_id, transaction_id)))
            return
        found = self._cache.get(self._partition_id, transaction_id)
        if found is not None:
            _answer(link, request, found)
            return
        self._on_miss()
        if self._waiting_count >= MAX_WAITING_REQUESTS:
            link.send(error_response(request, NOT_READY_TEXT))
            return
        self._waiting_count += 1
        self._high_water_mark = high_water_mark
        if transaction_id in self._being_read:
            self._being_read[transaction_id].append((link, request))
            return
        self._wanted.setdefault(transaction_id, []).append((link, request))
        if len(self._readers) < MAX_READERS:
            what = f"a reader of data of partition {self._partition_id}"
            self._readers.add(owned(self._read_wanted(), what, self._reader_died))

    async def close(self) -> None:
        """End all reads; waiting clients are told to try again elsewhere."""
        readers = list(self._readers)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        for waiters in [*self._wanted.values(), *self._being_read.values()]:
            self._fail(waiters, NOT_READY_TEXT)
        self._wanted.clear()
        self._being_read.clear()

    def _reader_died(self, error: Exception) -> None:
        """Start another reader: a dead one may have been the last."""
        wanted, self._wanted = self._wanted, {}
        for waiters in wanted.values():
            self._fail(waiters, f"the server has failed: {error!r}")

    async def _read_wanted(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            await self._read_while_wanted()
        finally:  # at once, so that a new request finds a place for a reader
            self._readers.discard(task)

    async def _read_while_wanted(self) -> None:
        while self._wanted:
            first, count = self._next_read()
            taken = {}
            for transaction_id in range(first, first + count):
                waiters = self._wanted.pop(transaction_id, None)
                if waiters is not None:
                    taken[transaction_id] = waiters
            self._being_read.update(taken)
            try:
                records = await self._read_records(first, count, MAX_BYTES_PER_READ)
                self._read_succeeded(first, taken, records)
            except (WaltzError, OSError) as error:
                logger.warning("partition %d: cannot read transaction %d: %s", self._partition_id, first, error)
                self._read_failed(taken, str(error))
            except Exception as error:
                logger.exception("partition %d: a read failed for an unforeseen reason", self._partition_id)
                self._read_failed(taken, f"the server has failed: {error!r}")

    def _next_read(self) -> tuple[int, int]:
        """The range around the id of the first waiting request."""
        first = last = next(iter(self._wanted))
        while (lower := self._neighbour(first, -1)) is not None and last - lower < MAX_IDS_PER_READ:
            first = lower
        while (upper := self._neighbour(last, 1)) is not None and upper - first < MAX_IDS_PER_READ:
            last = upper
        count = last - first + 1
        if first in self._recent_ends:
            count = max(count, READ_AHEAD_COUNT)
        return first, min(count, self._high_water_mark - first + 1)

    def _neighbour(self, transaction_id: int, direction: int) -> int | None:
        for distance in range(1, NEIGHBOUR_DISTANCE + 1):
            if transaction_id + direction * distance in self._wanted:
                return transaction_id + direction * distance
        return None

    def _read_succeeded(self, first: int, taken: dict[int, list[_Waiter]], records: list[Record]) -> None:
        if any(record.transaction_id != first + offset for offset, record in enumerate(records)):
            self._read_failed(taken, f"the storages answered other transactions than {first} and its successors")
            return
        if not records:
            self._read_failed(taken, f"the storages have not got transaction {first}, which is committed")
            return
        self._cache.add(self._partition_id, first, len(records), encode_records(records))
        self._recent_ends.append(first + len(records))
        for transaction_id in taken:
            waiters = self._being_read.pop(transaction_id)
            offset = transaction_id - first
            if offset < len(records):
                self._waiting_count -= len(waiters)
                for link, request in waiters:
                    _answer(link, request, records[offset])
            else:  # the read was limited by bytes
                self._wanted.setdefault(transaction_id, []).extend(waiters)

    def _read_failed(self, taken: dict[int, list[_Waiter]], text: str) -> None:
        for transaction_id in taken:
            self._fail(self._being_read.pop(transaction_id, []), text)

    def _fail(self, waiters: list[_Waiter], text: str) -> None:
        self._waiting_count -= len(waiters)
        for link, request in waiters:
            link.send(error_response(request, text))


def _answer(link: ClientLink, request: TransactionDataRequest, found: Record) -> None:
    """Send the data, or postpone the request if the channel has too many unsent bytes."""
    if link.channel.closed:
        return
    if link.channel.writable:
        link.send(TransactionDataResponse(request.req_id, request.transaction_id, found.data, found.checksum, None))
    else:
        link.postpone(request)
