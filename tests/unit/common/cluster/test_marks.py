import asyncio

import pytest

from tests.unit.common.cluster.fakes import GENERATION, FakeCluster, FakeOwner
from tests.unit.relay import HOST, relay
from waltz.common.cluster import marks
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.cluster.marks import MarkUnknownError, read_committed_marks
from waltz.common.ids import Endpoint, ReqId
from waltz.common.wire.frames import CLIENT_SERVER
from waltz.common.zk.znodes import PartitionAssignment


async def ask(
    cluster: FakeCluster, *partition_ids: int, timeout_s: float = 30.0, time_ms: int | None = None
) -> dict[int, int]:
    deadline_s = asyncio.get_running_loop().time() + timeout_s
    handle = ClusterHandle(cluster.zookeeper, cluster.root, None)
    return await read_committed_marks(handle, partition_ids, deadline_s=deadline_s, time_ms=time_ms)


async def test_marks_come_from_the_owner(cluster: FakeCluster) -> None:
    assert await ask(cluster, 0, 1, 2) == {0: 9, 1: -1, 2: 0}
    assert cluster.owner.requests == [ReqId.of(-1, GENERATION, partition_id, partition_id) for partition_id in range(3)]


async def test_only_what_is_wanted_is_asked(cluster: FakeCluster) -> None:
    assert await ask(cluster, 2) == {2: 0}
    assert [req_id.partition_id for req_id in cluster.owner.requests] == [2]
    assert await ask(cluster) == {}
    assert len(cluster.owner.requests) == 1


async def test_a_mark_that_is_not_known_yet_is_asked_again(cluster: FakeCluster) -> None:
    cluster.owner.unknown_at_first[0] = 2
    assert await ask(cluster, 0, 2) == {0: 9, 2: 0}
    assert [req_id.partition_id for req_id in cluster.owner.requests] == [0, 2, 0, 0]


async def test_a_mark_that_stays_unknown_is_an_error(cluster: FakeCluster) -> None:
    cluster.owner.unknown_at_first[0] = 1000
    with pytest.raises(
        MarkUnknownError, match=r"no server told the high-water mark of partition 0 within 1 s: .* not know it yet"
    ):
        await ask(cluster, 0, 2, timeout_s=1.0)


async def test_the_new_owner_is_asked(cluster: FakeCluster) -> None:
    successor = FakeOwner({0: 12, 1: -1, 2: 0})
    await successor.start()
    cluster.owner.unknown_at_first[0] = 1000

    async def hand_over() -> None:
        await cluster.register_server(2, successor.endpoint)
        await cluster.assign_to(2)
        cluster.owner.before_answer = None

    cluster.owner.before_answer = hand_over
    assert await ask(cluster, 0) == {0: 12}
    await successor.stop()


async def test_silence_is_explained(cluster: FakeCluster) -> None:
    cluster.owner.silent = {0, 1}
    with pytest.raises(MarkUnknownError, match=r"of partition 0 \(and 1 more\).*127.0.0.1:\d+ did not answer within"):
        await ask(cluster, 0, 1, 2, timeout_s=0.3)


