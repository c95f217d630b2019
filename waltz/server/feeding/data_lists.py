"""Bulk reads of one partition (version 5): lists of transactions with their data, from the cache and the storages.

Cached records are passed on as the bytes that went to the storages. Records read from the storages are not kept: a
reader of the whole log must not displace recent commits.

The bytes read for one connection at a time have a limit for any number of partitions: all of them may be complete when
the client stops reading. A bulk read without room waits aside, so that those of other connections pass.
"""

import asyncio
import functools
import logging
from collections import deque
from collections.abc import Callable

from waltz.common.errors import WaltzError
from waltz.common.ids import LONG_MIN
from waltz.common.records import RECORD_OVERHEAD_BYTES, Record, encode_record
from waltz.common.tasks import owned
from waltz.common.wire.version5 import (
    DataListStatus,
    TransactionDataListRequest,
    TransactionDataListResponse,
    encode_transaction_data_list,
)
from waltz.server.feeding.caches import TransactionCache
from waltz.server.feeding.transaction_data import ReadRecords
from waltz.server.requests.link import ClientLink

logger = logging.getLogger(__name__)

MAX_COUNT = 10_000
MAX_BYTES = 8 << 20
"""Limits of one answer, also for larger requests; the first record is sent whatever its size."""

MAX_READERS = 2
"""Bulk reads of one partition that read from the storages at a time."""

MAX_WAITING_REQUESTS = 1000
"""Bulk reads of one partition that may wait for that; more are told to try again."""

MAX_LINK_BYTES = 4 * MAX_BYTES
"""Bytes that bulk reads from the storages may take on one connection, over all partitions."""


class _BulkRead:
    """A request that waits for the storages."""

    def __init__(
        self, reader: "TransactionListReader", link: ClientLink, request: TransactionDataListRequest, mark: int
    ) -> None:
        self.link = link
        self.request = request
        self.high_water_mark = mark
        self.size_bytes = _max_bytes(request)
        self._reader = reader

    def resume(self) -> None:
        self._reader.resume(self)


class _List:
    """An answer under construction: ``count`` records from ``first_id`` on, in ``pieces``."""

    def __init__(self, first_id: int, max_count: int, max_bytes: int) -> None:
        self.first_id = first_id
        self.count = 0
        self.pieces: list[bytes] = []
        self.missing = max_count
        self.room_bytes = max_bytes
        """Bytes that the limit still admits."""

    @property
    def next_id(self) -> int:
        return self.first_id + self.count

    @property
    def full(self) -> bool:
        return not self.missing or (self.count > 0 and self.room_bytes < RECORD_OVERHEAD_BYTES)

    def add(self, count: int, piece: bytes) -> None:
        self.count += count
        self.missing -= count
        self.room_bytes -= len(piece)
        self.pieces.append(piece)


