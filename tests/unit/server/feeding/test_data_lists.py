"""Bulk reads: exact limits, cache before storages, bounded, and answered in any case."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.server import fakes
from tests.unit.server.fakes import channel_of, new_link, req_id, take
from waltz.common.errors import WaltzError
from waltz.common.ids import LONG_MIN, ReqId
from waltz.common.records import Record, encode_record, encode_records
from waltz.common.wire.version5 import (
    DataListStatus,
    TransactionDataListRequest,
    TransactionDataListResponse,
    encode_transaction_data_list,
)
from waltz.server.feeding import data_lists
from waltz.server.feeding.caches import TransactionCache
from waltz.server.feeding.data_lists import MAX_BYTES, MAX_COUNT, MAX_LINK_BYTES, MAX_READERS, TransactionListReader
from waltz.server.requests.link import ClientLink

OK, NOT_READY, FAILED = DataListStatus.OK, DataListStatus.NOT_READY, DataListStatus.FAILED


class Storages:
    """Committed records; a read returns at most ``per_read`` of them."""

    def __init__(self, count: int, size: int = 10) -> None:
        self.records = [fakes.record(number, number.to_bytes(4, "big") + bytes(size - 4)) for number in range(count)]
        self.reads: list[tuple[int, int]] = []
        self.per_read = 1000
        self.failures = 0
        self.gate: asyncio.Event | None = None
        self.running = self.most_running = 0

    async def read(self, first: int, max_count: int, max_bytes: int) -> list[Record]:
        self.reads.append((first, max_count))
        self.running += 1
        self.most_running = max(self.running, self.most_running)
        try:
            await (self.gate.wait() if self.gate is not None else asyncio.sleep(0))
        finally:
            self.running -= 1
        if self.failures:
            self.failures -= 1
            raise WaltzError("no replica answered")
        return self.records[first : first + min(max_count, self.per_read)]


class Setup:
    def __init__(self, count: int = 100, size: int = 10) -> None:
        self.storages = Storages(count, size)
        self.cache = TransactionCache(64 << 20)
        self.misses = 0
        self.knows_end = True
        self.reader = TransactionListReader(0, self.cache, self.storages.read, self.missed, lambda: self.knows_end)
        self.mark = count - 1

    def missed(self) -> None:
        self.misses += 1

    def cached(self, first: int, count: int) -> None:
        self.cache.add(0, first, count, encode_records(self.storages.records[first : first + count]))

    def ask(self, link: ClientLink, first: int, count: int = 1000, max_bytes: int = 1 << 20, number: int = 1) -> None:
        self.reader.request(link, TransactionDataListRequest(req_id(number), first, count, max_bytes), self.mark)


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    made = Setup()
    yield made
    await made.reader.close()


async def answer(link: ClientLink) -> TransactionDataListResponse:
    async with asyncio.timeout(60):
        while not (messages := take(link)):
            await asyncio.sleep(0)
    (message,) = messages
    assert isinstance(message, TransactionDataListResponse)
    return message


def link() -> ClientLink:
    return new_link(version=5)


async def test_cached_records_are_passed_on_as_they_are(setup: Setup) -> None:
    client = link()
    setup.cached(50, 30)
    setup.cached(80, 20)
    setup.ask(client, 60, 30)
    records = encode_records(setup.storages.records[60:90])
    assert channel_of(client).take_bytes() == encode_transaction_data_list(5, req_id(1), 60, 99, 30, records)
    assert setup.storages.reads == []
    assert setup.misses == 0


@pytest.mark.parametrize("cached", [(), ((0, 100),), ((40, 20),), ((0, 50),), ((50, 50),), ((10, 1), (12, 1))])
@pytest.mark.parametrize("per_read", [1, 7, 1000])
async def test_the_list_ends_at_the_mark_or_the_count(
    setup: Setup, cached: tuple[tuple[int, int], ...], per_read: int
) -> None:
    setup.storages.per_read = per_read
    for first, count in cached:
        setup.cached(first, count)
    for first, count, expected in ((0, 100, 100), (0, 10, 10), (95, 10, 5), (99, 1, 1), (100, 5, 0), (200, 5, 0)):
        client = link()
        setup.ask(client, first, count)
        found = await answer(client)
        assert found == (req_id(1), first, OK, 99, setup.storages.records[first : first + expected], None)


@given(st.integers(1, 400), st.integers(0, 30), st.integers(0, 30), st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_the_bytes_are_a_limit_but_one_record_always_comes(
    max_bytes: int, cached_first: int, cached_count: int, per_read: int
) -> None:
    async def scenario() -> None:
        setup, client = Setup(30), link()
        setup.storages.per_read = per_read
        count = min(cached_count, 30 - cached_first)
        if count:
            setup.cached(cached_first, count)
        setup.ask(client, 3, 1000, max_bytes)
        found = await answer(client)
        size = len(encode_record(setup.storages.records[0]))
        expected = max(1, min(27, max_bytes // size))
        assert found.records == setup.storages.records[3 : 3 + expected]
        await setup.reader.close()

    asyncio.run(scenario())


async def test_the_limits_of_the_server_hold_against_larger_wishes() -> None:
    setup, client = Setup(MAX_COUNT + 500), link()
    setup.ask(client, 0, 1 << 30, 1 << 30)
    assert len((await answer(client)).records) == MAX_COUNT
    await setup.reader.close()
    large = Setup(40, size=1 << 20)
    large.cached(0, 40)
    large.ask(client, 0, 1 << 30, (1 << 31) - 1)
    assert len((await answer(client)).records) == (MAX_BYTES - 1) // ((1 << 20) + 36)
    await large.reader.close()


@pytest.mark.parametrize(("count", "max_bytes"), [(0, 0), (-5, -5), (-(1 << 31), -(1 << 31))])
async def test_senseless_limits_count_as_one(setup: Setup, count: int, max_bytes: int) -> None:
    client = link()
    setup.ask(client, 7, count, max_bytes)
    assert (await answer(client)).records == setup.storages.records[7:8]


async def test_a_negative_id_and_a_failed_read_are_told(setup: Setup) -> None:
    client = link()
    setup.ask(client, -1)
    assert (await answer(client)).status is FAILED
    setup.storages.failures = 1
    setup.ask(client, 0)
    assert await answer(client) == (req_id(1), 0, FAILED, 99, [], "no replica answered")
    setup.ask(client, 0)
    assert (await answer(client)).status is OK


async def test_bulk_reads_do_not_push_out_what_is_cached(setup: Setup) -> None:
    client = link()
    setup.ask(client, 0)
    await answer(client)
    assert setup.cache.size_bytes == 0


async def test_few_read_at_a_time_and_too_many_are_told_to_try_again(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_lists, "MAX_WAITING_REQUESTS", 20)
    setup.storages.gate = asyncio.Event()
    clients = [link() for _ in range(25)]
    for client in clients:
        setup.ask(client, 0)
    refused = [client for client in clients if take(client)]
    assert len(refused) == 25 - 20 - MAX_READERS
    for _ in range(5):
        await asyncio.sleep(0)
    setup.storages.gate.set()
    for client in clients:
        if client not in refused:
            assert len((await answer(client)).records) == 100
    assert setup.storages.most_running == MAX_READERS


async def test_a_client_that_does_not_read_gets_its_requests_postponed(setup: Setup) -> None:
    client = link()
    channel_of(client).writable = False
    setup.ask(client, 0)
    assert not channel_of(client).reading
    assert len(client.postponed) == 1
    assert setup.storages.reads == []
    waiting = link()
    for _ in range(MAX_READERS):
        setup.ask(link(), 0)
    setup.ask(waiting, 0)
    channel_of(waiting).writable = False  # while it waits for its turn
    async with asyncio.timeout(60):
        while not waiting.postponed:
            await asyncio.sleep(0)
    assert len(setup.storages.reads) == MAX_READERS


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def gated(count: int) -> list[Setup]:
    """Several partitions whose storages wait to be told to answer."""
    setups = [Setup() for _ in range(count)]
    for setup in setups:
        setup.storages.gate = asyncio.Event()
    return setups


def open_gates(setups: list[Setup]) -> None:
    for setup in setups:
        assert setup.storages.gate is not None
        setup.storages.gate.set()


async def test_what_is_read_for_one_connection_does_not_grow_with_the_partitions() -> None:
    setups, client, other = gated(20), link(), link()
    for setup in setups:
        setup.ask(client, 0, max_bytes=1 << 30)
    await turns()
    assert sum(setup.storages.running for setup in setups) == MAX_LINK_BYTES // MAX_BYTES
    setups[-1].ask(other, 0)
    await turns()
    assert setups[-1].storages.running == 1, "other connections do not wait for this one"
    open_gates(setups)
    await turns(100)
    assert len(take(client)) == 20
    assert len(take(other)) == 1
    assert client.list_bytes == 0


async def test_who_waits_for_room_is_told_when_the_partition_goes_and_others_go_on() -> None:
    setups, client = gated(6), link()
    for setup in setups:
        setup.ask(client, 0, max_bytes=MAX_BYTES)
    await turns()
    await setups[0].reader.close()
    await setups[4].reader.close()
    await turns()
    assert [message.status for message in take(client)] == [NOT_READY, NOT_READY]  # type: ignore[union-attr]  # lists all
    assert setups[5].storages.running == 1
    open_gates(setups)
    await turns(100)
    assert len(take(client)) == 4


async def test_nothing_waits_for_the_room_of_a_connection_that_is_gone() -> None:
    setups, client = gated(20), link()
    for setup in setups:
        setup.ask(client, 0, max_bytes=MAX_BYTES)
    await turns()
    client.channel.abort()
    open_gates(setups)
    await turns(100)
    assert not client.parked_lists
    assert client.list_bytes == 0
    assert not any(setup.reader._unanswered or setup.reader._waiting or setup.reader._readers for setup in setups)
    assert not any(setup.reader._parked for setup in setups)


async def test_a_repeat_of_a_read_under_way_is_dropped() -> None:
    """It would be read and sent once more; another connection's read of the same number is another one."""
    (setup,) = gated(1)
    client, other = link(), link()
    for _ in range(3):
        setup.ask(client, 0, max_bytes=MAX_BYTES)
    setup.ask(other, 0, max_bytes=MAX_BYTES)
    await turns()
    open_gates([setup])
    await turns(200)
    assert (len(take(client)), len(take(other))) == (1, 1)
    setup.ask(client, 0, max_bytes=MAX_BYTES)
    await turns(200)
    assert len(take(client)) == 1, "an answered read may be asked for again"


