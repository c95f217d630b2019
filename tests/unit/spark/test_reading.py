import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from uuid import uuid4

import pyarrow as pa
import pytest
import pytest_asyncio

from tests.smoke.proxy import Proxy
from tests.unit.common.cluster.fakes import KEY, FakeStorage, damaged, make_log, make_record
from tests.unit.relay import HOST, relay
from waltz.common.cluster.replicas import Source
from waltz.common.ids import Endpoint
from waltz.common.records import Record
from waltz.common.wire.frames import STORAGE_ADMIN
from waltz.spark import reading
from waltz.spark.chunk import Chunk
from waltz.spark.errors import ReplicaReadError
from waltz.spark.offsets import OffsetRange
from waltz.spark.planning import Split
from waltz.spark.reading import SplitReader

LOG = make_log(0, 50)
StorageFactory = Callable[[list[Record]], Coroutine[None, None, FakeStorage]]


@pytest_asyncio.fixture(params=[(0,), (0, 1)], ids=["the original's protocol", "our protocol"])
async def start_storage(request: pytest.FixtureRequest) -> AsyncIterator[StorageFactory]:
    """Starts storages that hold one partition."""
    started: list[FakeStorage] = []

    async def start(log: list[Record]) -> FakeStorage:
        storage = FakeStorage({0: log}, STORAGE_ADMIN._replace(versions=request.param))
        await storage.start()
        started.append(storage)
        return storage

    yield start
    for storage in started:
        await storage.stop()


def source_of(storage: FakeStorage, name: str = "s") -> Source:
    return Source(f"{name}:6000", Endpoint("127.0.0.1", storage.admin_port))


def make_split(storages: list[FakeStorage], start: int = 0, end: int = 50) -> Split:
    sources = tuple(source_of(storage, name) for storage, name in zip(storages, "abc", strict=False))
    return Split(OffsetRange(0, start, end), sources, KEY, 1)


async def read_all(split: Split, fetch_size: int = 10, request_timeout_s: float = 30.0) -> list[Chunk]:
    reader = SplitReader(split, None, fetch_size=fetch_size, request_timeout_s=request_timeout_s)
    chunks = []
    try:
        while (chunk := await reader.next_chunk()) is not None:
            chunks.append(chunk)
        assert await reader.next_chunk() is None
    finally:
        await reader.close()
    return chunks


def assert_whole(chunks: list[Chunk], start: int, end: int) -> None:
    """Every transaction of the range, once, in order, with its own payload."""
    position = start
    for chunk in chunks:
        assert chunk.first == position
        position += chunk.count
    assert position == end
    payloads = [payload for chunk in chunks for payload in chunk.payloads.to_pylist()]
    assert payloads == [record.data for record in LOG[start:end]]


async def test_a_range_comes_whole_and_no_further(start_storage: StorageFactory) -> None:
    storage = await start_storage(LOG)
    chunks = await read_all(make_split([storage], 7, 33))
    assert_whole(chunks, 7, 33)
    assert [(request.transaction_id, request.max_count) for request in storage.requests] == [(7, 10), (17, 10), (27, 6)]
    assert storage.connections == 1


async def test_one_record(start_storage: StorageFactory) -> None:
    assert_whole(await read_all(make_split([await start_storage(LOG)], 49, 50)), 49, 50)


async def test_an_empty_range_asks_nobody() -> None:
    assert await read_all(Split(OffsetRange(0, 5, 5), (Source("a:1", Endpoint("127.0.0.1", 1)),), KEY, 1)) == []


async def test_short_answers_are_no_lag(start_storage: StorageFactory) -> None:
    """Storages bound their answers in bytes."""
    storage = await start_storage(LOG)
    storage.max_answer_records = 3
    assert_whole(await read_all(make_split([storage])), 0, 50)
    assert storage.connections == 1


async def test_requests_grow_and_shrink_with_the_size_of_records(
    start_storage: StorageFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "TARGET_ANSWER_BYTES", 10_000)
    monkeypatch.setattr(reading, "FIRST_FETCH", 2)
    log = [make_record(0, index, bytes(64 if index < 20 else 4964)) for index in range(200)]
    storage = await start_storage(log)
    await read_all(make_split([storage], 0, 200), fetch_size=15)
    counts = [request.max_count for request in storage.requests]
    assert counts[:3] == [2, 15, 15]
    assert set(counts[3:-1]) == {2}