class TransactionListReader:
    """Serves the bulk reads of one partition; owns the tasks that read."""

    def __init__(
        self,
        partition_id: int,
        cache: TransactionCache,
        read_records: ReadRecords,
        on_miss: Callable[[], None],
        knows_end: Callable[[], bool],
    ) -> None:
        """``knows_end`` tells whether the high-water mark may be given as the end of the log: not while another server
        may have committed more. Then an answer gives the id of its last record instead."""
        self._partition_id = partition_id
        self._knows_end = knows_end
        self._cache = cache
        self._read_records = read_records
        self._on_miss = on_miss
        self._waiting: deque[_BulkRead] = deque()
        self._parked: set[_BulkRead] = set()  # wait for room on their links
        self._readers: set[asyncio.Task[None]] = set()
        self._being_read: set[_BulkRead] = set()
        self._unanswered: set[tuple[ClientLink, bytes]] = set()
        """Links and request ids of all bulk reads that wait, are parked or are being read."""

    def request(self, link: ClientLink, request: TransactionDataListRequest, high_water_mark: int) -> None:
        """Answer now or later; a link that has too much unsent gets its request back, postponed."""
        if not link.channel.writable:
            link.postpone(request)
            return
        if request.transaction_id < 0:
            self._fail(link, request, high_water_mark, f"there is no transaction {request.transaction_id}")
            return
        found = self._from_cache(request, high_water_mark)
        if found is not None:
            self._answer(link, request, high_water_mark, found)
            return
        if (link, request.req_id) in self._unanswered:
            return  # a repeat: its answer is under way
        self._on_miss()
        if len(self._waiting) + len(self._parked) >= MAX_WAITING_REQUESTS:
            refuse_list(link, request)
            return
        self._unanswered.add((link, request.req_id))
        self._waiting.append(_BulkRead(self, link, request, high_water_mark))
        self._read_waiting()

    def resume(self, parked: _BulkRead) -> None:
        """Read for a link that has room again."""
        if parked in self._parked:
            self._parked.remove(parked)
            self._waiting.append(parked)
            self._read_waiting()

    async def close(self) -> None:
        """End all reads; waiting clients are told to try again elsewhere."""
        waiting = [*self._waiting, *self._parked]
        self._waiting.clear()
        self._parked.clear()
        readers = list(self._readers)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        for bulk_read in [*self._being_read, *waiting]:
            refuse_list(bulk_read.link, bulk_read.request)
        self._being_read.clear()
        self._unanswered.clear()

    def _from_cache(self, request: TransactionDataListRequest, high_water_mark: int) -> _List | None:
        """The whole answer, if all of it is cached."""
        found = _wanted(request, high_water_mark)
        ended = self._take_cached(found)
        if not ended and found.count:
            ended = self._cache.get(self._partition_id, found.next_id) is not None  # which is too large
        return found if ended else None

    def _take_cached(self, found: _List) -> bool:
        """Add cached records; returns whether the answer is complete."""
        if found.full:
            return True
        count, pieces = self._cache.slice(self._partition_id, found.next_id, found.missing, found.room_bytes)
        if not count:
            return False
        piece = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if found.count and len(piece) > found.room_bytes:
            return True
        found.add(count, piece)
        return found.full

    def _read_waiting(self) -> None:
        while self._waiting and len(self._readers) < MAX_READERS:
            bulk_read = self._waiting.popleft()
            if self._may_read(bulk_read):
                self._being_read.add(bulk_read)
                bulk_read.link.list_bytes += bulk_read.size_bytes
                task = owned(self._serve_safely(bulk_read), f"a reader of lists of partition {self._partition_id}")
                self._readers.add(task)
                task.add_done_callback(functools.partial(self._ended, bulk_read))

    def _may_read(self, bulk_read: _BulkRead) -> bool:
        """Whether the bulk read may begin; otherwise the connection has ended, or the read waits in its link."""
        link = bulk_read.link
        if link.channel.closed:
            self._unanswered.discard((link, bulk_read.request.req_id))
            return False
        if not link.channel.writable:
            self._unanswered.discard((link, bulk_read.request.req_id))
            link.postpone(bulk_read.request)
            return False
        if not _has_room(link, bulk_read.size_bytes):
            self._parked.add(bulk_read)
            link.parked_lists.append(bulk_read)
            return False
        return True

    def _ended(self, bulk_read: _BulkRead, task: asyncio.Task[None]) -> None:
        """Read what waits for the room, of whatever partition, and for the reader. A callback of the task, which may be
        cancelled before it has begun."""
        self._readers.discard(task)
        link = bulk_read.link
        link.list_bytes -= bulk_read.size_bytes
        while link.parked_lists and _has_room(link, link.parked_lists[0].size_bytes):
            link.parked_lists.popleft().resume()
        self._read_waiting()

    async def _serve_safely(self, bulk_read: _BulkRead) -> None:
        link, request, high_water_mark = bulk_read.link, bulk_read.request, bulk_read.high_water_mark
        try:
            await self._serve(link, request, high_water_mark)
        except Exception as error:
            logger.exception("partition %d: a bulk read failed for an unforeseen reason", self._partition_id)
            self._fail(link, request, high_water_mark, f"the server has failed: {error!r}")
        self._being_read.discard(bulk_read)
        self._unanswered.discard((link, request.req_id))

    async def _serve(self, link: ClientLink, request: TransactionDataListRequest, high_water_mark: int) -> None:
        try:
            found = await self._read(request, high_water_mark)
        except (WaltzError, OSError) as error:
            logger.warning("partition %d: a bulk read failed: %s", self._partition_id, error)
            self._fail(link, request, high_water_mark, str(error))
            return
        channel = link.channel
        if not (channel.writable or channel.closed) and channel.unsent_bytes > MAX_LINK_BYTES:
            link.postpone(request)  # a single transaction may exceed the requested size
        else:
            self._answer(link, request, high_water_mark, found)

    def _answer(
        self, link: ClientLink, request: TransactionDataListRequest, high_water_mark: int, found: _List
    ) -> None:
        if link.channel.closed:
            return
        if not self._knows_end():
            if not found.count:
                refuse_list(link, request)
                return
            high_water_mark = found.next_id - 1
        records = b"".join(found.pieces)
        link.channel.send(
            encode_transaction_data_list(
                link.channel.version, request.req_id, request.transaction_id, high_water_mark, found.count, records
            )
        )

    def _fail(self, link: ClientLink, request: TransactionDataListRequest, high_water_mark: int, text: str) -> None:
        """The transactions could not be read."""
        mark = high_water_mark if self._knows_end() else LONG_MIN
        status = DataListStatus.FAILED
        link.send(TransactionDataListResponse(request.req_id, request.transaction_id, status, mark, [], text))

    async def _read(self, request: TransactionDataListRequest, high_water_mark: int) -> _List:
        found = _wanted(request, high_water_mark)
        while True:
            before = found.count
            if self._take_cached(found):
                break
            if found.count > before:
                continue
            records = await self._read_records(found.next_id, found.missing, found.room_bytes)
            if not records:
                raise WaltzError(f"the storages have not got transaction {found.next_id}, which is committed")
            if not _add_records(found, records):
                break
        return found


