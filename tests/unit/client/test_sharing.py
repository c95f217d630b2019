"""How instances share partitions, whatever happens to their sessions."""

import asyncio
import random
from collections.abc import Callable

import pytest

from tests.memory_zookeeper import MemoryZooKeeper, MemoryZooKeeperServer
from waltz.client import sharing
from waltz.client.errors import PositionConflictError
from waltz.client.sharing import Membership, fair_part
from waltz.common.zk.client import ConnectionLossError, State, ZooKeeperError
from waltz.common.zk.paths import ClusterPaths

pytestmark = pytest.mark.timeout(60)

ROOT = "/waltz"
PATHS = ClusterPaths.of(ROOT)
OWNERS = PATHS.consumer_owners("mails")


class Instance:
    """Checks that what it is told makes sense."""

    def __init__(self, zookeeper: MemoryZooKeeper, partition_count: int) -> None:
        self.zookeeper = zookeeper
        self.reading: set[int] = set()
        self.failure: BaseException | None = None
        self.refusing = 0
        self.told_lost = 0
        self.refusals: list[Exception] = []
        self.busy = asyncio.Event()
        self.busy.set()
        self.giving_back = 0
        self.may_begin = asyncio.Event()
        self.may_begin.set()
        self.taking = asyncio.Event()
        self.membership = Membership(
            zookeeper,
            ROOT,
            "mails",
            range(partition_count),
            take=self.take,
            give_back=self.give_back,
            lost=self.lost,
            failed=self.failed,
        )

    async def take(self, partition_id: int) -> None:
        assert partition_id not in self.reading
        self.taking.set()
        await asyncio.sleep(0)
        await self.may_begin.wait()
        self.taking.clear()
        if self.refusals:
            raise self.refusals.pop()
        if self.refusing:
            self.refusing -= 1
            raise ZooKeeperError("not yet") if self.refusing > 100 else ConnectionLossError("not yet")
        self.reading.add(partition_id)

    async def give_back(self, partition_id: int) -> None:
        self.giving_back += 1
        await self.busy.wait()
        self.giving_back -= 1
        self.reading.discard(partition_id)

    def lost(self, partition_id: int) -> None:
        self.told_lost += 1
        self.reading.discard(partition_id)

    def failed(self, error: BaseException) -> None:
        self.failure = error


async def shared_by(instances: list[Instance], partition_count: int) -> None:
    """Return when everything is taken, by one each, in fair parts."""
    names = [str(number) for number in range(len(instances))]
    sizes = sorted(fair_part(partition_count, names, name) for name in names)
    while True:
        taken = [each for instance in instances for each in instance.reading]
        assert all(instance.failure is None for instance in instances)
        if (
            sorted(taken) == list(range(partition_count))
            and sorted(len(instance.reading) for instance in instances) == sizes
            and all(instance.reading == instance.membership.owned for instance in instances)
        ):
            return
        await asyncio.sleep(0.0005)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "RETRY_S", 0.001)


async def joined(server: MemoryZooKeeperServer, count: int) -> Instance:
    instance = Instance(await server.connect(operation_timeout_s=0.05), count)
    instance.membership.start()
    return instance


@pytest.fixture
async def server() -> MemoryZooKeeperServer:
    server = MemoryZooKeeperServer()
    zookeeper = await server.connect()
    await zookeeper.create(ROOT, None)
    return server


@pytest.mark.parametrize("count", [0, 1, 7, 16])
def test_fair_parts(count: int) -> None:
    for members in range(1, 10):
        names = [f"m{number}" for number in range(members)]
        parts = [fair_part(count, names, name) for name in names]
        assert sum(parts) == count
        assert max(parts) - min(parts) <= 1


async def test_nothing_moves_that_need_not(server: MemoryZooKeeperServer) -> None:
    instances = [await joined(server, 12) for _ in range(3)]
    await shared_by(instances, 12)
    before = [set(instance.reading) for instance in instances]
    instances.append(await joined(server, 12))
    await shared_by(instances, 12)
    for had, instance in zip(before, instances[:3], strict=True):
        assert instance.reading < had
    before = [set(instance.reading) for instance in instances]
    await instances.pop().membership.leave()
    await shared_by(instances, 12)
    for had, instance in zip(before, instances, strict=False):
        assert instance.reading > had
    for instance in instances:
        await instance.membership.leave()
        assert not instance.reading
    assert [path for path in server.dump() if path.count("/") > 5] == [], "nothing is left in ZooKeeper"


async def test_a_partition_is_nobody_elses_until_it_is_given_back(server: MemoryZooKeeperServer) -> None:
    one = await joined(server, 4)
    await shared_by([one], 4)
    one.busy.clear()
    other = await joined(server, 4)
    for _ in range(100):
        await asyncio.sleep(0)
    assert (len(one.reading), len(other.reading)) == (4, 0)
    one.busy.set()
    await shared_by([one, other], 4)