@pytest.fixture
def only_one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next attempt would be behind the deadline."""
    monkeypatch.setattr(marks, "RETRY_INITIAL_S", 1000.0)
    monkeypatch.setattr(marks, "RETRY_MAXIMUM_S", 1000.0)


@pytest.mark.usefixtures("only_one_attempt")
async def test_an_owner_that_is_down_is_explained(cluster: FakeCluster) -> None:
    await cluster.owner.stop()
    with pytest.raises(MarkUnknownError, match=r"cannot connect to 127.0.0.1:\d+: connection refused"):
        await ask(cluster, 0)


@pytest.mark.usefixtures("only_one_attempt")
async def test_nobody_owns_it(cluster: FakeCluster) -> None:
    await cluster.zookeeper.set(cluster.paths.server_descriptors, PartitionAssignment(1, 3, {}).encode())
    with pytest.raises(MarkUnknownError, match="partition 1 .*: no server owns it"):
        await ask(cluster, 1)
    await cluster.assign_to(9)
    with pytest.raises(MarkUnknownError, match="partition 1 .*: its owner, server 9, is gone"):
        await ask(cluster, 1)


@pytest.mark.usefixtures("only_one_attempt")
async def test_not_a_server(cluster: FakeCluster) -> None:
    await cluster.register_server(2, Endpoint("127.0.0.1", cluster.storages[0].admin_port))
    await cluster.assign_to(2)
    with pytest.raises(MarkUnknownError, match=r"its owner: server 127.0.0.1:\d+ closed the connection"):
        await ask(cluster, 1)


async def test_a_connection_that_goes_dead_is_replaced(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The question has arrived, and its answer never comes."""
    monkeypatch.setattr(marks, "ATTEMPT_TIMEOUT_S", 0.3)
    async with relay(cluster.owner.endpoint.port) as line:

        async def lose() -> None:
            cluster.owner.before_answer = None
            line.blackhole()

        cluster.owner.before_answer = lose
        await cluster.register_server(2, Endpoint(HOST, line.port))
        await cluster.assign_to(2)
        assert await ask(cluster, 0) == {0: 9}
        assert len(cluster.owner.requests) == 2


async def test_a_line_that_stays_dead_is_explained(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """First no answer comes, and then there is not even a connection."""
    monkeypatch.setattr(marks, "ATTEMPT_TIMEOUT_S", 0.3)
    async with relay(cluster.owner.endpoint.port) as line:

        async def lose() -> None:
            line.cut()

        cluster.owner.before_answer = lose
        await cluster.register_server(2, Endpoint(HOST, line.port))
        await cluster.assign_to(2)
        with pytest.raises(MarkUnknownError, match=rf"cannot connect to {HOST}:{line.port}: not ready within"):
            await ask(cluster, 0, timeout_s=3.0)
        assert len(cluster.owner.requests) == 1


async def test_an_attempt_that_the_deadline_cuts_off_hides_no_earlier_reason(cluster: FakeCluster) -> None:
    """First the mark is not known yet, then the owner falls silent until it is too late."""
    cluster.owner.unknown_at_first[0] = 1

    async def fall_silent() -> None:
        if len(cluster.owner.requests) == 2:
            cluster.owner.silent = {0}

    cluster.owner.before_answer = fall_silent
    with pytest.raises(MarkUnknownError, match=r"its owner 127.0.0.1:\d+ does not know it yet"):
        await ask(cluster, 0, timeout_s=1.0)
    assert len(cluster.owner.requests) == 2


async def test_marks_at_a_time(cluster: FakeCluster) -> None:
    cluster.owner.times = {0: {3: 1000, 7: 2000}, 2: {0: 1500}}
    cluster.owner.refused_times = 2
    assert await ask(cluster, 0, 1, 2, time_ms=1499) == {0: 3, 1: -1, 2: -1}
    assert await ask(cluster, 0, 2, time_ms=2000) == {0: 7, 2: 0}
    assert cluster.owner.requests == [], "nobody was asked for marks"


async def test_times_that_nobody_keeps_are_an_error_at_once(cluster: FakeCluster) -> None:
    cluster.owner.times = None
    with pytest.raises(MarkUnknownError, match="none of its storages keeps the times of commits"):
        await ask(cluster, 0, 1, time_ms=5, timeout_s=1e6)


async def test_a_server_that_is_too_old_for_times_is_named_at_once(cluster: FakeCluster) -> None:
    old = FakeOwner({0: 12})
    await old.start(family=CLIENT_SERVER._replace(versions=(0, 1, 2, 3, 4)))
    await cluster.register_server(2, old.endpoint)
    await cluster.assign_to(2)
    with pytest.raises(MarkUnknownError, match="is too old to tell the times of commits"):
        await ask(cluster, 0, time_ms=5, timeout_s=1e6)
    assert await ask(cluster, 0) == {0: 12}
    await old.stop()