def _wanted(request: TransactionDataListRequest, high_water_mark: int) -> _List:
    committed = max(high_water_mark - request.transaction_id + 1, 0)
    count = min(max(request.max_count, 1), MAX_COUNT, committed)
    return _List(request.transaction_id, count, _max_bytes(request))


def _max_bytes(request: TransactionDataListRequest) -> int:
    return min(max(request.max_bytes, 1), MAX_BYTES)


def _has_room(link: ClientLink, size_bytes: int) -> bool:
    """Whether ``size_bytes`` more may be read for the link; a single bulk read is always allowed."""
    return not link.list_bytes or link.list_bytes + size_bytes <= MAX_LINK_BYTES


def _add_records(found: _List, records: list[Record]) -> bool:
    """Add records while there is room; returns whether all were added."""
    pieces: list[bytes] = []
    room_bytes = found.room_bytes
    for expected_id, record in enumerate(records, found.next_id):
        if record.transaction_id != expected_id:
            raise WaltzError(f"the storages answered transaction {record.transaction_id} in the place of {expected_id}")
        piece = encode_record(record)
        if len(piece) > room_bytes and (found.count or pieces):
            break
        room_bytes -= len(piece)
        pieces.append(piece)
    if pieces:
        found.add(len(pieces), b"".join(pieces))
    return len(pieces) == len(records)


def refuse_list(link: ClientLink, request: TransactionDataListRequest) -> None:
    """Refuse: the partition is not here, or not yet, or another server may have committed the requested records."""
    status = DataListStatus.NOT_READY
    link.send(TransactionDataListResponse(request.req_id, request.transaction_id, status, LONG_MIN, [], None))


def fail_list(link: ClientLink, request: TransactionDataListRequest, text: str) -> None:
    """Refuse for a reason that does not pass."""
    status = DataListStatus.FAILED
    link.send(TransactionDataListResponse(request.req_id, request.transaction_id, status, LONG_MIN, [], text))