async def test_a_session_that_ends_takes_the_partitions_along(server: MemoryZooKeeperServer) -> None:
    one, other = await joined(server, 4), await joined(server, 4)
    await shared_by([one, other], 4)
    server.disconnect(one.zookeeper)
    assert len(one.reading) == 2, "it may come back in time"
    server.expire(one.zookeeper)
    assert not one.reading, "without a word of the ensemble"
    await shared_by([other], 4)
    server.reconnect(one.zookeeper)
    assert not one.reading
    await shared_by([one, other], 4)


async def test_a_session_that_counted_as_ended_and_turns_out_to_live(server: MemoryZooKeeperServer) -> None:
    one, other = await joined(server, 4), await joined(server, 4)
    await shared_by([one, other], 4)
    session_id = one.zookeeper.session_id
    one.zookeeper.change_state(State.LOST)
    assert not one.reading
    one.zookeeper.change_state(State.CONNECTED)
    assert one.zookeeper.session_id == session_id, "and its nodes are there"
    await shared_by([one, other], 4)


async def owners(server: MemoryZooKeeperServer, count: int) -> dict[int, int]:
    """By partition, the session of the node that says who has it."""
    zookeeper = await server.connect()
    found = {}
    for partition_id in range(count):
        stat = await zookeeper.exists(f"{OWNERS}/{partition_id}")
        if stat is not None:
            found[partition_id] = stat.owner
    await zookeeper.close()
    return found


async def test_nobody_deletes_the_node_of_another_one(server: MemoryZooKeeperServer) -> None:
    """Not for a partition that it believes to have been its own."""
    one, other = await joined(server, 4), await joined(server, 4)
    await shared_by([one, other], 4)
    before = await owners(server, 4)
    for partition_id in one.reading:
        other.membership.give_up(partition_id)
    while other.membership._doubtful:
        await asyncio.sleep(0)
    assert await owners(server, 4) == before
    await other.membership.leave()
    left = await owners(server, 4)
    assert {each: left[each] for each in one.reading if each in left} == {each: before[each] for each in one.reading}


async def test_a_partition_that_was_lost_while_it_was_given_back_is_left_alone(server: MemoryZooKeeperServer) -> None:
    one = await joined(server, 2)
    await shared_by([one], 2)
    one.busy.clear()
    other = await joined(server, 2)
    while not one.giving_back:
        await asyncio.sleep(0)
    server.expire(one.zookeeper)
    await shared_by([other], 2)
    other.busy.clear()
    server.reconnect(one.zookeeper)
    one.busy.set()
    while one.giving_back:
        await asyncio.sleep(0)
    for _ in range(50):
        await asyncio.sleep(0)
        assert set((await owners(server, 2)).values()) == {other.zookeeper.session_id}
    other.busy.set()
    await shared_by([one, other], 2)


async def test_a_session_that_ends_while_a_partition_is_begun(server: MemoryZooKeeperServer) -> None:
    one = Instance(await server.connect(operation_timeout_s=0.05), 1)
    one.may_begin.clear()
    one.membership.start()
    await one.taking.wait()
    server.expire(one.zookeeper)
    one.may_begin.set()
    while one.taking.is_set():
        await asyncio.sleep(0)
    assert not one.reading
    server.reconnect(one.zookeeper)
    await shared_by([one], 1)


