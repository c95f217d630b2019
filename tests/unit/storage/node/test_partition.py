"""A partition over real files: what it answers, in which order, and what is on disk when it does."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest

from tests.unit.storage.log_testing import segment_count
from tests.unit.storage.node_support import (
    CUE,
    DISABLED,
    KEY,
    NOT_ASSIGNED,
    PARTITION_COUNT,
    SE,
    TIMEOUT_S,
    ObservedFiles,
    decoded,
    record,
    records,
)
from waltz.common.config.schemas import ServerConfig
from waltz.common.metrics.registry import Registry
from waltz.common.records import Record, RecordHeader
from waltz.common.wire import storage as wire
from waltz.server.store.interface import StoreOptions
from waltz.server.store.log.batching import MAX_BATCH_SIZE_BYTES
from waltz.server.store.replica.replica import MAX_IN_FLIGHT_REQUESTS
from waltz.storage.disk.control_file import ControlFile
from waltz.storage.disk.fence import FenceFile
from waltz.storage.disk.log.log import PartitionLog, Prepared
from waltz.storage.disk.segment.segment_format import STORED_OVERHEAD_BYTES
from waltz.storage.node.durability import MAX_BRIEF_BYTES, Durability, SyncEach
from waltz.storage.node.partition import MAX_READ_BYTES_AT_ONCE, StoragePartition
from waltz.storage.node.partition_metrics import PartitionMetrics
from waltz.storage.node.replies import MAX_REPLY_BYTES, WHOLE_HEADERS, read_encoded
from waltz.storage.node.request_queue import DEFAULT_LIMITS, PartitionRequest, QueueLimits
from waltz.storage.node.session_rule import StorageRequest

PARTITION = 1
DATA = "1/0000000000000000000.seg"
FENCE = "waltz-storage.fence"
CONTROL = "waltz-storage.ctl"
SUCCESS = "success"


WRITTEN_AHEAD = QueueLimits(write_ahead_bytes=0)
LARGE_FROM_1000_BYTES = QueueLimits(write_ahead_bytes=1000)


class Asker:
    """A connection as the partition sees it: collects answers by the number of the request."""

    def __init__(self) -> None:
        self.writable = True
        self.answers: dict[int, wire.Message] = {}
        self.held_back: list[PartitionRequest] = []
        self._changed = asyncio.Event()

    def answer(self, frame: bytes) -> None:
        message = wire.decode(frame, 7, len(frame))
        assert message.seq_num not in self.answers, "answered twice"
        self.answers[message.seq_num] = message
        self._changed.set()

    def hold_back(self, request: PartitionRequest) -> None:
        self.held_back.append(request)
        self._changed.set()

    async def until_answered(self, seq_num: int) -> wire.Message:
        async with asyncio.timeout(TIMEOUT_S):
            while seq_num not in self.answers:
                self._changed.clear()
                await self._changed.wait()
        return self.answers[seq_num]

    async def until_held_back(self) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not self.held_back:
                self._changed.clear()
                await self._changed.wait()


class Bench:
    """One partition, open and assigned, with the files below it."""

    def __init__(
        self,
        directory: Path,
        limits: QueueLimits = DEFAULT_LIMITS,
        durability: Callable[[ObservedFiles, set[int]], Durability] = SyncEach,
    ) -> None:
        self.directory = directory
        self.limits = limits
        self._durability = durability
        self.files = ObservedFiles()
        self.control_file = ControlFile.open(self.files, str(directory), KEY, PARTITION_COUNT)
        self.fence_file = FenceFile.open(self.files, str(directory), KEY, PARTITION_COUNT)
        self.control_file.set_assigned(PARTITION, True)
        self.asker = Asker()
        self.busy: set[int] = set()
        self.reading = asyncio.Semaphore(1)
        self.partition = self._open()
        self._seq_num = 0

    def _open(self) -> StoragePartition:
        log = PartitionLog.open(
            self.files,
            str(self.directory / str(PARTITION)),
            KEY,
            PARTITION,
            local_low_water_mark=self.control_file.partition(PARTITION).local_low_water_mark,
            segment_size_threshold_bytes=1_000_000,
            segment_cache_capacity=2,
        )
        metrics = PartitionMetrics(Registry(), PARTITION, self.control_file)
        partition = StoragePartition(
            PARTITION,
            log,
            self.control_file,
            self.fence_file,
            self.files,
            self._durability(self.files, self.busy),
            metrics,
            busy=self.busy,
            reading=self.reading,
            on_suspicion=lambda: None,
            limits=self.limits,
        )
        partition.start()
        self.files.data_syncs.clear()
        return partition

    async def reopen(self) -> None:
        """As after a restart of the process."""
        await self.partition.close()
        self.fence_file.close()
        self.fence_file = FenceFile.open(self.files, str(self.directory), KEY, PARTITION_COUNT)
        self.partition = self._open()

    async def close(self) -> None:
        await self.partition.close()
        self.fence_file.close()
        self.control_file.close()
        self.files.close()

    def send(self, message: StorageRequest, size_bytes: int = 100, kind: int = 0) -> int:
        self.partition.receive(PartitionRequest(message, kind, size_bytes, self.asker))
        return message.seq_num

    def next_seq_num(self) -> int:
        self._seq_num += 1
        return self._seq_num

    def append(self, session_id: int, batch: list[Record], *, offline: bool = False, size_bytes: int = 100) -> int:
        return self.send(wire.AppendRequest(session_id, self.next_seq_num(), PARTITION, batch, offline), size_bytes)

    def last_session_info(self, session_id: int, *, offline: bool = False) -> int:
        return self.send(wire.LastSessionInfoRequest(session_id, self.next_seq_num(), PARTITION, offline))

    def max_id(self, session_id: int, *, offline: bool = False) -> int:
        return self.send(wire.MaxTransactionIdRequest(session_id, self.next_seq_num(), PARTITION, offline))

    def set_low_water_mark(self, session_id: int, mark: int, *, offline: bool = False) -> int:
        return self.send(wire.SetLowWaterMarkRequest(session_id, self.next_seq_num(), PARTITION, mark, offline))

    def truncate(self, session_id: int, transaction_id: int, *, offline: bool = False) -> int:
        return self.send(wire.TruncateRequest(session_id, self.next_seq_num(), PARTITION, transaction_id, offline))

    def read(self, session_id: int, first: int, max_count: int) -> int:
        return self.send(wire.RecordListRequest(session_id, self.next_seq_num(), PARTITION, first, max_count))

    async def outcome(self, seq_num: int) -> object:
        """What an answer says, in one comparable value; failures are their text."""
        answer = await self.asker.until_answered(seq_num)
        if isinstance(answer, wire.SuccessResponse):
            return SUCCESS
        if isinstance(answer, wire.FailureResponse):
            return answer.error.message
        return answer[3]


@pytest.fixture(params=["synced one by one", "written ahead"])
async def bench(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    """With small groups every append waits for the sync before it; "written ahead" takes all groups for large ones."""
    bench = Bench(tmp_path, WRITTEN_AHEAD if request.param == "written ahead" else DEFAULT_LIMITS)
    yield bench
    await bench.close()


# Requests


async def test_appended_records_are_read_back(bench: Bench) -> None:
    assert await bench.outcome(bench.append(-1, records(0, 3))) == SUCCESS
    assert await bench.outcome(bench.append(-1, records(3, 2))) == SUCCESS
    assert await bench.outcome(bench.max_id(-1)) == 4
    assert await bench.outcome(bench.read(-1, 1, 10)) == records(1, 4)
    header = wire.RecordHeaderRequest(-1, bench.next_seq_num(), PARTITION, 4)
    assert await bench.outcome(bench.send(header)) == record(4)[:3]
    headers = wire.RecordHeaderListRequest(-1, bench.next_seq_num(), PARTITION, 3, 10)
    assert await bench.outcome(bench.send(headers)) == [record(3)[:3], record(4)[:3]]


@pytest.mark.parametrize(("first", "max_count"), [(5, 1), (-1, 3), (-(2**63), 1), (0, 0), (0, -1), (2**62, 2**31 - 1)])
async def test_lists_out_of_range_are_empty(bench: Bench, first: int, max_count: int) -> None:
    await bench.outcome(bench.append(-1, records(0, 5)))
    assert await bench.outcome(bench.read(-1, first, max_count)) == []
    headers = wire.RecordHeaderListRequest(-1, bench.next_seq_num(), PARTITION, first, max_count)
    assert await bench.outcome(bench.send(headers)) == []


@pytest.mark.parametrize("transaction_id", [-1, 5, -(2**63), 2**63 - 1])
async def test_absent_records_are_no_error(bench: Bench, transaction_id: int) -> None:
    await bench.outcome(bench.append(-1, records(0, 5)))
    request = wire.RecordRequest(-1, bench.next_seq_num(), PARTITION, transaction_id)
    assert await bench.outcome(bench.send(request)) is None
    header = wire.RecordHeaderRequest(-1, bench.next_seq_num(), PARTITION, transaction_id)
    assert await bench.outcome(bench.send(header)) is None


async def test_a_long_list_is_cut_but_never_empty(bench: Bench) -> None:
    batch = [record(0, bytes(500)), record(1, bytes(MAX_REPLY_BYTES)), record(2, bytes(500))]
    await bench.outcome(bench.append(-1, batch))
    assert await bench.outcome(bench.read(-1, 0, 100)) == batch[:1]
    assert await bench.outcome(bench.read(-1, 1, 100)) == batch[1:2]
    assert await bench.outcome(bench.read(-1, 2, 100)) == batch[2:]


@pytest.mark.parametrize(("max_count", "given"), [(WHOLE_HEADERS, 3), (WHOLE_HEADERS + 1, 2)])
async def test_a_long_list_of_headers_ends_where_as_many_bytes_were_read(
    bench: Bench, max_count: int, given: int
) -> None:
    half = bytes(MAX_REPLY_BYTES // 2 - STORED_OVERHEAD_BYTES)
    for transaction_id in range(3):
        await bench.outcome(bench.append(-1, [record(transaction_id, half)]))
    request = wire.RecordHeaderListRequest(-1, bench.next_seq_num(), PARTITION, 0, max_count)
    assert await bench.outcome(bench.send(request)) == [RecordHeader(*record(number)[:3]) for number in range(given)]


async def test_a_turn_of_the_reader_ends_by_what_is_read_for_headers(bench: Bench) -> None:
    for transaction_id in range(2):
        await bench.outcome(bench.append(-1, [record(transaction_id, bytes(MAX_READ_BYTES_AT_ONCE // 2))]))
    reads_before = bench.files.read_calls
    asked = [
        bench.send(wire.RecordHeaderRequest(-1, bench.next_seq_num(), PARTITION, number % 2)) for number in range(8)
    ]
    for seq_num in asked:
        await bench.outcome(seq_num)
    assert bench.files.read_calls - reads_before >= 4


async def test_an_empty_append_succeeds_without_io(bench: Bench) -> None:
    assert await bench.outcome(bench.append(-1, [])) == SUCCESS
    assert not bench.files.data_syncs


async def test_a_batch_that_fails_half_way_stays_half_appended(bench: Bench) -> None:
    failing = [record(0), record(1), record(3)]
    assert await bench.outcome(bench.append(-1, failing)) == SE + "transaction out of order"
    assert await bench.outcome(bench.max_id(-1)) == 1
    assert await bench.outcome(bench.append(-1, records(1, 2))) == SE + "transaction out of order"
    assert await bench.outcome(bench.append(-1, records(2, 2))) == SUCCESS
    assert await bench.outcome(bench.read(-1, 0, 10)) == records(0, 4)


async def test_each_request_of_a_group_has_its_own_outcome(bench: Bench) -> None:
    gate = bench.files.gate(DATA)
    first = bench.append(-1, records(0, 1))
    await gate.reached()
    group = [bench.append(-1, records(1, 2)), bench.append(-1, records(7, 2)), bench.append(-1, records(3, 1))]
    gate.open()
    assert await bench.outcome(first) == SUCCESS
    assert [await bench.outcome(each) for each in group] == [SUCCESS, SE + "transaction out of order", SUCCESS]
    assert bench.files.data_sync_count(DATA) == 2
    assert await bench.outcome(bench.max_id(-1)) == 3


async def test_one_sync_covers_all_appends_that_arrived_meanwhile(bench: Bench) -> None:
    gate = bench.files.gate(DATA)
    first = bench.append(-1, records(0, 1))
    await gate.reached()
    group = [bench.append(-1, records(number, 1)) for number in range(1, 200)]
    assert not bench.asker.answers
    gate.open()
    assert {await bench.outcome(each) for each in [first, *group]} == {SUCCESS}
    assert bench.files.data_sync_count(DATA) == 2


@pytest.mark.parametrize("limits", [DEFAULT_LIMITS, WRITTEN_AHEAD])
async def test_groups_are_limited_in_bytes(tmp_path: Path, limits: QueueLimits) -> None:
    bench = Bench(tmp_path, limits._replace(max_group_bytes=250))
    gate = bench.files.gate(DATA)
    appends = [bench.append(-1, records(0, 1))]
    await gate.reached()
    appends += [bench.append(-1, records(number, 1)) for number in range(1, 5)]  # of 100 bytes each
    gate.open()
    assert {await bench.outcome(each) for each in appends} == {SUCCESS}
    assert bench.files.data_sync_count(DATA) == 3
    await bench.close()


async def test_a_lone_small_append_may_block_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one that is large, nor one beside which another partition has something to do."""
    bench = Bench(tmp_path)
    brief: list[int] = []

    async def run_brief(function: Callable[[], Prepared]) -> Prepared:
        prepared = function()
        brief.append(prepared.first_transaction_id)
        return prepared

    monkeypatch.setattr(bench.files, "run_brief", run_brief)
    assert await bench.outcome(bench.append(-1, records(0, 1), size_bytes=MAX_BRIEF_BYTES)) == SUCCESS
    assert await bench.outcome(bench.append(-1, records(1, 1), size_bytes=MAX_BRIEF_BYTES + 1)) == SUCCESS
    together = [bench.append(-1, records(2 + at, 1), size_bytes=MAX_BRIEF_BYTES // 2 + 1) for at in range(2)]
    assert [await bench.outcome(each) for each in together] == [SUCCESS, SUCCESS]
    bench.busy.add(PARTITION + 1)
    assert await bench.outcome(bench.append(-1, records(4, 1))) == SUCCESS
    bench.busy.remove(PARTITION + 1)
    assert await bench.outcome(bench.append(-1, records(5, 1))) == SUCCESS
    assert brief == [0, 5]
    await bench.close()


async def test_between_groups_that_block_the_loop_others_have_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    said: list[str] = []

    async def run_brief(function: Callable[[], Prepared]) -> Prepared:
        said.append("a group")
        asyncio.get_running_loop().call_soon(said.append, "somebody else")
        return function()

    monkeypatch.setattr(bench.files, "run_brief", run_brief)
    requests = [bench.append(-1, records(0, 1)), bench.max_id(-1), bench.append(-1, records(1, 1)), bench.max_id(-1)]
    assert [await bench.outcome(each) for each in requests] == [SUCCESS, 0, SUCCESS, 1]
    assert said[:3] == ["a group", "somebody else", "a group"]
    await bench.close()


async def test_a_partition_is_busy_as_long_as_something_waits(bench: Bench) -> None:
    await bench.outcome(bench.append(-1, records(0, 1)))
    assert await bench.outcome(bench.read(-1, 0, 1)) == records(0, 1)
    await asyncio.sleep(0)
    assert not bench.busy
    gate = bench.files.gate(DATA)
    appends = [bench.append(-1, records(1 + at, 1)) for at in range(2)]
    assert bench.busy == {PARTITION}
    await gate.reached()
    assert bench.busy == {PARTITION}
    read = bench.read(-1, 0, 1)
    assert await bench.outcome(read) == records(0, 1)
    await asyncio.sleep(0)
    assert bench.busy == {PARTITION}
    gate.open()
    assert [await bench.outcome(each) for each in appends] == [SUCCESS, SUCCESS]
    for _ in range(3):
        await asyncio.sleep(0)
    assert not bench.busy


@pytest.mark.parametrize(("to", "expected"), [(-1, -1), (3, 3), (9, 9), (10, 9), (2**62, 9)])
async def test_truncate_answers_the_new_maximum(bench: Bench, to: int, expected: int) -> None:
    await bench.outcome(bench.append(-1, records(0, 10)))
    assert await bench.outcome(bench.truncate(-1, to)) == expected
    assert await bench.outcome(bench.max_id(-1)) == expected
    assert await bench.outcome(bench.append(-1, records(expected + 1, 1))) == SUCCESS


async def test_truncate_below_the_empty_log_is_out_of_range(bench: Bench) -> None:
    path = bench.directory / DATA
    assert await bench.outcome(bench.truncate(-1, -2)) == f"{SE}transaction id out of range: file={path}"
    assert await bench.outcome(bench.append(-1, records(0, 1))) == SUCCESS


async def test_low_water_mark_persists_session_and_marks(bench: Bench) -> None:
    await bench.outcome(bench.append(1, records(0, 5)))
    assert await bench.outcome(bench.last_session_info(1)) == (-1, -1, -1)
    assert await bench.outcome(bench.set_low_water_mark(1, 9)) == SUCCESS  # lagging: the maximum is 4
    assert await bench.outcome(bench.last_session_info(1)) == (1, 9, 4)
    assert await bench.outcome(bench.set_low_water_mark(1, 9)) == SUCCESS
    assert await bench.outcome(bench.set_low_water_mark(2, 10)) == SUCCESS
    assert await bench.outcome(bench.last_session_info(2)) == (2, 10, 4)


async def test_low_water_mark_is_refused(bench: Bench) -> None:
    await bench.outcome(bench.append(1, records(0, 5)))
    lower = SE + "low-water mark is lower than the max transaction id"
    assert await bench.outcome(bench.set_low_water_mark(1, 3)) == lower
    await bench.outcome(bench.set_low_water_mark(1, 9))
    assert await bench.outcome(bench.set_low_water_mark(2, 8)) == (
        SE + "unable to set low watermark to value 8 because it's less than current low watermark 9"
    )
    await bench.outcome(bench.truncate(2, 2))
    assert await bench.outcome(bench.set_low_water_mark(2, 9)) == (
        SE + "unable to set local low watermark to value 2 because it's less than current local low watermark 4"
    )
    assert await bench.outcome(bench.last_session_info(2)) == (1, 9, 4)


async def test_low_water_mark_below_none_on_an_empty_log(bench: Bench) -> None:
    lower = SE + "low-water mark is lower than the max transaction id"
    assert await bench.outcome(bench.set_low_water_mark(0, -2)) == lower
    assert await bench.outcome(bench.set_low_water_mark(0, -1)) == SUCCESS


async def test_a_response_is_not_a_request(bench: Bench) -> None:
    response = wire.SuccessResponse(-1, bench.next_seq_num(), PARTITION)
    text = "java.lang.IllegalStateException: unknown message type: 7"
    assert await bench.outcome(bench.send(response, kind=7)) == text


# Sessions


async def test_a_newer_session_refuses_what_older_ones_have_queued(bench: Bench) -> None:
    gate = bench.files.gate(DATA)
    running = bench.append(1, records(0, 1))
    await gate.reached()
    queued = [bench.append(1, records(1, 1)), bench.truncate(1, -1), bench.max_id(1), bench.read(1, 0, 1)]
    newer = bench.last_session_info(2)
    gate.open()
    fenced = CUE + "session id has changed to 2, but request context contains 1"
    assert [await bench.outcome(each) for each in [running, *queued]] == [fenced] * 5
    assert await bench.outcome(newer) == (-1, -1, -1)
    assert await bench.outcome(bench.max_id(2)) == 0


async def test_rule_s1_a_newer_session_between_write_and_sync(bench: Bench) -> None:
    """The older append must not succeed, and the newer session must see the state behind it."""
    assert await bench.outcome(bench.append(1, records(0, 2))) == SUCCESS
    gate = bench.files.gate(DATA)
    older = bench.append(1, records(2, 3))
    await gate.reached()
    newer = [bench.last_session_info(2), bench.max_id(2), bench.read(2, 0, 1)]
    await asyncio.sleep(0)
    assert bench.asker.answers.keys() == {1}  # nobody is answered while the write is in flight
    gate.open()
    assert await bench.outcome(older) == CUE + "session id has changed to 2, but request context contains 1"
    assert await bench.outcome(newer[0]) == (-1, -1, -1)
    assert await bench.outcome(newer[1]) == 4
    assert await bench.outcome(newer[2]) == [record(0)]
    assert list(bench.asker.answers) == [1, older, *newer]


async def test_a_rejected_request_raises_the_fence_too(bench: Bench) -> None:
    online = SE + "cannot run offline recovery while partition is online"
    assert await bench.outcome(bench.max_id(5, offline=True)) == online
    fenced = CUE + "session id has changed to 5, but request context contains 4"
    assert await bench.outcome(bench.max_id(4)) == fenced


async def test_the_fence_is_synced_before_the_newer_session_is_answered(bench: Bench) -> None:
    gate = bench.files.gate(FENCE)
    newer = [bench.last_session_info(3), bench.read(3, 0, 1), bench.max_id(3, offline=True)]
    await gate.reached()
    await asyncio.sleep(0)
    assert not bench.asker.answers
    gate.open()
    assert await bench.outcome(newer[0]) == (-1, -1, -1)
    assert bench.fence_file.get(PARTITION) == 3


async def test_the_fence_survives_a_restart_without_a_low_water_mark(bench: Bench) -> None:
    await bench.outcome(bench.set_low_water_mark(1, -1))
    await bench.outcome(bench.last_session_info(4))
    await bench.reopen()
    fenced = CUE + "session id has changed to 4, but request context contains 1"
    assert await bench.outcome(bench.append(1, records(0, 1))) == fenced
    assert await bench.outcome(bench.last_session_info(4)) == (1, -1, -1)


async def test_offline_requests_compare_with_the_persisted_session(bench: Bench) -> None:
    await bench.outcome(bench.set_low_water_mark(1, -1))
    await bench.outcome(bench.last_session_info(6))
    await bench.partition.set_available(False)
    assert await bench.outcome(bench.append(6, records(0, 1))) == DISABLED.format(PARTITION)
    assert await bench.outcome(bench.append(6, records(0, 1), offline=True)) == (
        SE + "partition last session id has changed to 1, but request context contains 6"
    )
    assert await bench.outcome(bench.append(1, records(0, 5), offline=True)) == SUCCESS
    assert await bench.outcome(bench.truncate(1, 2, offline=True)) == 2
    assert await bench.outcome(bench.max_id(1, offline=True)) == 2
    assert await bench.outcome(bench.set_low_water_mark(1, 2, offline=True)) == SUCCESS
    assert await bench.outcome(bench.last_session_info(1, offline=True)) == (1, 2, 2)
    assert await bench.outcome(bench.read(6, 0, 1)) == DISABLED.format(PARTITION)


# Reads beside writes


async def test_reads_of_published_records_do_not_wait_for_a_sync(bench: Bench) -> None:
    await bench.outcome(bench.append(-1, records(0, 3)))
    gate = bench.files.gate(DATA)
    append = bench.append(-1, records(3, 1))
    await gate.reached()
    assert await bench.outcome(bench.read(-1, 0, 3)) == records(0, 3)
    assert append not in bench.asker.answers
    gate.open()
    assert await bench.outcome(append) == SUCCESS


async def test_reads_keep_their_place_behind_what_decides_their_answer(bench: Bench) -> None:
    await bench.outcome(bench.append(-1, records(0, 3)))
    gate = bench.files.gate(DATA)
    bench.append(-1, records(3, 1))
    await gate.reached()
    behind_append = bench.read(-1, 2, 5)
    bench.truncate(-1, 0)
    behind_truncate = bench.read(-1, 0, 3)
    await asyncio.sleep(0)
    assert behind_append not in bench.asker.answers
    gate.open()
    assert await bench.outcome(behind_append) == records(2, 2)
    assert await bench.outcome(behind_truncate) == records(0, 1)


async def test_reads_for_a_slow_peer_are_handed_back(bench: Bench) -> None:
    await bench.outcome(bench.append(-1, records(0, 3)))
    bench.asker.writable = False
    read = bench.read(-1, 0, 3)
    await bench.asker.until_held_back()
    assert [request.message.seq_num for request in bench.asker.held_back] == [read]
    assert read not in bench.asker.answers
    bench.asker.writable = True
    bench.partition.receive(bench.asker.held_back.pop())
    assert await bench.outcome(read) == records(0, 3)


async def test_whether_a_peer_is_slow_is_seen_when_its_read_has_its_turn(bench: Bench) -> None:
    await bench.outcome(bench.append(-1, records(0, 3)))
    async with bench.reading:  # another partition reads
        read = bench.read(-1, 0, 3)
        await until(lambda: len(bench.partition.queue) == 0)
        reads_before = bench.files.read_calls
        bench.asker.writable = False
    await bench.asker.until_held_back()
    assert [request.message.seq_num for request in bench.asker.held_back] == [read]
    assert bench.files.read_calls == reads_before


SMALL_QUEUE = QueueLimits(max_requests=5, max_append_bytes=1000)
OVERRUN = SE + "too many requests for partition=1 wait on storage node; wait for answers before sending more"


async def test_appends_for_which_there_is_no_room_are_refused_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(tmp_path, SMALL_QUEUE)
    gate = bench.files.gate(DATA)
    appends = [bench.append(-1, records(0, 1))]
    await gate.reached()
    appends += [bench.append(-1, records(number, 1)) for number in range(1, 6)]
    assert not bench.asker.answers
    beyond = [bench.append(-1, records(number, 1)) for number in (6, 7)]
    assert list(bench.asker.answers) == beyond
    assert {await bench.outcome(each) for each in beyond} == {OVERRUN}
    assert caplog.text.count("requests are refused, because 5 are waiting already") == 1
    # What begins a session has room all the same, until there is twice as much.
    questions = [bench.max_id(-1) for _ in range(6)]
    assert [await bench.outcome(each) for each in questions[-1:]] == [OVERRUN]
    gate.open()
    assert [await bench.outcome(each) for each in appends] == [SUCCESS] * 6
    assert [await bench.outcome(each) for each in questions[:-1]] == [5] * 5
    again = bench.append(-1, records(6, 1))
    assert await bench.outcome(again) == SUCCESS
    await bench.close()


async def test_what_follows_a_refused_append_is_out_of_order(tmp_path: Path) -> None:
    """So nothing is lost in between, whatever there is room for when it comes."""
    bench = Bench(tmp_path, SMALL_QUEUE)
    gate = bench.files.gate(DATA)
    appends = [bench.append(-1, records(number, 1)) for number in range(2)]
    await gate.reached()
    appends += [bench.append(-1, records(2, 1), size_bytes=1001)]
    refused = bench.append(-1, records(3, 1))
    assert await bench.outcome(refused) == OVERRUN
    gate.open()
    assert [await bench.outcome(each) for each in appends] == [SUCCESS] * 3
    assert await bench.outcome(bench.append(-1, records(4, 1))) == SE + "transaction out of order"
    assert await bench.outcome(bench.append(-1, records(3, 2))) == SUCCESS
    await bench.close()


async def test_a_single_append_of_any_size_is_taken(tmp_path: Path) -> None:
    """A server of the original sends a hundred transactions in one, of any size; reads do not mind its bytes."""
    bench = Bench(tmp_path, SMALL_QUEUE)
    gate = bench.files.gate(DATA)
    first = bench.append(-1, records(0, 1))
    await gate.reached()
    large = bench.append(-1, records(1, 1), size_bytes=1_000_000)
    read = bench.read(-1, 0, 2)
    refused = bench.append(-1, records(2, 1))
    assert list(bench.asker.answers) == [refused]
    gate.open()
    assert [await bench.outcome(each) for each in (first, large)] == [SUCCESS] * 2
    assert await bench.outcome(read) == records(0, 2)
    await bench.close()


async def test_reads_and_writes_take_no_room_from_each_other(tmp_path: Path) -> None:
    bench = Bench(tmp_path, SMALL_QUEUE)
    await bench.outcome(bench.append(-1, records(0, 1)))
    gate = bench.files.gate(DATA)
    appends = [bench.append(-1, records(1, 1))]
    await gate.reached()
    reads = [bench.read(-1, 0, 1) for _ in range(6)]
    appends += [bench.append(-1, records(number, 1)) for number in range(2, 7)]
    assert [await bench.outcome(each) for each in reads] == [records(0, 1)] * 5 + [OVERRUN]
    gate.open()
    assert [await bench.outcome(each) for each in appends] == [SUCCESS] * 6
    await bench.close()


async def test_a_refused_request_of_a_newer_session_fences_all_the_same(tmp_path: Path) -> None:
    bench = Bench(tmp_path, SMALL_QUEUE)
    gate = bench.files.gate(DATA)
    older = [bench.append(1, records(0, 1))]
    await gate.reached()
    older += [bench.append(1, records(number, 1)) for number in range(1, 6)]
    assert await bench.outcome(bench.append(2, records(0, 1))) == OVERRUN
    gate.open()
    fenced = CUE + "session id has changed to 2, but request context contains 1"
    assert {await bench.outcome(each) for each in older} == {fenced}
    await bench.close()


# Writing ahead


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0.001)


async def test_a_large_group_is_written_while_the_one_before_is_synced(tmp_path: Path) -> None:
    bench = Bench(tmp_path, LARGE_FROM_1000_BYTES)
    data = tmp_path / DATA
    gate = bench.files.gate(DATA)
    first = bench.append(1, records(0, 2), size_bytes=1000)
    await gate.reached()
    size_bytes = data.stat().st_size
    small = bench.append(1, records(2, 1), size_bytes=999)
    await asyncio.sleep(0)
    large = bench.append(1, records(3, 1), size_bytes=1)
    await until(lambda: data.stat().st_size > size_bytes)
    third = bench.append(1, records(4, 1), size_bytes=1000)
    behind = bench.max_id(1)
    assert not bench.asker.answers
    assert bench.partition.max_transaction_id == -1
    gate.open()
    assert [await bench.outcome(each) for each in (first, small, large, third)] == [SUCCESS] * 4
    assert await bench.outcome(behind) == 4
    assert list(bench.asker.answers) == [first, small, large, third, behind]
    assert bench.files.data_sync_count(DATA) == 3
    await bench.reopen()
    assert await bench.outcome(bench.read(1, 0, 10)) == records(0, 5)
    await bench.close()


async def test_a_large_group_that_begins_another_segment_waits(tmp_path: Path) -> None:
    bench = Bench(tmp_path, LARGE_FROM_1000_BYTES)
    gate = bench.files.gate(DATA)
    first = bench.append(1, [record(0, bytes(1_000_001))], size_bytes=1_000_000)
    await gate.reached()
    second = bench.append(1, records(1, 3), size_bytes=1000)
    await asyncio.sleep(0)
    assert [path.name for path in sorted((tmp_path / "1").glob("*.seg"))] == [Path(DATA).name]
    gate.open()
    assert [await bench.outcome(each) for each in (first, second)] == [SUCCESS] * 2
    assert segment_count(bench.partition.log) == 2
    await bench.close()


async def test_a_newer_session_fences_what_is_written_ahead(tmp_path: Path) -> None:
    bench = Bench(tmp_path, LARGE_FROM_1000_BYTES)
    gate = bench.files.gate(DATA)
    older = [bench.append(1, records(0, 1), size_bytes=1000)]
    await gate.reached()
    older.append(bench.append(1, records(1, 1), size_bytes=1000))
    newer = [bench.last_session_info(2), bench.max_id(2)]
    gate.open()
    fenced = CUE + "session id has changed to 2, but request context contains 1"
    assert [await bench.outcome(each) for each in older] == [fenced] * 2
    assert await bench.outcome(newer[0]) == (-1, -1, -1)
    await bench.close()


# Failing disk


async def test_a_failed_sync_ends_the_service_of_the_partition(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    await bench.outcome(bench.append(-1, records(0, 2)))
    gate = bench.files.gate(DATA)
    first = bench.append(-1, records(2, 1))
    await gate.reached()
    queued = [bench.append(-1, records(3, 1)), bench.truncate(-1, 0)]
    bench.files.failing.add(DATA)
    gate.open()
    assert await bench.outcome(first) == "java.io.IOException: Input/output error"
    assert [await bench.outcome(each) for each in queued] == [DISABLED.format(PARTITION)] * 2
    assert "partition 1 is out of service" in caplog.text
    assert bench.partition.failure is not None

    bench.files.failing.clear()  # a sync that works again says nothing about what was lost
    syncs = bench.files.data_syncs.copy()
    later = [
        bench.append(-1, records(2, 1)),
        bench.append(-1, []),
        bench.max_id(-1),
        bench.max_id(-1, offline=True),
        bench.read(-1, 0, 2),
        bench.last_session_info(9),
    ]
    assert {await bench.outcome(each) for each in later} == {DISABLED.format(PARTITION)}
    assert bench.files.data_syncs == syncs
    rescued = await bench.partition.read_log(partial(read_encoded, first=0, max_count=9))
    assert decoded(rescued) == records(0, 2)  # what is durable can be rescued


@pytest.mark.parametrize("path_end", [FENCE, CONTROL])
async def test_a_failed_sync_of_session_or_marks_ends_the_service(bench: Bench, path_end: str) -> None:
    await bench.outcome(bench.last_session_info(1))
    bench.files.failing.add(path_end)
    if path_end == FENCE:
        assert await bench.outcome(bench.last_session_info(2)) == DISABLED.format(PARTITION)
    else:
        failure = "java.io.IOException: Input/output error"
        assert await bench.outcome(bench.set_low_water_mark(1, -1)) == failure
    bench.files.failing.clear()
    assert await bench.outcome(bench.last_session_info(2)) == DISABLED.format(PARTITION)


async def test_marks_are_recorded_only_when_the_log_below_them_is_durable(bench: Bench) -> None:
    await bench.outcome(bench.append(1, records(0, 2)))
    bench.files.failing.add(".idx")
    assert await bench.outcome(bench.set_low_water_mark(1, 1)) == "java.io.IOException: Input/output error"
    assert bench.partition.info.session_id == -1
    assert await bench.outcome(bench.max_id(1)) == DISABLED.format(PARTITION)


# The end


async def test_closing_answers_what_is_queued(bench: Bench) -> None:
    gate = bench.files.gate(DATA)
    running = bench.append(-1, records(0, 1))
    await gate.reached()
    queued = [bench.max_id(-1), bench.append(-1, records(1, 1)), bench.read(-1, 0, 1)]
    closing = asyncio.create_task(bench.partition.close())
    await asyncio.sleep(0)
    late = bench.append(-1, records(1, 1))
    gate.open()
    await closing
    assert await bench.outcome(running) == SUCCESS
    assert {await bench.outcome(each) for each in [*queued, late]} == {NOT_ASSIGNED.format(PARTITION)}


# Defects


@pytest.mark.parametrize("method", ["take_group", "take_reads"])
async def test_a_task_that_dies_puts_the_partition_out_of_service(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    await bench.outcome(bench.append(-1, records(0, 2)))

    def fail() -> None:
        raise ArithmeticError("planted")

    monkeypatch.setattr(bench.partition.queue, method, fail)
    waiting = bench.append(-1, records(2, 1)) if method == "take_group" else bench.read(-1, 0, 2)
    text = f"partition {PARTITION} is out of service because of a defect: ArithmeticError('planted')"
    assert text in str(await bench.outcome(waiting))
    assert bench.partition.failure == text
    assert text in caplog.text
    for late in (bench.append(-1, records(2, 1)), bench.read(-1, 0, 2), bench.max_id(-1)):
        assert text in str(await bench.outcome(late))
    monkeypatch.undo()
    await bench.reopen()
    assert await bench.outcome(bench.read(-1, 0, 10)) == records(0, 2)


async def until_failed(partition: StoragePartition) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while partition.failure is None:
            await asyncio.sleep(0)


async def test_a_syncer_that_dies_puts_the_partition_out_of_service(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    if bench.limits.write_ahead_bytes > 0:
        pytest.skip("nothing is written ahead")
    partition, acknowledge = bench.partition, bench.partition._acknowledge

    def fail(requests: list[PartitionRequest], frames: list[bytes]) -> None:
        acknowledge(requests, frames)
        raise ArithmeticError("planted")

    monkeypatch.setattr(partition, "_acknowledge", fail)
    assert await bench.outcome(bench.append(-1, records(0, 2))) == SUCCESS
    await until_failed(partition)
    assert "ArithmeticError('planted')" in str(await bench.outcome(bench.append(-1, records(2, 1))))
    await bench.reopen()
    assert await bench.outcome(bench.read(-1, 0, 10)) == records(0, 2)


def test_a_server_that_keeps_to_its_window_is_never_refused_for_want_of_room() -> None:
    """That would end the replica's part in the session."""
    options = StoreOptions()
    transaction_bytes = ServerConfig.model_fields["max_transaction_size_bytes"].default
    largest = options.window_size_bytes + MAX_BATCH_SIZE_BYTES + transaction_bytes
    assert DEFAULT_LIMITS.max_requests > MAX_IN_FLIGHT_REQUESTS
    assert largest < DEFAULT_LIMITS.max_append_bytes
