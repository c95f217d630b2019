"""A client that only reads is told marks; one that appends is fed transactions from before its append on."""

from collections.abc import Sequence
from itertools import pairwise

import pytest

import waltz
from tests.unit.client.fake_server import until
from waltz.client.mock import MockDriver
from waltz.client.mock.connection import MockConnection
from waltz.common.wire.append_request import AppendRequest
from waltz.common.wire.client_server import FeedData, FeedRequest, FeedSuspended, Message, encode
from waltz.common.wire.frames import CLIENT_SERVER
from waltz.common.wire.mark_feed import MarkAdvanced, MarkFeedRequest
from waltz.common.wire.versions import FIRST_WITH_MARK_FEED

KINDS = (AppendRequest, FeedRequest, MarkFeedRequest)
BEFORE = tuple(version for version in CLIENT_SERVER.versions if version < FIRST_WITH_MARK_FEED)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    """What clients ask the mock server for, as far as it concerns the feed."""
    asked: list[Message] = []
    handle = MockConnection._handle

    def observed(self: MockConnection, message: Message) -> None:
        if isinstance(message, KINDS):
            asked.append(message)
        handle(self, message)

    monkeypatch.setattr(MockConnection, "_handle", observed)
    return asked


def kinds(requests: Sequence[Message]) -> list[type[Message]]:
    return [type(request) for request in requests]


async def test_a_reader_is_told_marks(requests: list[Message]) -> None:
    driver = MockDriver(1)
    async with waltz.connect(driver) as client, client.feed(0, after=-1) as feed:
        for number in range(20):
            driver.partitions[0].add(b"%d" % number)
            assert (await anext(feed)).data == b"%d" % number
    assert kinds(requests) == [MarkFeedRequest]


@pytest.mark.parametrize("versions", [BEFORE, (4,)])
async def test_a_server_that_tells_no_marks_is_asked_for_transactions(
    requests: list[Message], versions: tuple[int, ...]
) -> None:
    driver = MockDriver(1, versions=versions)
    async with waltz.connect(driver) as client, client.feed(0, after=-1) as feed:
        driver.partitions[0].add(b"x")
        await anext(feed)
    assert MarkFeedRequest not in kinds(requests)


async def test_transactions_are_asked_for_before_an_append(requests: list[Message]) -> None:
    driver = MockDriver(1)
    async with waltz.connect(driver) as client:
        for _ in range(5):
            driver.partitions[0].add(b"of another")
        assert await client.high_water_mark(0) == 4
        for number in range(5, 10):
            assert await client.append(0, b"x") == number
    asked = kinds(requests)
    assert (FeedRequest, AppendRequest) in list(pairwise(asked))
    assert asked.index(FeedRequest) < asked.index(AppendRequest)
    assert asked.count(FeedRequest) == 1, "as long as the feed lasts"


async def test_marks_are_told_again_when_a_feed_ends_and_nothing_is_undecided(requests: list[Message]) -> None:
    driver = MockDriver(1)
    async with waltz.connect(driver) as client, client.feed(0, after=-1) as feed:
        await client.append(0, b"x")
        await anext(feed)
        assert client._engine is not None
        mount = client._engine.partitions[0].mount
        assert not mount.fed_marks
        assert mount._session is not None
        mount.feed_suspended(FeedSuspended(mount._session))
        await until(lambda: mount.fed_marks)
        driver.partitions[0].add(b"y")
        assert (await anext(feed)).data == b"y"
        assert await client.append(0, b"z") == 2
        assert not mount.fed_marks
        assert (await anext(feed)).data == b"z"


async def test_a_late_mark_passes_nothing_by() -> None:
    """It was sent before the request for transactions arrived, and is below whatever is appended behind that."""
    driver = MockDriver(1)
    async with waltz.connect(driver) as client:
        assert await client.append(0, b"x") == 0
        assert client._engine is not None
        feed = client._engine.partitions[0].feed
        mark = MarkAdvanced(bytes(16), 0)
        feed.mark_advanced(mark)
        assert (feed.received, feed.applied) == (0, 0)
        assert await client.append(0, b"y") == 1


def test_a_mark_is_smaller_than_a_transaction() -> None:
    version = FIRST_WITH_MARK_FEED
    mark = encode(MarkAdvanced(bytes(16), 0), version)
    assert len(mark) < len(encode(FeedData(bytes(16), 0, 0), version))
