"""What a client does when a server says that it lacks a right."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import waltz
from tests.unit.client.application import QUICK, Callbacks
from tests.unit.client.fake_server import until
from waltz.client.mock import MockDriver
from waltz.client.mock.connection import MockConnection
from waltz.common.wire.append_request import AppendRequest
from waltz.common.wire.client_server import (
    FeedRequest,
    HighWaterMarkRequest,
    Message,
    MountRequest,
    TransactionDataRequest,
)
from waltz.common.wire.confirmed_marks import ConfirmedMarkRequest
from waltz.common.wire.mark_feed import MarkFeedRequest
from waltz.common.wire.refused import NotAuthorized
from waltz.common.wire.version5 import TransactionDataListRequest
from waltz.common.wire.write_sessions import HeartbeatRequest, LastTransactionIdRequest

TEXT = "principal 'svc-a' may not do it"

Kinds = set[type[Message]]


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> Kinds:
    """The kinds of requests that the mock server refuses."""
    kinds: Kinds = set()
    handle = MockConnection._handle

    def judged(self: MockConnection, message: Message) -> None:
        if type(message) in kinds:
            self._send(NotAuthorized(message.req_id, TEXT))
        else:
            handle(self, message)

    monkeypatch.setattr(MockConnection, "_handle", judged)
    return kinds


async def _first(client: waltz.Client) -> object:
    async with client.feed(0, after=-1) as feed:
        return await anext(feed)


async def _succeeds(call: Callable[[], Awaitable[object]]) -> None:
    """The right is there; what was refused is asked for again after a pause."""
    async with asyncio.timeout(60):
        while True:
            try:
                await call()
            except waltz.NotAuthorizedError:
                await asyncio.sleep(0.01)
            else:
                return


CALLS: dict[str, tuple[type[Message], Callable[[waltz.Client], Awaitable[object]]]] = {
    "append without a mount": (MountRequest, lambda client: client.append(0, b"x")),
    "append": (AppendRequest, lambda client: client.append(0, b"x")),
    "feed": (TransactionDataListRequest, _first),
    "mark": (HighWaterMarkRequest, lambda client: client.high_water_mark(0)),
    "confirmed mark": (ConfirmedMarkRequest, lambda client: client.high_water_mark(0, confirmed=True)),
    "fence": (LastTransactionIdRequest, lambda client: client.last_transaction_id(0, fence=True)),
    "last": (LastTransactionIdRequest, lambda client: client.last_transaction_id(0)),
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_without_its_right_fails_at_once(refused: Kinds, name: str) -> None:
    """And again, until the right is there: then the same client succeeds."""
    kind, call = CALLS[name]
    driver = MockDriver(1)
    driver.partitions[0].add(b"before")
    async with waltz.connect(driver, options=QUICK) as client:
        refused.add(kind)
        for _ in range(2):
            with pytest.raises(waltz.NotAuthorizedError, match=TEXT):
                await call(client)
        assert len(driver.partitions[0].transactions) == 1
        refused.clear()
        await _succeeds(lambda: call(client))


async def test_an_append_in_a_session_that_is_refused_fails_at_once(refused: Kinds) -> None:
    driver = MockDriver(1)
    refused.add(HeartbeatRequest)
    async with waltz.connect(driver, session_write=True, options=QUICK) as client:
        with pytest.raises(waltz.NotAuthorizedError, match=TEXT):
            await client.append(0, b"x")
        refused.clear()
        await _succeeds(lambda: client.append(0, b"x"))
    assert len(driver.partitions[0].transactions) == 1


async def test_a_candidate_without_the_right_leaves_the_election_to_others(refused: Kinds) -> None:
    driver = MockDriver(1)
    async with waltz.connect(driver, session_write=True, options=QUICK) as client:
        refused.add(LastTransactionIdRequest)
        with pytest.raises(waltz.NotAuthorizedError, match=TEXT):
            async with client.election(0).campaign():
                pass
        refused.clear()
        async with client.election(0).campaign():
            await client.append(0, b"x")
    assert len(driver.partitions[0].transactions) == 1


async def test_data_that_may_not_be_read_is_not_asked_for_again(refused: Kinds) -> None:
    driver = MockDriver(1, versions=(6,))
    driver.partitions[0].add(b"before")
    refused.add(TransactionDataRequest)
    caught: list[BaseException] = []

    class Reading(Callbacks):
        async def apply_transaction(self, transaction: waltz.Transaction) -> None:
            try:
                await transaction.data_bytes()
            except waltz.NotAuthorizedError as error:
                caught.append(error)

    async with waltz.open_client(Reading(), driver, options=QUICK):
        await until(lambda: bool(caught))
    assert str(caught[0]) == TEXT


async def test_a_feed_that_the_server_ends_is_mounted_again_later(refused: Kinds) -> None:
    driver = MockDriver(1)
    async with waltz.connect(driver, options=QUICK) as client:
        await client.append(0, b"one")
        refused |= {MountRequest, FeedRequest, MarkFeedRequest, AppendRequest}
        with pytest.raises(waltz.NotAuthorizedError, match=TEXT):
            await client.append(0, b"two")
        refused.clear()
        await _succeeds(lambda: client.append(0, b"three"))
    assert [each.data for each in driver.partitions[0].transactions] == [b"one", b"three"]


async def test_a_reader_that_waits_for_transactions_hears_that_none_will_come(refused: Kinds) -> None:
    driver = MockDriver(1)
    async with waltz.connect(driver, options=QUICK) as client:
        refused.add(MountRequest)
        with pytest.raises(waltz.NotAuthorizedError, match=TEXT):
            await _first(client)
