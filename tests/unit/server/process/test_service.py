"""The server behind its connections: dispatch, partitions that come and go, administrative requests."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import cast, get_args

import pytest

from tests.unit.rules import Only
from tests.unit.server.fakes import (
    GENERATION,
    FakeChannel,
    PartitionSetup,
    append,
    feed,
    flush,
    mount,
    req_id,
    take,
)
from waltz.common.access import ALLOW_ALL, Access, Right
from waltz.common.errors import ProtocolError, WaltzError
from waltz.common.ids import LONG_MIN, ReqId
from waltz.common.metrics.registry import Registry
from waltz.common.net.channel import Channel
from waltz.common.wire import client_server
from waltz.common.wire.append_request import AppendRequest
from waltz.common.wire.client_server import (
    AddPreferredPartitionRequest,
    AddPreferredPartitionResponse,
    CheckStorageConnectivityRequest,
    CheckStorageConnectivityResponse,
    FlushResponse,
    HighWaterMarkRequest,
    HighWaterMarkResponse,
    MountResponse,
    PartitionState,
    RemovePreferredPartitionRequest,
    RemovePreferredPartitionResponse,
    ServerPartitionsAssignmentRequest,
    ServerPartitionsAssignmentResponse,
    ServerPartitionsHealthStatRequest,
    ServerPartitionsHealthStatResponse,
    TransactionDataRequest,
    TransactionDataResponse,
)
from waltz.common.wire.lags import LagsRequest, LagsResponse, PartitionLags
from waltz.common.wire.partition_properties import (
    SetPropertiesRequest,
    SetPropertiesResponse,
    SetPropertiesStatus,
)
from waltz.common.wire.version5 import (
    AppendFailed,
    AppendFailure,
    DataListStatus,
    PartitionClosed,
    TransactionDataListRequest,
    TransactionDataListResponse,
)
from waltz.server.partition.append_rule import AppendRule
from waltz.server.partition.partition import ServerPartition
from waltz.server.process.property_setting import PropertiesSet
from waltz.server.process.service import MAX_ADMIN_REQUESTS, ServerService
from waltz.server.requests.appends import AppendLimits, Unacceptable
from waltz.server.requests.link import ClientLink


class Setup:
    def __init__(self, timeout_s: float = 1000.0, access: Access = ALLOW_ALL) -> None:
        self.made: list[PartitionSetup] = []
        self.preferred: list[tuple[int, ...]] = []
        self.properties: list[tuple[int, int, str]] = []
        self.cluster_error: WaltzError | None = None
        self.gate: asyncio.Event | None = None
        self.registry: Registry | None = None
        self.service = ServerService(
            self.make_partition,
            partition_count=8,
            append_limits=AppendLimits(1000, 10_000),
            question_timeout_s=timeout_s,
            check_storages=self.check_storages,
            set_preferred=self.set_preferred,
            set_properties=self.set_properties,
            access=access,
        )

    def make_partition(self, partition_id: int, generation: int) -> ServerPartition:
        # Request ids of the fakes are for partition 0; what matters here is which object is there.
        self.made.append(PartitionSetup(generation=generation, registry=self.registry))
        self.made[-1].partition.partition_id = partition_id
        return self.made[-1].partition

    async def check_storages(self) -> Mapping[str, bool]:
        if self.gate is not None:
            await self.gate.wait()
        return {"s2:6000": False, "s1:6000": True}

    async def set_preferred(self, partition_ids: Sequence[int]) -> None:
        if self.cluster_error is not None:
            raise self.cluster_error
        self.preferred.append(tuple(partition_ids))

    async def set_properties(self, partition_id: int, change: int, properties: str) -> PropertiesSet:
        if self.cluster_error is not None:
            raise self.cluster_error
        self.properties.append((partition_id, change, properties))
        return PropertiesSet(SetPropertiesStatus.DONE, change + 1)

    def link(self, version: int = 4) -> ClientLink:
        channel = FakeChannel(version)
        link = self.service.link_opened(channel)  # type: ignore[arg-type]  # what a link needs of a channel is there
        link.client_id, link.seq_num = 1, 0
        return link


async def settle() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    made = Setup()
    yield made
    await made.service.close()


async def test_partitions_come_and_go_exactly_as_assigned(setup: Setup) -> None:
    for wanted in ({1}, {1, 3}, {3}, {2, 3}, set()):
        setup.service.set_partitions(dict.fromkeys(wanted, 1))
        await settle()
        assert set(setup.service.partitions) == wanted
        opened = {made.partition.partition_id for made in setup.made if not made.log.closed}
        assert opened == wanted
        assert all(made.log.started == 1 for made in setup.made)


async def test_a_higher_generation_is_passed_on(setup: Setup) -> None:
    setup.service.set_partitions({1: 5})
    setup.service.set_partitions({1: 6})
    setup.service.set_partitions({1: 4})
    assert len(setup.made) == 1
    assert setup.service.partitions[1].generation == 6


async def test_a_partition_that_returns_waits_for_its_predecessor(setup: Setup) -> None:
    setup.service.set_partitions({0: GENERATION})
    (first,) = setup.made
    gate = asyncio.Event()
    close = first.log.close

    async def slow_close() -> None:
        await gate.wait()
        await close()

    first.log.close = slow_close  # type: ignore[method-assign]  # a log that takes its time
    setup.service.set_partitions({})
    setup.service.set_partitions({0: GENERATION})
    await settle()
    second = setup.made[1]
    assert second.log.started == 0
    link = setup.link()
    setup.service.received(link, mount(1, -1))
    assert take(link) == [], "requests wait in the new one meanwhile"
    gate.set()
    await settle()
    assert second.log.started == 1
    second.log.open_session()
    assert take(link) == [MountResponse(req_id(1), PartitionState.READY)]


async def test_a_partition_that_returns_has_all_its_metrics(setup: Setup) -> None:
    setup.registry = registry = Registry()

    def metrics() -> set[str]:
        return {found.name for found in (*registry.meters, *registry.timers, *registry.gauges)}

    setup.service.set_partitions({0: GENERATION})
    opened = metrics()
    setup.made[0].partition.append(setup.link(), [append(1)])
    for _ in range(3):  # those between leave before they have started
        setup.service.set_partitions({})
        setup.service.set_partitions({0: GENERATION})
    await settle()
    assert metrics() == opened
    assert setup.made[-1].meter("transaction") == 0
    setup.made[-1].partition.append(setup.link(), [append(1)])
    assert setup.made[-1].meter("transaction") == 1
    setup.service.set_partitions({})
    await settle()
    assert metrics() == {"feed-cache-miss", "transaction-cache-miss"}


async def test_a_partition_that_left_before_it_was_started_is_not_started(setup: Setup) -> None:
    setup.service.set_partitions({0: 1})
    gate = asyncio.Event()
    first_log = setup.made[0].log

    async def slow_close() -> None:
        await gate.wait()

    first_log.close = slow_close  # type: ignore[method-assign]  # a log that takes its time
    setup.service.set_partitions({})
    setup.service.set_partitions({0: 2})
    setup.service.set_partitions({})
    gate.set()
    await settle()
    assert setup.made[1].log.started == 0
    assert setup.made[1].log.closed == 1


async def test_requests_for_a_partition_that_is_not_here(setup: Setup) -> None:
    link = setup.link()
    setup.service.received(link, mount(1, -1))
    setup.service.append(link, [append(2)])
    setup.service.received(link, feed(3, -1))
    setup.service.received(link, flush(4))
    setup.service.received(link, TransactionDataRequest(req_id(5), 7))
    assert take(link) == [
        MountResponse(req_id(1), PartitionState.NOT_READY),
        TransactionDataResponse(req_id(5), 7, None, 0, "partition not ready"),
    ]


async def test_a_question_for_a_mark_waits_for_the_partition(setup: Setup) -> None:
    link = setup.link()
    setup.service.received(link, HighWaterMarkRequest(req_id(1)))
    assert take(link) == []
    setup.service.set_partitions({0: 1})
    setup.made[0].log.open_session()
    assert take(link) == [HighWaterMarkResponse(req_id(1), -1)]


async def test_a_question_for_a_mark_is_answered_unknown_in_the_end() -> None:
    setup = Setup(timeout_s=0.01)
    link = setup.link()
    setup.service.received(link, HighWaterMarkRequest(req_id(1)))
    async with asyncio.timeout(60):
        while not (messages := take(link)):
            await asyncio.sleep(0.001)
    assert messages == [HighWaterMarkResponse(req_id(1), LONG_MIN)]
    setup.service.received(link, HighWaterMarkRequest(req_id(2)))
    await setup.service.close()
    assert take(link) == [HighWaterMarkResponse(req_id(2), LONG_MIN)]


async def test_a_closed_connection_is_forgotten_by_the_partitions(setup: Setup) -> None:
    setup.service.set_partitions({0: GENERATION})
    setup.made[0].log.open_session()
    link = setup.link()
    setup.service.received(link, mount(1, -1))
    link.channel.abort()
    setup.service.link_closed(link)
    setup.service.append(link, [append(2)])
    assert setup.made[0].log.batches == []


ADMIN_ID = ReqId.of(-1, 0, 0, 0)


async def test_assignment_and_health(setup: Setup) -> None:
    setup.service.set_partitions({5: 1, 2: 1})
    setup.made[0].log.healthy = False
    link = setup.link()
    setup.service.received(link, ServerPartitionsAssignmentRequest(ADMIN_ID))
    setup.service.received(link, ServerPartitionsHealthStatRequest(ADMIN_ID))
    assert take(link) == [
        ServerPartitionsAssignmentResponse(ADMIN_ID, (2, 5)),
        ServerPartitionsHealthStatResponse(ADMIN_ID, ((2, True), (5, False))),
    ]


async def test_lags(setup: Setup) -> None:
    setup.service.set_partitions({5: 1, 2: 1})
    link = setup.link(6)
    setup.service.received(link, LagsRequest(ADMIN_ID))
    await settle()
    assert take(link) == [LagsResponse(ADMIN_ID, [PartitionLags(5, 0, 0, []), PartitionLags(2, 0, 0, [])])]


async def test_lists_have_the_partitions_that_the_client_may_describe() -> None:
    setup = Setup(access=Only(Right.DESCRIBE, partition_ids=[None, 5]))
    setup.service.set_partitions({5: 1, 2: 1})
    link = setup.link(6)
    setup.service.received(link, ServerPartitionsHealthStatRequest(ADMIN_ID))
    setup.service.received(link, LagsRequest(ADMIN_ID))
    await settle()
    health, lags = take(link)
    assert health == ServerPartitionsHealthStatResponse(ADMIN_ID, ((5, True),))
    assert lags == LagsResponse(ADMIN_ID, [PartitionLags(5, 0, 0, [])])
    await setup.service.close()


async def test_storage_connectivity(setup: Setup) -> None:
    link = setup.link()
    setup.service.received(link, CheckStorageConnectivityRequest(ADMIN_ID))
    await settle()
    assert take(link) == [CheckStorageConnectivityResponse(ADMIN_ID, (("s1:6000", True), ("s2:6000", False)))]


async def test_preferred_partitions_are_added_and_removed(setup: Setup) -> None:
    link = setup.link()
    steps: list[tuple[AddPreferredPartitionRequest | RemovePreferredPartitionRequest, tuple[int, ...]]] = [
        (AddPreferredPartitionRequest(ADMIN_ID, (3, 5, 3)), (3, 5)),
        (AddPreferredPartitionRequest(ADMIN_ID, (5, 1)), (3, 5, 1)),
        (RemovePreferredPartitionRequest(ADMIN_ID, (3, 7)), (5, 1)),
    ]
    for request, preferred in steps:
        setup.service.received(link, request)
        await settle()
        (answer,) = take(link)
        assert isinstance(answer, AddPreferredPartitionResponse | RemovePreferredPartitionResponse)
        assert answer.result
        assert setup.preferred[-1] == preferred


def properties_request(partition_id: int) -> SetPropertiesRequest:
    return SetPropertiesRequest(ReqId.of(1, 0, partition_id, 0), 4, '{"disabled": true}')


@pytest.mark.parametrize("partition_id", [2, 7])
async def test_properties_are_set_for_partitions_here_and_elsewhere(setup: Setup, partition_id: int) -> None:
    setup.service.set_partitions({2: GENERATION})
    link, request = setup.link(6), properties_request(partition_id)
    setup.service.received(link, request)
    await settle()
    assert take(link) == [SetPropertiesResponse(request.req_id, SetPropertiesStatus.DONE, 5, None)]
    assert setup.properties == [(partition_id, 4, '{"disabled": true}')]


async def test_properties_that_cannot_be_set_are_answered_with_the_reason(setup: Setup) -> None:
    link, unknown = setup.link(6), properties_request(8)
    setup.service.received(link, unknown)
    await settle()
    failed = SetPropertiesStatus.FAILED
    assert take(link) == [SetPropertiesResponse(unknown.req_id, failed, -1, "there is no partition 8")]
    setup.cluster_error, request = WaltzError("ZooKeeper is away"), properties_request(1)
    setup.service.received(link, request)
    await settle()
    assert take(link) == [SetPropertiesResponse(request.req_id, failed, -1, "ZooKeeper is away")]
    assert setup.properties == []


@pytest.mark.parametrize("ids", [(), (-1,), (2, -5), (8,), (1, 1 << 30)])
async def test_impossible_preferences_are_refused(setup: Setup, ids: tuple[int, ...]) -> None:
    link = setup.link()
    setup.service.received(link, AddPreferredPartitionRequest(ADMIN_ID, ids))
    setup.service.received(link, RemovePreferredPartitionRequest(ADMIN_ID, ids))
    await settle()
    assert take(link) == [
        AddPreferredPartitionResponse(ADMIN_ID, False),
        RemovePreferredPartitionResponse(ADMIN_ID, False),
    ]
    assert setup.preferred == []


async def test_a_failing_cluster_refuses_and_changes_nothing(setup: Setup) -> None:
    link = setup.link()
    setup.cluster_error = WaltzError("ZooKeeper is away")
    setup.service.received(link, AddPreferredPartitionRequest(ADMIN_ID, (1,)))
    await settle()
    assert take(link) == [AddPreferredPartitionResponse(ADMIN_ID, False)]
    setup.cluster_error = None
    setup.service.received(link, AddPreferredPartitionRequest(ADMIN_ID, (2,)))
    await settle()
    assert setup.preferred == [(2,)]


async def test_administrative_requests_of_one_connection_are_limited(setup: Setup) -> None:
    setup.gate = asyncio.Event()
    link, other = setup.link(), setup.link()
    for _ in range(MAX_ADMIN_REQUESTS):
        setup.service.received(link, CheckStorageConnectivityRequest(ADMIN_ID))
    with pytest.raises(ProtocolError, match="more than"):
        setup.service.received(link, CheckStorageConnectivityRequest(ADMIN_ID))
    setup.service.received(other, CheckStorageConnectivityRequest(ADMIN_ID))
    setup.gate.set()
    await settle()
    assert len(take(link)) == MAX_ADMIN_REQUESTS
    setup.service.received(link, CheckStorageConnectivityRequest(ADMIN_ID))
    await settle()
    assert len(take(link)) == 1


async def test_closing_closes_every_partition_and_takes_no_more(setup: Setup) -> None:
    setup.service.set_partitions({1: 1, 2: 1})
    await setup.service.close()
    assert [made.log.closed for made in setup.made] == [1, 1]
    setup.service.set_partitions({3: 1})
    assert setup.service.partitions == {}


async def test_appends_and_lists_for_a_partition_that_is_not_here(setup: Setup) -> None:
    old, new = setup.link(), setup.link()
    new.channel.version = 5
    for link in (old, new):
        setup.service.append(link, [append(1), append(2)])
    assert take(old) == []
    messages = take(new)
    assert [tuple(message)[:3] for message in messages] == [
        (req_id(number), AppendFailure.MOVED, LONG_MIN) for number in (1, 2)
    ]
    setup.service.received(new, TransactionDataListRequest(req_id(3), 0, 1, 1))
    assert take(new) == [TransactionDataListResponse(req_id(3), 0, DataListStatus.NOT_READY, LONG_MIN, [], None)]
    await setup.service.close()
    setup.service.append(new, [append(4)])
    assert [tuple(message)[1] for message in take(new)] == [AppendFailure.STOPPING]


async def test_a_disabled_partition_takes_no_appends_and_all_else_goes_on(setup: Setup) -> None:
    setup.service.set_append_rules(dict.fromkeys({0, 7}, AppendRule(disabled=True)))
    setup.service.set_partitions({0: GENERATION})
    (made,) = setup.made
    made.log.open_session()
    old, new = setup.link(), setup.link()
    new.channel.version, new.client_id = 5, 2
    for link in (old, new):
        setup.service.received(link, mount(0, -1, link.client_id or 0))
        take(link)
        setup.service.append(link, [append(1, client_id=link.client_id or 0)])
        setup.service.received(link, flush(3))
    assert [type(message) for message in take(old)] == [FlushResponse], "its client finds out by a flush"
    assert take(new) == [
        AppendFailed(req_id(1, 2), AppendFailure.MOVED, -1, "the partition is disabled by its properties"),
        FlushResponse(req_id(3), -1),
    ]
    setup.service.set_append_rules(dict.fromkeys({7}, AppendRule(disabled=True)))
    for link in (old, new):
        setup.service.append(link, [append(2, client_id=link.client_id or 0)])
    assert len(made.log.undecided) == 2
    setup.service.set_append_rules(dict.fromkeys({0}, AppendRule(disabled=True)))
    setup.service.append(new, [append(3, client_id=2)])
    assert len(made.log.undecided) == 2
    setup.service.set_partitions({})
    setup.service.set_partitions({0: GENERATION + 1})
    setup.service.append(new, [append(4, client_id=2, generation=GENERATION + 1)])
    assert [message.reason for message in take(new) if isinstance(message, AppendFailed)] == [AppendFailure.MOVED] * 2


async def test_clients_are_told_at_once_that_a_partition_has_left(setup: Setup) -> None:
    setup.service.set_partitions({0: GENERATION})
    links = [setup.link() for _ in range(3)]
    links[0].channel.version = links[1].channel.version = 5
    for number, link in enumerate(links):
        link.client_id = number
        setup.service.received(link, mount(number, -1, number))
        take(link)
    links[1].channel.abort()
    setup.service.set_partitions({})
    assert take(links[0]) == [PartitionClosed(req_id(0, 0))]
    assert take(links[2]) == []
    await settle()
    assert setup.made[0].log.closed == 1


async def test_a_large_append_is_refused_with_the_mark_of_its_partition(setup: Setup) -> None:
    setup.service.set_partitions({0: GENERATION})
    setup.made[0].log.open_session()
    link = setup.link()
    link.channel.version = 5
    for req in (req_id(1), ReqId.of(1, 1, 7, 2)):
        setup.service.append_unacceptable(link, Unacceptable(req, AppendFailure.TOO_LARGE, "too large"))
    assert take(link) == [
        AppendFailed(req_id(1), AppendFailure.TOO_LARGE, -1, "too large"),
        AppendFailed(ReqId.of(1, 1, 7, 2), AppendFailure.TOO_LARGE, LONG_MIN, "too large"),
    ]


async def test_a_defect_in_an_administrative_request_breaks_its_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    setup = Setup()
    link = setup.service.link_opened(cast("Channel", FakeChannel()))

    async def fail() -> Mapping[str, bool]:
        raise ArithmeticError("planted")

    monkeypatch.setattr(setup.service, "_check_storages", fail)
    setup.service.received(link, CheckStorageConnectivityRequest(ADMIN_ID))
    for _ in range(10):
        await asyncio.sleep(0)
    assert link.channel.closed
    assert "planted" in caplog.text
    await setup.service.close()


async def test_every_request_has_its_handler(setup: Setup) -> None:
    """Appends are the only ones that do not come one by one."""
    requests = {kind for kind in get_args(client_server.Message) if kind.__name__.endswith("Request")}
    handled = {*setup.service._at_partition, *setup.service._at_server}
    assert handled == requests - {AppendRequest}


async def test_a_right_may_hold_for_one_partition() -> None:
    setup = Setup(access=Only(Right.METADATA, partition_ids=[1]))
    setup.service.set_partitions({0: GENERATION, 1: GENERATION})
    link = setup.link()
    setup.service.received(link, mount(1, -1))
    assert take(link) == [MountResponse(req_id(1), PartitionState.NOT_READY)]
    setup.service.received(link, mount(2, -1)._replace(req_id=ReqId.of(1, 0, 1, 2)))
    assert list(link.mounts) == [setup.made[1].partition]
    await setup.service.close()
