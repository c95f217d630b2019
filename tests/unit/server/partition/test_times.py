"""Questions about times at a partition."""

import asyncio

import pytest

from tests.unit.server.fakes import PartitionSetup, new_link, req_id, take
from waltz.common.metrics.exposition import prometheus_text
from waltz.common.replica_states import ReplicaStatus
from waltz.common.wire.client_times import TimeRequest, TimeResponse, TimeStatus
from waltz.common.wire.lags import UNKNOWN_LAG, PartitionLags, ReplicaLag
from waltz.common.wire.storage_times import TimeQuestion
from waltz.server.partition.partition import PartitionOptions
from waltz.server.store.interface import ReadFailedError, TimeEntry, TimesNotKeptError
from waltz.server.store.replica.replica_view import ReplicaView

AT, COVERING = TimeQuestion
OK, NOT_READY, NOT_ANSWERED, NOT_KEPT = TimeStatus
NOW_MS = 10_000


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def new_setup(limit: int = 10) -> PartitionSetup:
    setup = PartitionSetup(10, PartitionOptions(clock_ms=lambda: NOW_MS, max_undecided_count=limit))
    setup.partition.start()
    setup.log.open_session()
    setup.log.times = [TimeEntry(3, 1000), TimeEntry(9, 2000)]
    return setup


@pytest.mark.parametrize(
    ("question", "value", "found"),
    [
        (AT, 999, (-1, -1)),
        (AT, 1000, (3, 1000)),
        (AT, 1999, (3, 1000)),
        (AT, NOW_MS - 1, (9, 2000)),
        (AT, NOW_MS, (9, NOW_MS)),
        (AT, NOW_MS * 2, (9, NOW_MS)),
        (COVERING, 0, (3, 1000)),
        (COVERING, 4, (9, 2000)),
        (COVERING, 10, (-1, -1)),
    ],
)
async def test_the_log_is_asked(question: TimeQuestion, value: int, found: tuple[int, int]) -> None:
    setup, link = new_setup(), new_link(version=6)
    setup.partition.ask_time(link, TimeRequest(req_id(1), question, value))
    await settle()
    assert take(link) == [TimeResponse(req_id(1), OK, *found)]
    assert setup.log.confirmations == (question is AT and value >= NOW_MS)


@pytest.mark.parametrize(
    ("error", "status"), [(ReadFailedError("away"), NOT_ANSWERED), (TimesNotKeptError("original"), NOT_KEPT)]
)
async def test_without_an_answer_of_the_storages_the_client_is_told_why(error: Exception, status: TimeStatus) -> None:
    setup, link = new_setup(), new_link(version=6)
    setup.log.time_error = error
    setup.partition.ask_time(link, TimeRequest(req_id(1), AT, 5))
    setup.log.is_owner = False
    setup.partition.ask_time(link, TimeRequest(req_id(2), AT, NOW_MS))
    await settle()
    assert take(link) == [TimeResponse(req_id(1), status, -1, -1), TimeResponse(req_id(2), NOT_ANSWERED, -1, -1)]


async def test_a_defect_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    setup, link = new_setup(), new_link(version=6)
    setup.log.time_error = ArithmeticError("planted")
    setup.partition.ask_time(link, TimeRequest(req_id(1), AT, 5))
    await settle()
    assert take(link) == [TimeResponse(req_id(1), NOT_READY, -1, -1)]
    assert "planted" in caplog.text


async def test_not_more_are_asked_than_allowed_and_all_are_answered_when_the_partition_goes() -> None:
    setup, link = new_setup(limit=2), new_link(version=6)
    for number in (1, 2, 3):
        setup.partition.ask_time(link, TimeRequest(req_id(number), AT, 5))
    assert take(link) == [TimeResponse(req_id(3), NOT_ANSWERED, -1, -1)]
    await asyncio.sleep(0)
    await setup.partition.close()
    answers = take(link)
    assert sorted(answer.req_id for answer in answers if isinstance(answer, TimeResponse)) == [req_id(1), req_id(2)]


async def test_lags_have_an_age(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = new_setup()
    now_s = 100.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now_s)
    setup.log.replica_views = (
        ReplicaView("a:1", ReplicaStatus.LAGGING, 4),
        ReplicaView("b:1", ReplicaStatus.CURRENT, 0),
        ReplicaView("c:1", ReplicaStatus.AWAY, None),
    )
    setup.partition.tell_time(1)
    now_s = 107.0
    assert setup.partition.replica_lags_s() == {"a:1": 7.0, "b:1": 0.0, "c:1": None}
    replicas = [ReplicaLag("a:1", 4, 7000), ReplicaLag("b:1", 0, 0), ReplicaLag("c:1", UNKNOWN_LAG, UNKNOWN_LAG)]
    assert setup.partition.lags() == PartitionLags(setup.partition.partition_id, 0, 0, replicas)
    assert setup.partition.feed_lag_s == 0.0
    text = prometheus_text(setup.registry)
    assert 'waltz_server_partition_replica_lag_seconds{partition="0",storage="a:1"} 7.0\n' in text
    assert 'waltz_server_partition_replica_lag_seconds{partition="0",storage="c:1"}' not in text