@pytest.mark.parametrize("fetch_size", [1, 7, 40])
async def test_no_more_than_two_answers_are_held(start_storage: StorageFactory, fetch_size: int) -> None:
    """What bounds the memory of a split: one answer is worked on, one is on its way, each of fetchSize records."""
    storage = await start_storage(make_log(0, 400, bytes(1000)))
    reader = SplitReader(make_split([storage], 0, 400), None, fetch_size=fetch_size, request_timeout_s=30.0)
    before, delivered, largest = pa.total_allocated_bytes(), 0, 0
    while (chunk := await reader.next_chunk()) is not None:
        delivered += 1
        largest = max(largest, pa.total_allocated_bytes() - before)
        for _ in range(20):  # whatever would be asked ahead is asked by then
            await asyncio.sleep(0)
        assert len(storage.requests) <= delivered + 1
        assert chunk.count <= fetch_size
    await reader.close()
    assert {request.max_count for request in storage.requests[:-1]} == {fetch_size}
    assert largest < 3 * fetch_size * 1100 + 10_000


async def test_a_replica_that_lags_is_left_where_it_ends(start_storage: StorageFactory) -> None:
    behind, whole = await start_storage(LOG[:23]), await start_storage(LOG)
    assert_whole(await read_all(make_split([behind, whole])), 0, 50)
    assert whole.requests[0].transaction_id == 23


async def test_a_replica_that_is_down_is_left(start_storage: StorageFactory) -> None:
    down, whole = await start_storage(LOG), await start_storage(LOG)
    split = make_split([down, whole])
    await down.stop()
    assert_whole(await read_all(split), 0, 50)


async def test_a_replica_of_another_cluster_is_left(start_storage: StorageFactory) -> None:
    whole = await start_storage(LOG)
    with pytest.raises(ReplicaReadError, match="a:6000: StorageException: another cluster"):
        await read_all(make_split([whole])._replace(cluster_key=uuid4()))


