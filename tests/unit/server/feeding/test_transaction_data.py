"""Requests for transaction data: cache, reads in common, failures that leave nothing behind."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.unit.server.fakes import channel_of, new_link, record, req_id, take
from waltz.common.errors import WaltzError
from waltz.common.records import Record
from waltz.common.wire.client_server import TransactionDataRequest, TransactionDataResponse
from waltz.server.feeding.caches import TransactionCache
from waltz.server.feeding.transaction_data import (
    MAX_READERS,
    MAX_WAITING_REQUESTS,
    NOT_READY_TEXT,
    READ_AHEAD_COUNT,
    TransactionDataReader,
)
from waltz.server.requests.link import ClientLink


class Setup:
    def __init__(self) -> None:
        self.records = [record(number) for number in range(1000)]
        self.reads: list[tuple[int, int]] = []
        self.failures = 0
        self.gate: asyncio.Event | None = None
        self.limit = 1 << 30
        self.misses = 0
        self.reader = TransactionDataReader(0, TransactionCache(1 << 20), self.read, self.missed)

    def missed(self) -> None:
        self.misses += 1

    async def read(self, first: int, count: int, max_bytes: int) -> list[Record]:
        self.reads.append((first, count))
        if self.gate is not None:
            await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise WaltzError("no replica answered")
        return self.records[first : first + min(count, self.limit)]

    def ask(self, link: ClientLink, *transaction_ids: int) -> None:
        for transaction_id in transaction_ids:
            self.reader.request(link, request(transaction_id), 999)


def request(transaction_id: int) -> TransactionDataRequest:
    return TransactionDataRequest(req_id(transaction_id % 10_000), transaction_id)


def expected(transaction_id: int) -> TransactionDataResponse:
    found = record(transaction_id)
    return TransactionDataResponse(req_id(transaction_id), transaction_id, found.data, found.checksum, None)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    made = Setup()
    yield made
    await made.reader.close()


async def test_a_miss_is_read_and_then_cached(setup: Setup) -> None:
    link = new_link()
    setup.ask(link, 5)
    await settle()
    assert take(link) == [expected(5)]
    setup.ask(link, 5)
    assert take(link) == [expected(5)]
    assert setup.reads == [(5, 1)]
    assert setup.misses == 1


@pytest.mark.parametrize("transaction_id", [-1, 1000, 1 << 40, -(1 << 63)])
async def test_what_does_not_exist_is_not_found_at_once(setup: Setup, transaction_id: int) -> None:
    link = new_link()
    setup.ask(link, transaction_id)
    (response,) = take(link)
    assert isinstance(response, TransactionDataResponse)
    assert response.data is None
    assert response.error == (
        f"com.wepay.waltz.store.exception.TransactionNotFoundException: partition=0transactionId={transaction_id}"
    )
    assert setup.reads == []


async def test_asking_above_the_mark_poisons_nothing(setup: Setup) -> None:
    link = new_link()
    setup.reader.request(link, request(7), 6)
    take(link)
    setup.reader.request(link, request(7), 7)
    await settle()
    assert take(link) == [expected(7)]


async def test_a_failed_read_fails_who_waited_and_nobody_later(setup: Setup) -> None:
    one, two = new_link(client_id=1), new_link(client_id=2)
    setup.failures = 1
    setup.ask(one, 5)
    setup.ask(two, 5, 6)
    await settle()
    for link, count in ((one, 1), (two, 2)):
        responses = take(link)
        assert len(responses) == count
        assert all(isinstance(answer, TransactionDataResponse) and answer.error for answer in responses)
    setup.ask(one, 5)
    await settle()
    assert take(one) == [expected(5)]


async def test_neighbours_are_read_together(setup: Setup) -> None:
    link = new_link()
    setup.ask(link, 20, 18, 22, 23, 500)
    await settle()
    assert sorted(setup.reads) == [(18, 6), (500, 1)]
    assert {answer.transaction_id for answer in take(link) if isinstance(answer, TransactionDataResponse)} == {
        18,
        20,
        22,
        23,
        500,
    }


async def test_who_asks_for_what_is_being_read_joins(setup: Setup) -> None:
    one, two = new_link(client_id=1), new_link(client_id=2)
    setup.gate = asyncio.Event()
    setup.ask(one, 5)
    await settle()
    setup.ask(two, 5)
    await settle()
    setup.gate.set()
    await settle()
    assert setup.reads == [(5, 1)]
    assert take(one) == take(two) == [expected(5)]


async def test_a_sequential_reader_is_read_ahead_for(setup: Setup) -> None:
    link = new_link()
    for transaction_id in range(200):
        setup.ask(link, transaction_id)
        await settle()
        assert take(link) == [expected(transaction_id)]
    assert setup.reads[:2] == [(0, 1), (1, READ_AHEAD_COUNT)]
    assert len(setup.reads) <= 4


async def test_a_read_ahead_stops_at_the_mark(setup: Setup) -> None:
    link = new_link()
    setup.ask(link, 994)
    await settle()
    setup.ask(link, 995)
    await settle()
    assert setup.reads == [(994, 1), (995, 5)]


async def test_a_short_read_is_continued(setup: Setup) -> None:
    link = new_link()
    setup.limit = 2
    setup.ask(link, *range(10, 17))
    await settle()
    assert take(link) == [expected(number) for number in range(10, 17)]


async def test_storages_without_a_committed_record_are_an_error(setup: Setup) -> None:
    link = new_link()
    del setup.records[5:]
    setup.ask(link, 7)
    await settle()
    (response,) = take(link)
    assert isinstance(response, TransactionDataResponse)
    assert response.error is not None
    assert "which is committed" in response.error


async def test_readers_are_limited(setup: Setup) -> None:
    link = new_link()
    setup.gate = asyncio.Event()
    for transaction_id in range(0, 900, 100):
        setup.ask(link, transaction_id)
        await settle()
    assert len(setup.reads) == MAX_READERS
    setup.gate.set()
    await settle()
    assert len(take(link)) == 9


async def test_waiting_requests_are_limited(setup: Setup) -> None:
    link = new_link()
    setup.gate = asyncio.Event()
    setup.ask(link, *[5] * MAX_WAITING_REQUESTS)
    await settle()
    setup.ask(link, 6)
    assert take(link) == [TransactionDataResponse(req_id(6), 6, None, 0, NOT_READY_TEXT)]
    setup.gate.set()
    await settle()
    assert len(take(link)) == MAX_WAITING_REQUESTS
    setup.ask(link, 6)
    await settle()
    assert take(link) == [expected(6)]


async def test_answers_wait_for_a_writable_channel(setup: Setup) -> None:
    link = new_link()
    channel = channel_of(link)
    setup.ask(link, 1)
    await settle()
    take(link)
    channel.writable = False
    setup.ask(link, 1, 300)
    await settle()
    assert take(link) == []
    assert not channel.reading, "nobody piles up requests whose answers nobody reads"
    assert setup.reads == [(1, 1)]
    channel.writable, channel.writable_for = True, 1
    for postponed, _ in link.take_postponed():
        assert isinstance(postponed, TransactionDataRequest)
        setup.reader.request(link, postponed, 999)
    await settle()
    assert take(link) == [expected(1)]
    channel.writable, channel.writable_for = True, 1
    for postponed, _ in link.take_postponed():
        assert isinstance(postponed, TransactionDataRequest)
        setup.reader.request(link, postponed, 999)
    await settle()
    assert take(link) == [expected(300)]
    assert channel.reading


async def test_closing_tells_who_waits_to_try_again(setup: Setup) -> None:
    link = new_link()
    setup.gate = asyncio.Event()
    setup.ask(link, 1, 300, 301)
    await settle()
    setup.ask(link, 600)
    await setup.reader.close()
    responses = take(link)
    assert len(responses) == 4
    assert {answer.error for answer in responses if isinstance(answer, TransactionDataResponse)} == {NOT_READY_TEXT}


async def test_a_closed_connection_gets_nothing(setup: Setup) -> None:
    link = new_link()
    setup.gate = asyncio.Event()
    setup.ask(link, 1)
    await settle()
    link.channel.abort()
    setup.gate.set()
    await settle()


async def test_a_defect_is_answered_and_leaves_nothing_behind(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    link = new_link()

    async def fail(first: int, count: int, max_bytes: int) -> list[Record]:
        raise ArithmeticError("planted")

    def fail_to_choose() -> tuple[int, int]:
        raise ArithmeticError("planted")

    for name, planted in (("_read_records", fail), ("_next_read", fail_to_choose)):
        with monkeypatch.context() as defect:
            defect.setattr(setup.reader, name, planted)
            setup.ask(link, 5, 6)
            await settle()
        answers = take(link)
        assert [type(answer) for answer in answers] == [TransactionDataResponse] * 2
        assert "ArithmeticError('planted')" in str(answers[0])
    setup.ask(link, 5, 6)
    await settle()
    assert take(link) == [expected(5), expected(6)]