async def test_a_full_channel_is_not_sent_what_was_read_meanwhile(setup: Setup) -> None:
    setup.storages.gate = asyncio.Event()
    client = link()
    setup.ask(client, 0)
    await turns()
    channel_of(client).writable = False
    channel_of(client).unsent_bytes = MAX_LINK_BYTES + 1
    setup.storages.gate.set()
    await turns()
    assert take(client) == []
    assert len(client.postponed) == 1


ACTIONS = (*["ask"] * 6, *["read"] * 3, "close", "full", "writable", "gone")


@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 4), st.integers(0, 2)), max_size=60))
@settings(max_examples=200, deadline=None)
def test_whatever_happens_every_bulk_read_is_answered_once(actions: list[tuple[str, int, int]]) -> None:
    """Partitions close, connections close, are full and are read from again, storages answer in any order."""

    async def scenario() -> None:
        links, setups = [link() for _ in range(3)], gated(5)
        asked = [0, 0, 0]
        closed: set[int] = set()

        def writable(client: ClientLink) -> None:
            channel_of(client).writable = True
            for request, _ in client.take_postponed():
                assert isinstance(request, TransactionDataListRequest)
                at = ReqId(request.req_id).seq_num % 5
                if at in closed:
                    data_lists.refuse_list(client, request)
                else:
                    setups[at].reader.request(client, request, setups[at].mark)

        for action, at, whose in actions:
            client, setup = links[whose], setups[at]
            if action == "ask" and at not in closed and not client.channel.closed:
                setup.ask(client, 0, max_bytes=MAX_BYTES, number=at + 5 * asked[whose])
                asked[whose] += 1
            elif action == "read" and setup.storages.gate is not None:
                setup.storages.gate.set()
                setup.storages.gate = asyncio.Event()
            elif action == "close":
                closed.add(at)
                await setup.reader.close()
            elif action == "full" and not client.channel.closed:
                channel_of(client).writable = False
            elif action == "writable" and not client.channel.closed:
                writable(client)
            elif action == "gone":
                client.channel.abort()
            await turns(at)
            assert all(client.list_bytes <= MAX_LINK_BYTES for client in links)
        open_gates(setups)
        for client in links:
            if not client.channel.closed:
                writable(client)
        await turns(200)
        for client, count in zip(links, asked, strict=True):
            assert client.channel.closed or len(take(client)) == count
            assert not client.parked_lists
            assert client.list_bytes == 0
        assert not any(setup.reader._unanswered or setup.reader._waiting or setup.reader._readers for setup in setups)
        assert not any(setup.reader._parked for setup in setups)

    asyncio.run(scenario())


async def test_closing_answers_whoever_waits(setup: Setup) -> None:
    setup.storages.gate = asyncio.Event()
    clients = [link() for _ in range(5)]
    for client in clients:
        setup.ask(client, 0)
    await asyncio.sleep(0)
    await setup.reader.close()
    for client in clients:
        assert take(client) == [TransactionDataListResponse(req_id(1), 0, NOT_READY, LONG_MIN, [], None)]


async def test_a_defect_is_answered_and_leaves_nothing_behind(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    link = new_link(version=5)

    async def fail(*_: object) -> list[Record]:
        raise ArithmeticError("planted")

    for name in ("_read", "_serve"):
        with monkeypatch.context() as defect:
            defect.setattr(setup.reader, name, fail)
            for number in range(MAX_READERS + 2):
                setup.ask(link, number, 1, number=number)
            for _ in range(20):
                await asyncio.sleep(0)
        for answer in take(link):
            assert isinstance(answer, TransactionDataListResponse)
            assert answer.status is FAILED
            assert "ArithmeticError('planted')" in str(answer.error)
    assert not setup.reader._waiting
    assert not setup.reader._readers
    assert not setup.reader._being_read