async def test_a_session_that_ends_with_the_node_that_it_has_just_made(
    server: MemoryZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And another session has taken its place by the time the answer is there."""
    create, ends = MemoryZooKeeper.create, 1

    async def late(self: MemoryZooKeeper, path: str, data: bytes | None, **more: bool) -> str:
        nonlocal ends
        made = await create(self, path, data, **more)
        if path == f"{OWNERS}/0" and ends:
            ends -= 1
            server.expire(self)
            server.reconnect(self)
        return made

    monkeypatch.setattr(MemoryZooKeeper, "create", late)
    one = await joined(server, 1)
    await shared_by([one], 1)
    assert ends == 0
    assert await owners(server, 1) == {0: one.zookeeper.session_id}


async def test_a_partition_that_cannot_be_begun_is_tried_again(server: MemoryZooKeeperServer) -> None:
    one = await joined(server, 4)
    one.refusing = 3
    await shared_by([one], 4)
    assert one.refusing == 0
    assert one.told_lost == 3, "what was begun of it is undone"


async def test_a_partition_whose_first_position_somebody_else_has_stored_is_contended_for_again(
    server: MemoryZooKeeperServer,
) -> None:
    one = await joined(server, 4)
    one.refusals = [PositionConflictError([0], "memory")] * 3
    await shared_by([one], 4)
    assert not one.refusals


async def test_a_database_that_is_away_is_told_at_the_start_and_tried_again_later(
    server: MemoryZooKeeperServer,
) -> None:
    one = await joined(server, 4)
    await shared_by([one], 4)
    one.refusals = [OSError("away")] * 3
    one.lost(2)
    one.membership.give_up(2)
    await shared_by([one], 4)
    assert not one.refusals
    await one.membership.leave()
    late = await joined(server, 4)
    late.refusals = [OSError("away")]
    while late.failure is None:
        await asyncio.sleep(0)
    assert str(late.failure) == "away"
    await late.membership.leave()


async def test_what_cannot_be_gone_on_with_is_told(server: MemoryZooKeeperServer) -> None:
    one = await joined(server, 4)
    one.refusing = 1_000
    while one.failure is None:
        await asyncio.sleep(0)
    assert str(one.failure) == "not yet"
    await one.membership.leave()


async def test_leaving_before_having_joined_is_nothing(server: MemoryZooKeeperServer) -> None:
    await Instance(await server.connect(), 4).membership.leave()


def at_the_first_owner(zookeeper: MemoryZooKeeper, happens: Callable[[], None]) -> None:
    """What happens when a partition's node has been made for the first time, before its instance is told."""
    create, left = zookeeper.create, [happens]

    async def created(path: str, data: bytes | None, **options: bool) -> str:
        made = await create(path, data, **options)
        if path.startswith(f"{PATHS.consumer_owners('mails')}/") and left:
            left.pop()()
        return made

    zookeeper.create = created  # type: ignore[method-assign]  # the same, and something happens


async def test_who_leaves_gives_back_what_it_may_have_taken_without_being_told(
    server: MemoryZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "RETRY_S", 3600.0)
    lost = asyncio.Event()

    def lose_the_answer() -> None:
        lost.set()
        raise ConnectionLossError("the answer is lost")

    one = Instance(await server.connect(), 4)
    at_the_first_owner(one.zookeeper, lose_the_answer)
    one.membership.start()
    await lost.wait()
    other = await joined(server, 4)
    await one.membership.leave()
    await shared_by([other], 4)
    await other.membership.leave()


async def test_who_leaves_while_a_node_is_being_made_leaves_none_behind(
    server: MemoryZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    zookeeper, other = await server.connect(), Instance(await server.connect(), 1)
    create, making = other.zookeeper.create, asyncio.Event()

    async def made_and_unanswered(path: str, *arguments: object, **options: object) -> str:
        made = await create(path, *arguments, **options)  # type: ignore[arg-type]  # whatever they are
        if path.startswith(OWNERS + "/"):
            making.set()
            await asyncio.Event().wait()
        return made

    monkeypatch.setattr(other.zookeeper, "create", made_and_unanswered)
    other.membership.start()
    await making.wait()
    await other.membership.leave()
    assert await zookeeper.children(OWNERS) == [], "its session lives on"


async def test_nobody_takes_more_than_its_part_to_give_it_back(server: MemoryZooKeeperServer) -> None:
    """Also where the others have not taken theirs yet."""
    late = await server.connect()
    await late.create(PATHS.consumer_members("mails"), None, make_path=True)
    await late.create(f"{PATHS.consumer_members('mails')}/late", None, ephemeral=True)
    one = await joined(server, 4)
    most = 0
    for _ in range(200):
        await asyncio.sleep(0)
        most = max(most, len(one.reading))
    assert (len(one.reading), most) == (2, 2)
    await one.membership.leave()


async def test_a_partition_taken_by_a_session_that_ended_at_that_moment_is_taken_again(
    server: MemoryZooKeeperServer,
) -> None:
    one = Instance(await server.connect(), 4)
    at_the_first_owner(one.zookeeper, lambda: server.expire(one.zookeeper))
    one.membership.start()
    await shared_by([one], 4)
    owners = PATHS.consumer_owners("mails")
    assert {f"{owners}/{partition_id}" for partition_id in range(4)} <= set(server.dump())
    await one.membership.leave()


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_happens_everything_is_read_by_one(seed: int) -> None:
    chance = random.Random(seed)
    server = MemoryZooKeeperServer(lambda: chance.random() * 0.0005)
    await (await server.connect()).create(ROOT, None)
    count = chance.randrange(1, 9)
    instances = [await joined(server, count) for _ in range(chance.randrange(1, 5))]
    for _ in range(60):
        instance = chance.choice(instances)
        match chance.randrange(9):
            case 0 if len(instances) < 5:
                instances.append(await joined(server, count))
            case 1 if len(instances) > 1:
                instances.remove(instance)
                await instance.membership.leave()
                await instance.zookeeper.close()
            case 2:
                server.expire(instance.zookeeper)
            case 3:
                server.disconnect(instance.zookeeper)
            case 4:
                server.reconnect(instance.zookeeper)
            case 5:
                instance.zookeeper.lose_request(chance.choice(["create", "delete", "children", "exists"]))
            case 6:
                instance.zookeeper.lose_answer(chance.choice(["create", "delete", "children", "exists"]))
            case 7:
                if instance.reading:
                    partition_id = chance.choice(sorted(instance.reading))
                    instance.lost(partition_id)
                    instance.membership.give_up(partition_id)
            case _:
                instance.refusing = 1
        await asyncio.sleep(chance.random() * 0.003)
        alive = [each for each in instances if each.zookeeper.session_id in server._sessions]
        taken = [each for instance in alive for each in instance.reading]
        assert len(taken) == len(set(taken))
    for instance in instances:
        server.reconnect(instance.zookeeper)
    await shared_by(instances, count)
    for instance in instances:
        await instance.membership.leave()