async def test_a_damaged_payload_comes_from_another_replica(
    start_storage: StorageFactory, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = await start_storage(damaged(LOG, 15)), await start_storage(LOG)
    with caplog.at_level(logging.WARNING, logger="waltz.spark"):
        assert_whole(await read_all(make_split([bad, good])), 0, 50)
    assert "partition 0, transaction 15: the payload does not match its checksum" in caplog.text


async def test_damage_everywhere_names_partition_transaction_and_nodes(start_storage: StorageFactory) -> None:
    storages = [await start_storage(damaged(LOG, 15)), await start_storage(damaged(LOG, 15))]
    with pytest.raises(ReplicaReadError) as caught:
        await read_all(make_split(storages))
    text = str(caught.value)
    assert text.startswith("partition 0, transactions 0 to 49: no replica delivers transaction 10: a:6000: ")
    for name, storage in zip("ab", storages, strict=True):
        assert re.search(
            rf"{name}:6000: storage 127.0.0.1:{storage.admin_port} delivered a damaged transaction: "
            r"partition 0, transaction 15: the payload does not match its checksum",
            text,
        )


async def test_every_nodes_reason_is_told(start_storage: StorageFactory) -> None:
    behind, stranger, down = [await start_storage(log) for log in (LOG[:23], LOG, LOG)]
    stranger.logs = {}
    split = make_split([behind, stranger, down])
    await down.stop()
    with pytest.raises(ReplicaReadError) as caught:
        await read_all(split)
    assert re.fullmatch(
        r"partition 0, transactions 0 to 49: no replica delivers transaction 23: "
        r"a:6000: does not have transaction 23; "
        r"b:6000: Partition:0 is not assigned.; "
        r"c:6000: cannot connect to 127.0.0.1:\d+: connection refused.*",
        str(caught.value),
    )


async def test_a_replica_may_serve_again_after_others_failed(start_storage: StorageFactory) -> None:
    """Each failed somewhere, but never both at the same transaction."""
    first, second = await start_storage(damaged(LOG, 15)), await start_storage(LOG[:30])
    assert_whole(await read_all(make_split([first, second])), 0, 50)
    assert [request.transaction_id for request in second.requests] == [10, 20, 30]


@pytest.mark.parametrize("shift", [1, -1])
async def test_other_transactions_than_asked_for_are_refused(start_storage: StorageFactory, shift: int) -> None:
    wrong, right = await start_storage(LOG), await start_storage(LOG)
    wrong.shift = shift
    assert_whole(await read_all(make_split([wrong, right], 5, 40)), 5, 40)
    with pytest.raises(ReplicaReadError, match=rf"transactions {5 + shift} to {14 + shift} were sent, which were"):
        await read_all(make_split([wrong], 5, 40))


async def test_gaps_are_refused(start_storage: StorageFactory) -> None:
    storage = await start_storage([*LOG[:3], *LOG[4:]])
    with pytest.raises(ReplicaReadError, match="transaction 4 in the place of 3"):
        await read_all(make_split([storage]))


async def test_more_than_asked_for_is_refused(start_storage: StorageFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = await start_storage(LOG)
    monkeypatch.setattr(SplitReader, "_count", 1000)
    with pytest.raises(ReplicaReadError, match="transactions 0 to 49 were sent, which were not asked for"):
        await read_all(make_split([storage], 0, 40))


async def test_a_connection_that_broke_while_asked_ahead_is_made_again(start_storage: StorageFactory) -> None:
    storage = await start_storage(LOG)
    storage.hang_up_after = 2
    reader = SplitReader(make_split([storage]), None, fetch_size=10, request_timeout_s=30.0)
    first = await reader.next_chunk()
    assert first is not None
    while len(storage.requests) < 2:
        await asyncio.sleep(0)
    second = await reader.next_chunk()
    assert second is not None
    while len(storage.requests) < 3:
        await asyncio.sleep(0)
    storage.hang_up_after = None
    chunks = [first, second]
    while (chunk := await reader.next_chunk()) is not None:
        chunks.append(chunk)
    await reader.close()
    assert_whole(chunks, 0, 50)
    assert storage.connections == 2


async def test_a_replica_that_stops_answering_is_left(start_storage: StorageFactory) -> None:
    mute, whole = await start_storage(LOG), await start_storage(LOG)
    reader = SplitReader(make_split([mute, whole]), None, fetch_size=10, request_timeout_s=0.2)
    chunks = [await reader.next_chunk()]
    mute.mute = True
    while (chunk := await reader.next_chunk()) is not None:
        chunks.append(chunk)
    await reader.close()
    assert_whole([chunk for chunk in chunks if chunk is not None], 0, 50)
    assert whole.requests


def split_over(*lines: Proxy) -> Split:
    sources = tuple(Source(f"{name}:6000", Endpoint(HOST, line.port)) for name, line in zip("abc", lines, strict=False))
    return Split(OffsetRange(0, 0, 50), sources, KEY, 1)


async def test_a_connection_that_goes_dead_is_replaced(start_storage: StorageFactory) -> None:
    storage = await start_storage(LOG)
    async with relay(storage.admin_port) as line:
        reader = SplitReader(split_over(line), None, fetch_size=10, request_timeout_s=1.0)
        chunks = []
        while (chunk := await reader.next_chunk()) is not None:
            chunks.append(chunk)
            if chunk.first == 10:
                line.blackhole()
        await reader.close()
    assert_whole(chunks, 0, 50)
    assert storage.connections == 2


async def test_a_replica_whose_line_stays_dead_is_left(
    start_storage: StorageFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "CONNECT_TIMEOUT_S", 1.0)
    lost, whole = await start_storage(LOG), await start_storage(LOG)
    async with relay(lost.admin_port) as line, relay(whole.admin_port) as other:
        reader = SplitReader(split_over(line, other), None, fetch_size=10, request_timeout_s=1.0)
        chunks = []
        while (chunk := await reader.next_chunk()) is not None:
            chunks.append(chunk)
            if chunk.first == 10:
                line.cut()
        await reader.close()
    assert_whole(chunks, 0, 50)
    assert (lost.connections, whole.connections) == (1, 1)


async def test_dead_lines_to_all_replicas_are_named(
    start_storage: StorageFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "CONNECT_TIMEOUT_S", 1.0)
    storages = [await start_storage(LOG) for _ in range(2)]
    async with relay(storages[0].admin_port) as line, relay(storages[1].admin_port) as other:
        reader = SplitReader(split_over(line, other), None, fetch_size=10, request_timeout_s=1.0)
        await reader.next_chunk()
        line.cut()
        other.cut()
        with pytest.raises(ReplicaReadError) as failure:
            while await reader.next_chunk() is not None:
                pass
        await reader.close()
    for name in "ab":
        assert re.search(rf"{name}:6000: cannot connect to \S+: not ready within 1 s", str(failure.value))


async def test_closing_early_leaves_nothing(start_storage: StorageFactory) -> None:
    storage = await start_storage(LOG)
    reader = SplitReader(make_split([storage]), None, fetch_size=10, request_timeout_s=30.0)
    assert await reader.next_chunk() is not None
    await reader.close()
    await reader.close()
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
