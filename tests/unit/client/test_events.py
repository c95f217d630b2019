"""What happens to clients is told to the log and to a function."""

import logging

import pytest

import waltz
from tests.unit.client.application import Callbacks
from waltz.client.events import ClientEvent, Events, Lagging
from waltz.client.mock import MockDriver
from waltz.common.ids import Endpoint
from waltz.common.zk.znodes import PartitionGeneration

LOCK = waltz.PartitionLocalLock("account", 1)
HERE, THERE = Endpoint("here", 1), Endpoint("there", 2)


@pytest.fixture
def told() -> list[ClientEvent]:
    return []


@pytest.fixture
def events(told: list[ClientEvent], caplog: pytest.LogCaptureFixture) -> Events:
    caplog.set_level(logging.DEBUG, "waltz.client.events")
    return Events(told.append)


def test_every_event_is_a_line_and_a_call(
    events: Events, told: list[ClientEvent], caplog: pytest.LogCaptureFixture
) -> None:
    broken = ConnectionError("reset")
    events.connected(HERE)
    events.lost(HERE, broken)
    events.moved(3, HERE, THERE)
    events.conflict(3, 7)
    events.conflict(3, -1)
    events.behind(3, 5000)
    events.caught_up(3)
    lines = [
        ("INFO", "connected to here:1"),
        ("INFO", "the connection to here:1 is lost (reset); connecting again"),
        ("INFO", "partition 3 has moved from here:1 to there:2"),
        ("DEBUG", "partition 3: an append was refused, because transaction 7 changed a lock of it"),
        (
            "DEBUG",
            "partition 3: an append was refused, because a transaction that is not known changed a lock of it",
        ),
        ("WARNING", "partition 3 is read or applied too slowly: 5000 transactions behind the log"),
        ("INFO", "partition 3 has caught up with the log"),
    ]
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == lines
    assert [str(event) for event in told] == [line for _, line in lines]
    assert [event.kind for event in told] == ["connected", "lost", "moved", "conflict", "conflict", "behind", "behind"]
    assert (told[1].endpoint, told[1].error) == (HERE, broken)
    assert (told[2].partition_id, told[2].endpoint) == (3, THERE)
    assert (told[3].partition_id, told[3].transaction_id) == (3, 7)
    assert [event.count for event in told[5:]] == [5000, 0]


def test_what_the_function_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail(event: ClientEvent) -> None:
        raise ValueError("a defect")

    Events(fail).connected(HERE)
    assert "on_event failed for: connected to here:1" in caplog.text


def test_conflicts_that_nobody_wants_to_hear_of_cost_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    Events().conflict(3, 7)
    assert not caplog.records


def test_behind_is_who_is_so_at_two_looks(events: Events, told: list[ClientEvent]) -> None:
    lagging = Lagging(events, 100)

    def look(**lags: int) -> list[tuple[int | None, int | None]]:
        told.clear()
        lagging.look({int(name[1:]): lag for name, lag in lags.items()})
        return [(event.partition_id, event.count) for event in told]

    assert look(p0=100, p1=99) == []
    assert look(p0=120, p1=500) == [(0, 120)]
    assert look(p0=130, p1=510) == [(1, 510)]
    assert look(p0=51, p1=600) == []  # neither behind nor quite caught up
    assert look(p0=50, p1=600) == [(0, 0)]
    assert look(p0=500) == []  # partition 1 is not read any more
    assert look(p0=0) == []
    assert look(p0=100) == []
    assert look(p0=100) == [(0, 100)]


def test_what_is_catching_up_is_not_behind(events: Events, told: list[ClientEvent]) -> None:
    lagging = Lagging(events, 100)
    for lag in (50_000, 40_000, 20_000, 19_999):
        lagging.look({0: lag})
    assert told == []
    lagging.look({0: 19_999})
    assert [(event.kind, event.count) for event in told] == [("behind", 19_999)]
    for lag in (5_000, 5_001, 50):
        lagging.look({0: lag})
    assert [event.count for event in told] == [19_999, 0]


async def test_clients_tell_of_connections_and_conflicts(told: list[ClientEvent]) -> None:
    driver = MockDriver(1)
    async with waltz.connect(driver, on_event=told.append) as client:
        await client.append(0, b"a", append_locks=[LOCK])
        with pytest.raises(waltz.LockConflict):
            await client.append(0, b"b", write_locks=[LOCK], high_water_mark=-1)
        driver.disconnect()
        await client.append(0, b"c")
    assert [event.kind for event in told] == ["connected", "conflict", "lost", "connected"]
    assert (told[1].partition_id, told[1].transaction_id) == (0, 0)


async def test_clients_tell_of_slow_readers(told: list[ClientEvent]) -> None:
    options = waltz.ClientOptions(behind_count=10)
    async with (
        waltz.connect(MockDriver(1), options=options, long_wait_threshold_ms=5, on_event=told.append) as client,
        client.feed(0, after=-1) as feed,
    ):
        await client.append_many(0, [b"a"] * 20, high_water_mark=-1)
        while not any(event.kind == "behind" for event in told):
            await client.high_water_mark(0)
        assert (told[-1].partition_id, told[-1].count) == (0, 20)
        while feed.handed_out < 19:
            await feed.next_batch()
        while told[-1].count != 0:
            await client.high_water_mark(0)


async def test_every_face_takes_the_function(told: list[ClientEvent]) -> None:
    async with waltz.open_client(Callbacks(), MockDriver(1), on_event=told.append) as client:
        await client.transact(0, lambda basis: b"a")
    assert [event.kind for event in told] == ["connected"]


def test_so_does_the_blocking_one(told: list[ClientEvent]) -> None:
    with waltz.blocking.connect(MockDriver(1), on_event=told.append) as client:
        client.append(0, b"a")
    assert [event.kind for event in told] == ["connected"]


async def test_clients_tell_of_partitions_that_move(told: list[ClientEvent]) -> None:
    async with waltz.connect(MockDriver(2), on_event=told.append) as client:
        await client.append(0, b"a")
        engine = client._engine
        assert engine is not None
        owners = {partition.partition_id: partition.mount.link for partition in engine.partitions}
        assert owners[0] is not None
        before, moved = owners[0].endpoint, [PartitionGeneration(0, 1), PartitionGeneration(1, 1)]
        told.clear()
        engine.set_endpoints({THERE: moved})
        assert [(event.kind, event.partition_id, event.endpoint) for event in told[:1]] == [("moved", 0, THERE)]
        assert str(told[0]) == f"partition 0 has moved from {before} to {THERE}"
        assert not any(event.partition_id == 1 for event in told), "the client takes no part in it"
