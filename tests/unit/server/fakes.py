"""Stand-ins for what surrounds a partition: a channel that remembers, a log that does what it is told."""

import asyncio
import random
from collections.abc import Sequence

from waltz.common.access import ANONYMOUS, Proof
from waltz.common.checksum import checksum
from waltz.common.errors import WaltzError
from waltz.common.ids import NO_TRANSACTION, ReqId
from waltz.common.metrics.registry import Registry
from waltz.common.records import Record, RecordHeader
from waltz.common.wire.client_server import (
    FeedData,
    FeedRequest,
    FlushRequest,
    Message,
    MountRequest,
    decode,
)
from waltz.common.wire.frames import CLIENT_SERVER, FrameSplitter
from waltz.common.wire.storage_times import TimeQuestion
from waltz.server.feeding.caches import FeedCache, TransactionCache
from waltz.server.partition.partition import PartitionOptions, ServerPartition
from waltz.server.partition.partition_metrics import PartitionMetrics
from waltz.server.requests.appends import AppendCall, append_call
from waltz.server.requests.link import ClientLink
from waltz.server.store.interface import Append, LogListener, TimeEntry, encode_appends
from waltz.server.store.memory import MemoryBudget
from waltz.server.store.replica.replica_view import ReplicaView
from waltz.server.store.session.times import best_entry

GENERATION = 3


class FakeChannel:
    """Keeps what is sent; says what the test wants about itself."""

    def __init__(self, version: int = 4) -> None:
        self.version = version
        self.writable = True
        self.closed = False
        self.peer = "client:1"
        self.principal = ANONYMOUS
        self.proof = Proof.CERTIFICATE
        self.reading = True
        self.error: Exception | None = None
        self.unsent_bytes = 0
        self.writable_for: int | None = None
        self._sent = bytearray()

    def send(self, frame: bytes) -> None:
        assert not self.closed
        self._sent += frame
        if self.writable_for is not None:
            self.writable_for -= 1
            self.writable = self.writable_for > 0

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.abort()

    def abort(self, error: Exception | None = None) -> None:
        self.closed = True
        self.writable = False
        self.error = error

    def take_bytes(self) -> bytes:
        """What was sent since the last call, as it was sent."""
        sent = bytes(self._sent)
        self._sent.clear()
        return sent

    def take(self) -> list[Message]:
        """What was sent since the last call, decoded."""
        splitter = FrameSplitter(CLIENT_SERVER.magic, self.version)
        buffer, bounds = splitter.feed(self.take_bytes())
        return [decode(buffer, start, end, self.version) for start, end in bounds]


def new_link(client_id: int = 1, seq_num: int | None = 0, number: int = 0, version: int = 4) -> ClientLink:
    link = ClientLink(FakeChannel(version), number)
    link.client_id = client_id
    link.seq_num = seq_num
    return link


def channel_of(link: ClientLink) -> FakeChannel:
    assert isinstance(link.channel, FakeChannel)
    return link.channel


def take(link: ClientLink) -> list[Message]:
    return channel_of(link).take()


def fed_ids(messages: Sequence[Message]) -> list[int]:
    return [message.transaction_id for message in messages if isinstance(message, FeedData)]


def others(messages: Sequence[Message]) -> list[Message]:
    return [message for message in messages if not isinstance(message, FeedData)]


def record(transaction_id: int, data: bytes | None = None) -> Record:
    data = b"data %d" % transaction_id if data is None else data
    return Record(transaction_id, ReqId.of(9, 9, 0, transaction_id), transaction_id * 10, data, checksum(data))


