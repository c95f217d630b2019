"""Moves step by step, over storages and a server of the test's own; real ones move in integration tests."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

import pytest

from tests.memory_zookeeper import MemoryZooKeeper, MemoryZooKeeperServer
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.errors import ConnectFailedError, DeadlineExceededError, ProtocolError, WaltzError
from waltz.common.ids import Endpoint
from waltz.common.zk import store_admin
from waltz.common.zk.client import ConnectionLossError
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.znodes import UNRESOLVED, PartitionMetadata, ReplicaId, ReplicaState
from waltz.operations import replica_moving
from waltz.operations.filling import FillOptions
from waltz.operations.replica_moves import ReplicaMove
from waltz.operations.replica_moving import (
    MoveOptions,
    ReplicaMover,
    ReplicaPlan,
    locked_moves,
    name_move,
    partitions_of_move,
    read_moves,
)
from waltz.storage.remote.admin_client import StorageAdminClient

ROOT = "/waltz"
MOVE = ReplicaMove("s1:1", "s2:1")


async def cluster_of_two() -> tuple[MemoryZooKeeper, ClusterHandle]:
    zookeeper = await MemoryZooKeeperServer().connect()
    await store_admin.create_cluster(zookeeper, ROOT, "moving", 20)
    for storage in MOVE:
        await store_admin.add_storage_node(zookeeper, ROOT, storage, 1, 2)
    await store_admin.assign_partitions(zookeeper, ROOT, MOVE.source, [4])
    return zookeeper, ClusterHandle(zookeeper, ROOT, None)


async def test_moves_are_read_and_what_is_no_move_is_named() -> None:
    zookeeper, cluster = await cluster_of_two()
    assert await read_moves(cluster) == ({}, [])
    moves = ClusterPaths.of(ROOT).replica_moves
    foreign = {"notes": b"{}", "007": MOVE.encode(), "-1": b"", "\u0663": b"", "9" * 5000: b"", "3": b"[" * 200_000}
    for name, data in {"11": MOVE.encode(), "2": MOVE.encode(), **foreign}.items():
        await zookeeper.create(f"{moves}/{name}", data, make_path=True)
    found = await read_moves(cluster)
    assert list(found.moves.items()) == [(2, MOVE), (11, MOVE)]
    assert len(found.foreign) == len(foreign)
    assert f"{moves}/notes is not named for a partition: it is ignored" in found.foreign
    assert f"{moves}/3 does not say which replica is being moved: delete it if it is not needed" in found.foreign
    lines: list[str] = []
    assert await partitions_of_move(cluster, MOVE, None, lines.append, back=False) == [2, 4, 11]
    assert await partitions_of_move(cluster, MOVE, None, lines.append, back=True) == [2, 11]
    assert lines == 2 * [f"Warning: {warning}" for warning in found.foreign]


async def test_a_partition_whose_own_move_cannot_be_read_is_not_moved() -> None:
    zookeeper, cluster = await cluster_of_two()
    await zookeeper.create(ClusterPaths.of(ROOT).replica_move(4), b"[]", make_path=True)
    mover = ReplicaMover(cluster, MOVE, MoveOptions(False, 1, 1), print, lambda *_: pytest.fail("nothing is copied"))
    with pytest.raises(ProtocolError, match="/ext/move/4 does not say which replica is being moved"):
        await mover.plan([4])


async def test_partitions_that_move_elsewhere_are_not_of_the_move() -> None:
    zookeeper, cluster = await cluster_of_two()
    await zookeeper.create(ClusterPaths.of(ROOT).replica_move(3), ReplicaMove("s2:1", "s1:1").encode(), make_path=True)
    for back, expected in ((False, [4]), (True, [])):
        assert await partitions_of_move(cluster, MOVE, None, pytest.fail, back=back) == expected


async def test_a_move_is_named_by_either_port_of_two_nodes() -> None:
    _, cluster = await cluster_of_two()
    assert await name_move(cluster, Endpoint("s1", 1), Endpoint("s2", 2)) == MOVE
    with pytest.raises(WaltzError, match="s1:1 cannot be both source and destination"):
        await name_move(cluster, Endpoint("s1", 1), Endpoint("s1", 2))
    with pytest.raises(WaltzError, match="there is no storage node s3:1 in the cluster; there are: s1:1, s2:1"):
        await name_move(cluster, Endpoint("s1", 1), Endpoint("s3", 1))


async def test_partitions_that_are_named_are_those_of_the_cluster() -> None:
    _, cluster = await cluster_of_two()
    assert await partitions_of_move(cluster, MOVE, [7, 3], print, back=True) == [7, 3]
    with pytest.raises(WaltzError, match="20"):
        await partitions_of_move(cluster, MOVE, [20], print, back=False)


class Admin(NamedTuple):
    """The admin port of one node."""

    world: "World"
    storage: str

    async def assigned_partition_status(self) -> dict[int, bool]:
        return {each: (self.storage, each) not in self.world.offline for each in self.world.files[self.storage]}

    async def set_available(self, partition_ids: list[int], available: bool) -> None:
        for partition_id in partition_ids:
            if available:
                self.world.offline.discard((self.storage, partition_id))
            else:
                self.world.offline.add((self.storage, partition_id))
                await self.world.when_off()

    async def set_assigned(self, partition_ids: list[int], assigned: bool, *, delete_files: bool = False) -> None:
        assert (assigned, delete_files) == (False, True)
        assert all((self.storage, partition_id) in self.world.offline for partition_id in partition_ids)
        self.world.offline.difference_update((self.storage, partition_id) for partition_id in partition_ids)
        self.world.files[self.storage].difference_update(partition_ids)
        self.world.done.append(f"cleared {self.storage} of {partition_ids}")

    async def records(self, partition_id: int, first_id: int, count: int) -> list[object]:
        assert count == 1
        self.world.looked_for.append((self.storage, first_id))
        return [object()] if self.world.maxima[self.storage] >= first_id else []

    async def close(self) -> None: ...


async def nothing() -> None: ...


SOURCE, DESTINATION, *OTHERS = STORAGES = ["s0:1", "d:1", "s1:1", "s2:1"]


class World:
    """Storages with partitions 0 and 1, and a server that follows their assignment, if it may."""

    def __init__(self, zookeeper: MemoryZooKeeper) -> None:
        self.zookeeper = zookeeper
        self.cluster = ClusterHandle(zookeeper, ROOT, None)
        self.files = {storage: set[int]() for storage in STORAGES}
        self.maxima = dict.fromkeys(STORAGES, 9)
        self.down: set[str] = set()
        self.offline: set[tuple[str, int]] = set()
        self.marks = {0: 9, 1: 9}
        self.follows = True
        """Whether the server begins a store session when the assignment has changed."""
        self.joins: set[str] = set(STORAGES)
        """The storages that come to take full part in sessions."""
        self.filled: list[tuple[str, int, FillOptions]] = []
        self.while_filling: Callable[[], object] = lambda: None
        self.when_off: Callable[[], Awaitable[None]] = nothing
        """What happens just after a replica was switched off."""
        self.done: list[str] = []
        self.looked_for: list[tuple[str, int]] = []
        self.lines: list[str] = []
        self.sessions = {0: 0, 1: 0}

    async def connect(self, endpoint: Endpoint, **_: object) -> Admin:
        storage = f"{endpoint.host}:1"
        assert endpoint.port == 2
        if storage in self.down:
            raise ConnectFailedError(f"cannot connect to {endpoint}")
        return Admin(self, storage)

    async def read_marks(
        self, _cluster: ClusterHandle, partition_ids: list[int], *, deadline_s: float
    ) -> dict[int, int]:
        if not self.follows:
            raise DeadlineExceededError("no server told the mark")
        return {each: self.marks[each] for each in partition_ids}

    async def assigned(self, partition_id: int) -> frozenset[str]:
        return frozenset((await store_admin.read_replica_assignments(self.zookeeper, ROOT)).storages_of(partition_id))

    async def begin_session(self, partition_id: int) -> None:
        """With all that are assigned."""
        assigned = await self.assigned(partition_id)
        session_id = self.sessions[partition_id] = self.sessions[partition_id] + 1
        await self.write(partition_id, session_id, assigned, assigned & self.joins - self.down)

    async def write(self, partition_id: int, session_id: int, listed: frozenset[str], members: frozenset[str]) -> None:
        states = {}
        for storage in sorted(listed):
            replica_id = ReplicaId(partition_id, storage)
            is_member = storage in members
            states[replica_id] = ReplicaState(
                replica_id, session_id if is_member else -1, UNRESOLVED if is_member else 0
            )
        path = ClusterPaths.of(ROOT).partition(partition_id)
        data = PartitionMetadata(1, session_id, states).encode()
        if await self.zookeeper.exists(path) is None:
            await self.zookeeper.create(path, data, make_path=True)
        else:
            await self.zookeeper.set(path, data)

    async def follow(self) -> None:
        listed: dict[int, tuple[frozenset[str], frozenset[str]]] = {}
        while True:
            for partition_id in (0, 1):
                assigned = await self.assigned(partition_id)
                wanted = (assigned, assigned & self.joins - self.down)
                if self.follows and listed.get(partition_id) != wanted:
                    listed[partition_id] = wanted
                    await self.begin_session(partition_id)
            await asyncio.sleep(0.001)

    def mover(self, *, back: bool = False, timeout_s: float = 5.0) -> ReplicaMover:
        options = MoveOptions(back, 1000, timeout_s)
        return ReplicaMover(
            self.cluster, ReplicaMove(SOURCE, DESTINATION), options, self.lines.append, lambda *_: pytest.fail("shown")
        )

    async def plan(self, partition_ids: list[int], *, back: bool = False, timeout_s: float = 5.0) -> ReplicaPlan:
        return await self.mover(back=back, timeout_s=timeout_s).plan(partition_ids)

    async def move(self, partition_ids: list[int], *, back: bool = False, timeout_s: float = 5.0) -> list[int]:
        mover = self.mover(back=back, timeout_s=timeout_s)
        return await mover.carry_out(await mover.plan(partition_ids))

    def steps(self) -> list[str]:
        """What was said to be done, but for what the server may have done before it was looked for."""
        steps = [line.partition(": done: ")[2] for line in self.lines]
        return [step for step in steps if "session" not in step]

    async def moves(self) -> list[int]:
        return list((await read_moves(self.cluster)).moves)


@contextlib.asynccontextmanager
async def world(
    monkeypatch: pytest.MonkeyPatch, replicas: int = 3, *, begun: bool = True, group: int = 1
) -> AsyncIterator[World]:
    zookeeper = await MemoryZooKeeperServer().connect()
    await store_admin.create_cluster(zookeeper, ROOT, "moving", 2)
    await zookeeper.create(ClusterPaths.of(ROOT).replica_moves, None, make_path=True)
    made = World(zookeeper)
    for storage in STORAGES:
        await store_admin.add_storage_node(zookeeper, ROOT, storage, group if storage == DESTINATION else 1, 2)
    for storage in [SOURCE, *OTHERS][:replicas]:
        await store_admin.assign_partitions(zookeeper, ROOT, storage, [0, 1])
        made.files[storage] = {0, 1}

    class Filling:
        def __init__(
            self, cluster: ClusterHandle, partition_id: int, storage: str, options: FillOptions, *_: object
        ) -> None:
            assert cluster is made.cluster
            self._what = (storage, partition_id, options)

        async def run(self) -> None:
            storage, partition_id, _ = self._what
            assert storage not in await made.assigned(partition_id)
            assert partition_id in await made.moves()
            made.filled.append(self._what)
            made.files[storage].add(partition_id)
            made.while_filling()

    monkeypatch.setattr(StorageAdminClient, "connect", made.connect)
    monkeypatch.setattr(replica_moving, "read_committed_marks", made.read_marks)
    monkeypatch.setattr(replica_moving, "ReplicaFilling", Filling)
    monkeypatch.setattr(replica_moving, "LOOK_AGAIN_S", 0.002)
    monkeypatch.setattr(replica_moving, "SETTLE_S", 0.05)
    following = asyncio.create_task(made.follow())
    while begun and not all(made.sessions.values()):
        await asyncio.sleep(0.001)
    try:
        yield made
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def exchanged() -> list[str]:
    return [
        f"committed records are copied to {DESTINATION}, which is then assigned in place of {SOURCE}",
        f"a store session begins without {SOURCE}",
        f"{DESTINATION} becomes a member of the store session",
        f"the partition's files on {SOURCE} are deleted",
    ]


async def test_an_odd_number_of_replicas_is_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch) as made:
        plan = await made.plan([0, 1])
        assert plan.lines() == ["partitions 0-1, one after the other:", *(f"  {step}" for step in exchanged())]
        assert await made.move([0, 1]) == []
        done = [line for line in made.lines if "session" not in line]
        steps = [step for step in exchanged() if "session" not in step]
        assert done == [f"partition {number}: done: {step}" for number in (0, 1) for step in steps]
        for number in (0, 1):
            assert await made.assigned(number) == {DESTINATION, *OTHERS}
        assert [(storage, number) for storage, number, _ in made.filled] == [(DESTINATION, 0), (DESTINATION, 1)]
        assert made.filled[0][2] == FillOptions(1000, 5.0, SOURCE)
        assert made.files[SOURCE] == set()
        assert await made.moves() == []
        assert (DESTINATION, 9) in made.looked_for  # before the files went
        assert plan.outcome([]) == f"{SOURCE} holds nothing of partitions 0-1"
        assert (await made.plan([0, 1])).lines() == [f"nothing is to be done: {SOURCE} holds none of these partitions"]


async def test_one_more_than_an_even_number_joins_before_the_old_one_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch, 2) as made:
        assert await made.move([0]) == []
        assert made.steps() == [
            f"committed records are copied to {DESTINATION}, which is then assigned to the partition",
            f"{SOURCE} is unassigned",
            f"the partition's files on {SOURCE} are deleted",
        ]
        assert await made.assigned(0) == {DESTINATION, OTHERS[0]}
        assert await made.assigned(1) == {SOURCE, OTHERS[0]}
        assert made.files[SOURCE] == {1}
        assert made.done == [f"cleared {SOURCE} of [0]"]


async def test_files_are_left_on_a_storage_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch) as made:
        made.down.add(SOURCE)
        plan = await made.plan([0])
        assert plan.leaving_was_silent
        assert await made.move([0]) == [0]
        assert await made.assigned(0) == {DESTINATION, *OTHERS}
        assert made.files[SOURCE] == {0, 1}
        assert await made.moves() == []
        assert "delete its files of partitions 0 " in plan.outcome([0])
        assert len(made.steps()) == 1  # what was not done is not said to be


async def test_what_answers_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch) as made:
        assert not (await made.plan([0])).leaving_was_silent


async def test_a_plan_waits_for_a_session_that_is_just_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_moving, "ANSWER_TIMEOUT_S", 1.0)
    async with world(monkeypatch, begun=True) as made:
        await made.write(0, 7, frozenset([SOURCE, *OTHERS]), frozenset([SOURCE]))
        monkeypatch.setattr(replica_moving, "SETTLE_S", 60.0)
        planning = asyncio.create_task(made.plan([0], timeout_s=60.0))
        await asyncio.sleep(0.02)
        assert not planning.done()
        await made.begin_session(0)
        assert len((await planning).steps[0]) == 4


async def test_a_plan_says_why_a_partition_cannot_be_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch) as made:
        made.offline.add((OTHERS[0], 1))
        await made.plan([0])
        with pytest.raises(WaltzError, match="partition 1 cannot be moved: without s0:1 2 of 3 .* nothing was done"):
            await made.plan([0, 1])
        assert made.filled == []
    async with world(monkeypatch, group=2) as made:
        with pytest.raises(WaltzError, match="partition 0 cannot be moved: d:1 is in group 2"):
            await made.plan([0])


async def test_a_move_begins_only_where_a_server_has_the_partition_open(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch) as made:
        made.follows = False
        with pytest.raises(DeadlineExceededError, match="no server told the mark"):
            await made.plan([0])


async def test_nothing_is_exchanged_when_a_replica_has_failed_while_the_new_one_was_filled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world(monkeypatch) as made:
        made.while_filling = lambda: made.offline.add((OTHERS[0], 0))
        with pytest.raises(WaltzError, match="for 0.1 s without s0:1 2 of 3 .*run it again, or with --cancel"):
            await made.move([0], timeout_s=0.1)
        assert await made.assigned(0) == {SOURCE, *OTHERS}
        assert await made.moves() == [0]
        made.offline.clear()
        made.while_filling = lambda: None
        assert await made.move([0]) == []
        assert await made.moves() == []


async def test_nothing_is_copied_while_a_replica_has_failed_since_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch) as made:
        mover = made.mover(timeout_s=0.1)
        plan = await mover.plan([0])
        made.offline.add((OTHERS[0], 0))
        with pytest.raises(WaltzError, match="for 0.1 s without s0:1"):
            await mover.carry_out(plan)
        assert made.filled == []
        assert await made.moves() == []


async def test_a_move_of_somebody_else_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    other = ReplicaMove(OTHERS[0], DESTINATION)
    async with world(monkeypatch) as made:
        mover = made.mover()
        plan = await mover.plan([0])
        path = ClusterPaths.of(ROOT).replica_move(0)
        await made.zookeeper.create(path, other.encode(), make_path=True)
        with pytest.raises(WaltzError, match="somebody else has changed its replicas: .*from s1:1 to d:1"):
            await mover.carry_out(plan)
        assert made.filled == []
        assert (await read_moves(made.cluster)).moves == {0: other}


async def test_a_move_that_somebody_begins_at_the_same_time_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    other = ReplicaMove(OTHERS[0], DESTINATION)
    async with world(monkeypatch) as made:
        mover = made.mover()
        plan = await mover.plan([0])
        create = made.zookeeper.create

        async def raced(path: str, data: bytes | None = None, **options: bool) -> str:
            if path == ClusterPaths.of(ROOT).replica_move(0):
                await create(path, other.encode(), **options)
            return await create(path, data, **options)

        with monkeypatch.context() as patched:
            patched.setattr(made.zookeeper, "create", raced)
            with pytest.raises(WaltzError, match="a replica of partition 0 is being moved from s1:1 to d:1"):
                await mover.carry_out(plan)
        assert made.filled == []
        assert await made.assigned(0) == {SOURCE, *OTHERS}


@pytest.mark.parametrize("replicas", [2, 3])
async def test_nothing_is_given_up_before_the_new_replica_has_what_is_committed(
    monkeypatch: pytest.MonkeyPatch, replicas: int
) -> None:
    async with world(monkeypatch, replicas) as made:
        made.maxima[DESTINATION] = 8
        with pytest.raises(WaltzError, match="for 0.1 s d:1 does not have transaction 9 yet"):
            await made.move([0], timeout_s=0.1)
        assert (SOURCE in await made.assigned(0)) == (replicas == 2)
        assert made.files[SOURCE] == {0, 1}
        made.maxima[DESTINATION] = 9
        assert await made.move([0]) == []
        assert made.files[SOURCE] == {1}


async def test_an_empty_partition_has_nothing_to_catch_up_with(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch) as made:
        made.marks[0] = made.maxima[DESTINATION] = -1
        assert await made.move([0]) == []
        assert made.looked_for == []


async def test_a_new_replica_that_does_not_join_keeps_the_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch, 2) as made:
        made.joins.discard(DESTINATION)
        with pytest.raises(WaltzError, match="for 0.1 s d:1 has taken no full part in the store session; see waltz"):
            await made.move([0], timeout_s=0.1)
        assert await made.assigned(0) == {SOURCE, DESTINATION, OTHERS[0]}


async def test_files_stay_until_no_session_counts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch) as made:
        made.while_filling = lambda: setattr(made, "follows", False)
        monkeypatch.setattr(made, "read_marks", None)
        with pytest.raises(WaltzError, match="for 0.1 s no store session has begun without s0:1"):
            await made.move([0], timeout_s=0.1)
        assert await made.assigned(0) == {DESTINATION, *OTHERS}
        assert made.files[SOURCE] == {0, 1}


async def test_a_move_is_taken_back_from_wherever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch) as made:
        assert (await made.plan([0], back=True)).lines() == [
            f"nothing is to be done: no replica of these partitions is on its way from {SOURCE} to {DESTINATION}"
        ]
        made.while_filling = lambda: made.offline.add((OTHERS[0], 0))
        with pytest.raises(WaltzError):
            await made.move([0], timeout_s=0.05)
        made.offline.clear()
        assert await made.move([0], back=True) == []
        assert made.steps() == [f"the partition's files on {DESTINATION} are deleted"]
        assert made.files[DESTINATION] == set()
        assert await made.moves() == []
        assert await made.assigned(0) == {SOURCE, *OTHERS}


async def test_an_exchange_is_taken_back_before_and_after_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch) as made:
        made.while_filling = lambda: setattr(made, "follows", False)
        with pytest.raises(WaltzError):
            await made.move([0], timeout_s=0.05)
        assert await made.assigned(0) == {DESTINATION, *OTHERS}
        assert await made.move([0], back=True) == []
        assert made.steps()[-2:] == [
            f"{SOURCE} is assigned again in place of {DESTINATION}",
            f"the partition's files on {DESTINATION} are deleted",
        ]
        assert await made.assigned(0) == {SOURCE, *OTHERS}
        made.follows = True
        made.while_filling = lambda: None
        made.maxima[DESTINATION] = 8
        with pytest.raises(WaltzError, match="transaction 9"):
            await made.move([0], timeout_s=0.05)
        assert await made.assigned(0) == {DESTINATION, *OTHERS}
        del made.lines[:]
        assert await made.move([0], back=True) == []
        assert made.filled[-1] == (SOURCE, 0, FillOptions(1000, 5.0, DESTINATION))
        assert await made.assigned(0) == {SOURCE, *OTHERS}
        assert made.files[DESTINATION] == set()
        assert 0 in made.files[SOURCE]


async def exchanged_unheard(made: World) -> None:
    """The destination is assigned in place of the source, and no server has begun a session since."""
    made.while_filling = lambda: setattr(made, "follows", False)
    with pytest.raises(WaltzError):
        await made.move([0], timeout_s=0.05)
    del made.lines[:]
    assert await made.assigned(0) == {DESTINATION, *OTHERS}


async def begin_with_destination(made: World) -> None:
    """A server that has not heard that the exchange was taken back opens its session."""
    made.sessions[0] += 1
    members = frozenset({DESTINATION, *OTHERS})
    await made.write(0, made.sessions[0], members, members)


async def test_files_stay_when_a_session_that_counts_them_opens_just_before_they_are_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world(monkeypatch) as made:
        await exchanged_unheard(made)

        async def open_late() -> None:
            made.when_off = nothing
            await begin_with_destination(made)

        made.when_off = open_late
        moving = asyncio.create_task(made.move([0], back=True))
        reason = f"partition 0: no files are deleted yet: a store session has begun with {DESTINATION}"
        while reason not in made.lines:
            assert not moving.done()
            await asyncio.sleep(0.001)
        assert 0 in made.files[DESTINATION]
        assert made.offline == set(), "the session needs it"
        await made.begin_session(0)  # the server hears of the change
        assert await moving == []
        assert made.files[DESTINATION] == set()
        assert made.steps()[-1] == f"the partition's files on {DESTINATION} are deleted"
        assert made.offline == set()
        assert await made.moves() == []


async def test_files_stay_while_a_session_is_not_open_and_may_count_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch) as made:
        await exchanged_unheard(made)
        listed = frozenset({SOURCE, *OTHERS})
        await made.write(0, made.sessions[0] + 1, listed, frozenset())
        with pytest.raises(WaltzError, match="for 0.05 s store session 2 is not open yet, and may take d:1 in; see"):
            await made.move([0], back=True, timeout_s=0.05)
        assert await made.assigned(0) == {SOURCE, *OTHERS}
        assert 0 in made.files[DESTINATION]
        assert made.offline == set()
        assert await made.moves() == [0]
        await made.write(0, made.sessions[0] + 1, listed, listed)
        assert await made.move([0], back=True) == []
        assert made.files[DESTINATION] == set()


async def test_files_stay_when_somebody_assigns_the_replica_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch) as made:

        async def assign() -> None:
            made.when_off = nothing
            await store_admin.assign_partitions(made.zookeeper, ROOT, SOURCE, [0])

        made.when_off = assign
        assert await made.move([0]) == []
        assert f"partition 0: no files are deleted yet: {SOURCE} is assigned to it" in made.lines
        assert made.steps()[-2:] == [f"{SOURCE} is unassigned", f"the partition's files on {SOURCE} are deleted"]


async def test_a_replica_is_switched_on_again_when_it_is_not_known_whether_it_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world(monkeypatch) as made:
        await exchanged_unheard(made)

        async def lose_zookeeper() -> None:
            monkeypatch.setattr(made.zookeeper, "sync", unreachable)

        async def unreachable(_path: str) -> None:
            raise ConnectionLossError("ZooKeeper is away")

        made.when_off = lose_zookeeper
        with pytest.raises(WaltzError, match="ZooKeeper is away"):
            await made.move([0], back=True)
        assert 0 in made.files[DESTINATION]
        assert made.offline == set()


async def test_a_source_that_was_left_switched_off_serves_when_it_is_assigned_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world(monkeypatch) as made:
        await exchanged_unheard(made)
        made.offline.add((SOURCE, 0))
        assert await made.move([0], back=True) == []
        assert made.steps()[0] == f"{SOURCE} is assigned again in place of {DESTINATION}"
        assert made.offline == set()


async def test_a_replica_that_joined_beside_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch, 2) as made:
        made.maxima[DESTINATION] = 8
        with pytest.raises(WaltzError, match="transaction 9"):
            await made.move([0], timeout_s=0.05)
        del made.lines[:], made.looked_for[:]
        assert await made.move([0], back=True) == []
        assert made.steps() == [
            f"{DESTINATION} is unassigned",
            f"the partition's files on {DESTINATION} are deleted",
        ]
        assert made.looked_for == []
        assert await made.assigned(0) == {SOURCE, OTHERS[0]}


async def test_a_replica_is_not_unassigned_while_another_one_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch, 2) as made:
        made.maxima[DESTINATION] = 8
        with pytest.raises(WaltzError, match="transaction 9"):
            await made.move([0], timeout_s=0.05)
        made.maxima[DESTINATION] = 9
        mover = made.mover(timeout_s=0.1)
        plan = await mover.plan([0])
        made.offline.add((OTHERS[0], 0))
        with pytest.raises(WaltzError, match="for 0.1 s without s0:1 2 of 3"):
            await mover.carry_out(plan)
        assert SOURCE in await made.assigned(0)


async def test_a_replica_that_was_unassigned_returns_while_the_session_still_counts_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world(monkeypatch, 2) as made:
        made.maxima[DESTINATION] = 8
        with pytest.raises(WaltzError, match="transaction 9"):
            await made.move([0], timeout_s=0.05)
        made.follows = False
        await store_admin.unassign_partitions(made.zookeeper, ROOT, SOURCE, [0])
        with pytest.raises(WaltzError, match="no store session has begun without d:1"):
            await made.move([0], back=True, timeout_s=0.05)
        assert made.steps()[-2:] == [f"{SOURCE} is assigned again", f"{DESTINATION} is unassigned"]
        assert await made.assigned(0) == {SOURCE, OTHERS[0]}


async def test_no_storage_is_told_to_delete_what_it_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch) as made:
        made.files[SOURCE].discard(0)
        assert await made.move([0]) == []
        assert await made.assigned(0) == {DESTINATION, *OTHERS}
        assert made.done == []


async def test_an_error_on_the_way_back_does_not_advise_to_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch, 2) as made:
        made.maxima[DESTINATION] = 8
        with pytest.raises(WaltzError, match="transaction 9"):
            await made.move([0], timeout_s=0.05)
        made.follows = False
        with pytest.raises(WaltzError, match="no store session has begun without d:1; .*run it again$"):
            await made.move([0], back=True, timeout_s=0.05)


async def test_the_lock_is_waited_for_and_said_to_be_held() -> None:
    _, cluster = await cluster_of_two()
    lines: list[str] = []
    async with locked_moves(cluster, 4.0, lines.append) as locked:
        assert lines == []
        assert locked.zookeeper is not cluster.zookeeper
        with pytest.raises(DeadlineExceededError, match="was not free within 0.05 s"):
            async with locked_moves(cluster, 0.05 - replica_moving.LOCK_EXTRA_S, lines.append):
                pytest.fail("two hold it")
    assert len(lines) == 1
    assert "another waltz storage move works on this cluster" in lines[0]
    async with locked_moves(cluster, 4.0, lines.append):
        assert len(lines) == 1
