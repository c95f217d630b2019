"""A partition that is trimmed: what its clients are told."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.unit.server.fakes import PartitionSetup, channel_of, fed_ids, feed, mount, others, req_id, take
from tests.unit.server.fakes import new_link as old_link
from waltz.common.wire.client_server import (
    FeedRequest,
    MountResponse,
    PartitionState,
    TransactionDataRequest,
    TransactionDataResponse,
)
from waltz.common.wire.mark_feed import MarkFeedRequest
from waltz.common.wire.trimmed import Trimmed
from waltz.common.wire.version5 import DataListStatus, TransactionDataListRequest, TransactionDataListResponse
from waltz.common.wire.versions import FIRST_WITH_DATA_LISTS, FIRST_WITH_TRIM
from waltz.server.partition.append_rule import AppendRule
from waltz.server.partition.partition import PartitionOptions
from waltz.server.requests.link import ClientLink

COUNT = 20
POINT = 12
OLD_VERSIONS = (4, FIRST_WITH_DATA_LISTS)


@pytest.fixture
async def setup() -> AsyncIterator[PartitionSetup]:
    made = PartitionSetup(COUNT, PartitionOptions())
    made.partition.start()
    made.log.open_session()
    made.partition.set_append_rule(AppendRule(first_available=POINT))
    yield made
    await made.partition.close()


def new_link() -> ClientLink:
    link = old_link()
    channel_of(link).version = FIRST_WITH_TRIM
    return link


async def settle() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


@pytest.mark.parametrize("mark", [-1, 0, POINT - 2])
async def test_a_client_that_needs_trimmed_transactions_is_not_mounted(setup: PartitionSetup, mark: int) -> None:
    link = new_link()
    setup.partition.mount(link, mount(1, mark))
    await settle()
    assert take(link) == [Trimmed(req_id(1), POINT)]


@pytest.mark.parametrize("version", OLD_VERSIONS)
async def test_a_client_of_an_older_version_never_gets_a_gap(setup: PartitionSetup, version: int) -> None:
    link = new_link()
    channel_of(link).version = version
    setup.partition.mount(link, mount(1, 3))
    await settle()
    assert take(link) == [MountResponse(req_id(1), PartitionState.NOT_READY)]


@pytest.mark.parametrize("mark", [POINT - 1, POINT, COUNT - 1])
async def test_a_client_that_needs_only_the_rest_is_fed(setup: PartitionSetup, mark: int) -> None:
    link = new_link()
    setup.partition.mount(link, mount(1, mark))
    await settle()
    messages = take(link)
    assert fed_ids(messages) == list(range(mark + 1, COUNT))
    assert others(messages) == [MountResponse(req_id(1), PartitionState.READY)]


async def test_a_feed_that_falls_behind_the_trim_point_ends(setup: PartitionSetup) -> None:
    slow, fast, of_marks = new_link(), new_link(), new_link()
    for number, link in enumerate((slow, fast, of_marks), 1):
        setup.partition.mount(link, mount(number, COUNT - 1))
    channel_of(slow).writable = False
    setup.partition.feed(slow, feed(1, POINT))
    setup.partition.feed(fast, feed(2, COUNT - 2))
    setup.partition.feed(of_marks, MarkFeedRequest(req_id(3), 3))
    await settle()
    setup.partition.set_append_rule(AppendRule(first_available=COUNT - 1))
    assert channel_of(slow).closed
    assert not channel_of(fast).closed
    assert not channel_of(of_marks).closed


async def test_a_later_part_of_the_feed_that_is_trimmed_is_told(setup: PartitionSetup) -> None:
    link = new_link()
    setup.partition.mount(link, mount(1, COUNT - 1))
    await settle()
    take(link)
    setup.partition.feed(link, FeedRequest(req_id(1), 3))
    assert take(link) == [Trimmed(req_id(1), POINT)]
    channel_of(link).version = FIRST_WITH_DATA_LISTS
    setup.partition.feed(link, FeedRequest(req_id(1), 3))
    assert channel_of(link).closed


@pytest.mark.parametrize("transaction_id", [0, POINT - 1])
async def test_trimmed_data_are_not_sent(setup: PartitionSetup, transaction_id: int) -> None:
    link, old = new_link(), new_link()
    channel_of(old).version = FIRST_WITH_DATA_LISTS
    for each in (link, old):
        setup.partition.transaction_data(each, TransactionDataRequest(req_id(1), transaction_id))
        setup.partition.transaction_list(each, TransactionDataListRequest(req_id(2), transaction_id, 10, 1000))
    await settle()
    assert take(link) == [Trimmed(req_id(1), POINT), Trimmed(req_id(2), POINT)]
    one, many = take(old)
    assert isinstance(one, TransactionDataResponse)
    assert one.data is None
    assert f"the first available one is {POINT}" in (one.error or "")
    assert isinstance(many, TransactionDataListResponse)
    assert many.status is DataListStatus.FAILED
    assert f"the first available one is {POINT}" in (many.error or "")
    assert setup.log.reads == []


async def test_what_is_left_is_sent(setup: PartitionSetup) -> None:
    link = new_link()
    setup.partition.transaction_list(link, TransactionDataListRequest(req_id(2), POINT, 5, 1000))
    async with asyncio.timeout(60):
        while not (messages := take(link)):
            await asyncio.sleep(0.001)
    (found,) = messages
    assert isinstance(found, TransactionDataListResponse)
    assert [record.transaction_id for record in found.records] == list(range(POINT, POINT + 5))