class FakeLog:
    """A log that commits when the test says so."""

    def __init__(self, listener: LogListener, records: int = 0) -> None:
        self.listener = listener
        self.records = [record(number) for number in range(records)]
        self.undecided: list[Append] = []
        self.written: int | None = None
        """How many of the undecided were given to replicas; all, unless told."""
        self.open = False
        self.congested = False
        self.healthy = True
        self.missing_storages: list[str] = []
        self.stored_by_all = NO_TRANSACTION
        self.awaited: list[int] = []
        self.awaits_some = False
        self.trouble: str | None = None
        self.replica_views: tuple[ReplicaView, ...] = ()
        self.generation = GENERATION
        self.opened_generation = -1
        self.session_id = 0
        self.renewals = 0
        self.replicas: frozenset[str] = frozenset()
        self.started = 0
        self.closed = 0
        self.batches: list[int] = []
        self.is_owner = True
        self.confirmations = 0
        self.times: list[TimeEntry] = []
        self.time_error: Exception | None = None
        self.reads: list[tuple[int, int]] = []
        self.failing_reads = 0
        self.max_records_per_read = 1 << 30
        self.first_available = 0

    def start(self) -> None:
        self.started += 1

    async def close(self) -> None:
        self.closed += 1
        self.open = False

    def confirm_if_idle(self, *, unasked: bool) -> None: ...

    def await_all(self, transaction_id: int) -> None:
        self.awaited.append(transaction_id)
        self.listener.stored_by_all(self.stored_by_all, 3)

    def await_some(self, wanted: bool) -> None:
        self.awaits_some = wanted

    def store_by_all(self, transaction_id: int) -> None:
        """All three storages have everything up to a transaction."""
        self.stored_by_all = transaction_id
        self.listener.stored_by_all(transaction_id, 3)

    def set_generation(self, generation: int) -> None:
        self.generation = generation

    def set_replicas(self, replicas: frozenset[str]) -> None:
        self.replicas = replicas

    def set_trim_point(self, transaction_id: int) -> None:
        self.first_available = max(self.first_available, transaction_id)

    @property
    def takes_more(self) -> bool:
        return self.open and not self.congested

    @property
    def mark(self) -> int:
        return len(self.records) - 1

    def append(self, appends: Sequence[Append]) -> None:
        assert self.open
        first_id = len(self.records) + len(self.undecided)
        assert [append.transaction_id for append in appends] == list(range(first_id, first_id + len(appends)))
        self.undecided.extend(appends)
        self.batches.append(len(appends))

    def open_session(self, *, changed: bool = False) -> None:
        self.begin_session(unbroken=False)
        self.open = True
        self.opened_generation = self.generation
        self.listener.session_opened(self.mark, changed)

    def begin_session(self, *, unbroken: bool) -> None:
        self.session_id += 1
        self.listener.session_begun(self.session_id, unbroken, self.mark)

    def renew(self) -> None:
        self.renewals += 1

    def end_session(self) -> None:
        self.open = False
        written = len(self.undecided) if self.written is None else self.written
        unwritten, self.undecided = self.undecided[written:], self.undecided[:written]
        self.listener.session_ended(unwritten)

    def reopen(self, committed: int, foreign: int = 0) -> None:
        """A new session decides: so many of the undecided are there, the others not, then others' records."""
        changed = bool(self.undecided or foreign)
        if committed:
            self._commit(committed)
        failed, self.undecided = self.undecided, []
        if failed:
            self.listener.failed(failed)
        for _ in range(foreign):
            self.records.append(record(len(self.records)))
        self.open_session(changed=changed)

    def commit(self, count: int | None = None) -> None:
        """The oldest undecided appends are committed, as one batch."""
        self._commit(len(self.undecided) if count is None else count)

    def _commit(self, count: int) -> None:
        appends, self.undecided = self.undecided[:count], self.undecided[count:]
        for append in appends:
            self.records.append(
                Record(append.transaction_id, append.req_id, append.header, append.data, append.checksum)
            )
        self.listener.batch_committed(appends, [encode_appends(appends)])

    async def confirmed_mark(self, timeout_s: float) -> int | None:
        self.confirmations += 1
        mark = self.mark
        await asyncio.sleep(0)
        return mark if self.open and self.is_owner else None

    def tell_time(self, time_ms: int) -> None:
        """Nobody asks for it here."""

    async def time_entry(self, question: TimeQuestion, value: int, timeout_s: float) -> TimeEntry | None:
        await asyncio.sleep(0)
        if self.time_error is not None:
            raise self.time_error
        return best_entry(question, value, self.times)

    async def read(self, first_id: int, max_count: int, max_bytes: int, timeout_s: float) -> list[Record]:
        self._read(first_id, max_count)
        return self.records[first_id : first_id + min(max_count, self.max_records_per_read)]

    async def read_headers(self, first_id: int, max_count: int, timeout_s: float) -> list[RecordHeader]:
        self._read(first_id, max_count)
        records = self.records[first_id : first_id + min(max_count, self.max_records_per_read)]
        return [RecordHeader(found.transaction_id, found.req_id, found.header) for found in records]

    def _read(self, first_id: int, max_count: int) -> None:
        self.reads.append((first_id, max_count))
        if self.failing_reads:
            self.failing_reads -= 1
            raise WaltzError("no replica answered")


class PartitionSetup:
    """A partition with its surroundings."""

    def __init__(
        self,
        records: int = 0,
        options: PartitionOptions | None = None,
        generation: int = GENERATION,
        memory: MemoryBudget | None = None,
        registry: Registry | None = None,
    ) -> None:
        self.registry = registry or Registry()
        self.memory = memory or MemoryBudget()
        self.feed_cache = FeedCache(1 << 20)
        self.transaction_cache = TransactionCache(1 << 20)
        self.logs: list[FakeLog] = []

        def make_log(listener: LogListener) -> FakeLog:
            self.logs.append(FakeLog(listener, records))
            return self.logs[-1]

        self.partition = ServerPartition(
            0,
            generation,
            options or PartitionOptions(),
            feed_cache=self.feed_cache,
            transaction_cache=self.transaction_cache,
            metrics=PartitionMetrics(self.registry, 0),
            random_source=random.Random(1),
            memory=self.memory,
            log_factory=make_log,
        )
        self.log = self.logs[0]

    def meter(self, name: str) -> int:
        return self.registry.meter("waltz-server.partition-0", name).count

    def mounted(self, link: ClientLink, mark: int | None = None) -> ClientLink:
        """Mount a link at a mark (the tip, unless told) and forget the answer."""
        self.partition.mount(link, mount(0, self.log.mark if mark is None else mark, link.client_id or 0))
        take(link)
        return link


def req_id(number: int, client_id: int = 1, generation: int = GENERATION) -> ReqId:
    return ReqId.of(client_id, generation, 0, number)


def mount(number: int, mark: int, client_id: int = 1, generation: int = GENERATION, seq_num: int = 0) -> MountRequest:
    return MountRequest(req_id(number, client_id, generation), mark, seq_num)


def feed(number: int, mark: int) -> FeedRequest:
    return FeedRequest(req_id(number), mark)


def flush(number: int) -> FlushRequest:
    return FlushRequest(req_id(number))


def append(
    number: int,
    mark: int = -1,
    write: Sequence[int] = (),
    read: Sequence[int] = (),
    append_locks: Sequence[int] = (),
    *,
    client_id: int = 1,
    generation: int = GENERATION,
    data: bytes = b"x",
) -> AppendCall:
    return append_call(
        req_id(number, client_id, generation),
        mark,
        tuple(write),
        tuple(read),
        tuple(append_locks),
        number,
        Append.encode_body(number, data, checksum(data)),
    )
