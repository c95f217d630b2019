"""Moves replicas from one storage node to another, step by step, partition by partition.

Each step is decided from the present state of the cluster. So a further run finishes an interrupted run, or takes it
back.
"""

import asyncio
import contextlib
import enum
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from waltz.common.cluster.handle import ClusterHandle
from waltz.common.cluster.marks import read_committed_marks
from waltz.common.cluster.replicas import Replicas, read_replicas
from waltz.common.errors import ConnectFailedError, ProtocolError, WaltzError
from waltz.common.ids import NO_TRANSACTION, Endpoint
from waltz.common.partition_ids import check_partition, id_ranges
from waltz.common.polling import poll_until
from waltz.common.zk import store_admin
from waltz.common.zk.client import NodeExistsError, NoNodeError
from waltz.common.zk.mutex import mutex
from waltz.common.zk.paths import ClusterPaths
from waltz.operations.clearing import delete_files, reason_to_keep
from waltz.operations.filling import FillOptions, Progress, ReplicaFilling
from waltz.operations.replica_moves import (
    FILLING,
    NotYetSettled,
    PartitionView,
    ReplicaMove,
    ReplicaStep,
    StepRefused,
    check_back,
    check_move,
    check_step,
    next_step,
    next_step_back,
)
from waltz.operations.storages import admin_endpoint, connection
from waltz.operations.survey.survey import StorageReport, ask_storage
from waltz.storage.remote.admin_client import StorageAdminClient

_PARTITION_NAME = re.compile("0|[1-9][0-9]{0,9}")

ANSWER_TIMEOUT_S = 5.0
"""Time limit for the report of a storage about its partitions."""

LOOK_AGAIN_S = 0.25
SETTLE_S = 5.0
"""Time limit of a plan for a passing state, such as the beginning of a store session."""

LOCK_EXTRA_S = 10.0
"""The wait for a lock beyond the session time-out. The lock of a killed process is free after the session time-out."""


class MovesBegun(NamedTuple):
    """The moves in progress according to ZooKeeper."""

    moves: Mapping[int, ReplicaMove]
    """The moves that have begun, by partition."""
    foreign: Sequence[str]
    """Warnings about nodes in the same place of ZooKeeper that are no moves."""


class MoveOptions(NamedTuple):
    """The options of moves of replicas."""

    back: bool
    """Whether moves that have begun are taken back."""
    copy_bytes_per_s: int
    """Limit of the copy's rate, with the records' headers."""
    timeout_s: float
    """Time limit for the cluster to follow each change."""


class Direction(NamedTuple):
    """A move, and whether it is carried out or taken back."""

    move: ReplicaMove
    back: bool

    @property
    def leaving(self) -> str:
        """The storage without a replica at the end."""
        return self.move.destination if self.back else self.move.source

    @property
    def joining(self) -> str:
        """The storage with the replica at the end."""
        return self.move.source if self.back else self.move.destination

    def next_step(self, view: PartitionView) -> ReplicaStep | None:
        """The next step, if there is one. Raises ``StepRefused``."""
        return (next_step_back if self.back else next_step)(view, self.move)

    def plan(self, view: PartitionView) -> list[ReplicaStep]:
        """All remaining steps. Raises ``StepRefused``."""
        return (check_back if self.back else check_move)(view, self.move)

    def describe(self, step: ReplicaStep) -> str:
        """The step as a sentence."""
        return step.value.format(leaving=self.leaving, joining=self.joining)


class _Files(enum.Enum):
    """The state of the files on the storage that gives up the replica."""

    DELETED = "deleted"
    LEFT = "left"
    """The storage does not answer."""
    NEEDED = "needed"
    """The replica counts again, or may count again."""


class ReplicaPlan(NamedTuple):
    """The steps of each partition with remaining steps."""

    direction: Direction
    steps: Mapping[int, Sequence[ReplicaStep]]
    leaving_was_silent: bool
    """Whether the storage that gives up the replicas did not answer when the plan was made."""

    def lines(self) -> list[str]:
        """The plan as text."""
        direction = self.direction
        if not self.steps:
            if direction.back:
                return [f"nothing is to be done: no replica of these partitions is on its way {direction.move}"]
            return [f"nothing is to be done: {direction.leaving} holds none of these partitions"]
        lines = []
        for steps in dict.fromkeys(map(tuple, self.steps.values())):
            alike = [partition_id for partition_id, others in self.steps.items() if tuple(others) == steps]
            lines.append(f"{_partitions(alike)}, one after the other:" if len(alike) > 1 else f"{_partitions(alike)}:")
            lines += [f"  {direction.describe(step)}" for step in steps]
        return lines

    def outcome(self, files_left: Collection[int]) -> str:
        """The result, and the remaining work of the operator for partitions with files that were not deleted."""
        if not files_left:
            return f"{self.direction.leaving} holds nothing of {_partitions(self.steps)}"
        return (
            f"{self.direction.leaving} does not answer: when it is back, delete its files of partitions "
            f"{id_ranges(files_left)} (waltz storage remove-partition -d)"
        )


@contextlib.asynccontextmanager
async def locked_moves(
    cluster: ClusterHandle, session_timeout_s: float, report: Callable[[str], None]
) -> AsyncIterator[ClusterHandle]:
    """Hold the lock of the moves. The yielded cluster writes only while the lock is held.

    Args:
        cluster: The cluster, which exists.
        session_timeout_s: Time-out of ZooKeeper sessions, after which the lock of a killed process is free.
        report: Called with a line for the operator if another process holds the lock.

    Raises:
        WaltzError: Another process holds the lock for longer than that.
    """
    paths = ClusterPaths.of(cluster.root)
    with contextlib.suppress(NodeExistsError):
        await cluster.zookeeper.create(paths.replica_moves, None, make_path=True)
    if await cluster.zookeeper.exists(paths.replica_moves_lock) is not None:
        report(
            "another waltz storage move works on this cluster, or was killed less than "
            f"{session_timeout_s:g} s ago: waiting for that long"
        )
    timeout_s = session_timeout_s + LOCK_EXTRA_S
    async with mutex(cluster.zookeeper, paths.replica_moves_lock, timeout_s=timeout_s) as locked:
        yield cluster._replace(zookeeper=locked)


async def name_move(cluster: ClusterHandle, source: Endpoint, destination: Endpoint) -> ReplicaMove:
    """The move between two nodes, each given by its data port or its admin port.

    Raises ``WaltzError`` for a node that is not in the cluster, and for two ports of the same node.
    """
    replicas = await read_replicas(cluster.zookeeper, cluster.root, ())
    move = ReplicaMove(_connect_string(replicas, source), _connect_string(replicas, destination))
    if move.source == move.destination:
        raise WaltzError(f"{move.source} cannot be both source and destination")
    return move


def _connect_string(replicas: Replicas, node: Endpoint) -> str:
    if str(node) in replicas.assignments.partitions:
        return str(node)
    if (name := replicas.name_of(node)) is not None:
        return name
    known = ", ".join(sorted(replicas.assignments.partitions)) or "none"
    raise WaltzError(f"there is no storage node {node} in the cluster; there are: {known}")


async def partitions_of_move(
    cluster: ClusterHandle,
    move: ReplicaMove,
    partition_ids: Sequence[int] | None,
    report: Callable[[str], None],
    *,
    back: bool,
) -> list[int]:
    """The partitions to be moved: ``partition_ids``, or all partitions that the source has or has begun to move.

    With ``back``: all partitions whose move has begun. ``report`` is called with warnings. Raises ``WaltzError`` for a
    partition outside of the cluster.
    """
    count = (await store_admin.read_store_params(cluster.zookeeper, cluster.root)).partition_count
    if partition_ids is not None:
        for partition_id in partition_ids:
            check_partition(partition_id, count)
        return list(partition_ids)
    replicas = await read_replicas(cluster.zookeeper, cluster.root, ())
    moves, foreign = await read_moves(cluster)
    for warning in foreign:
        report(f"Warning: {warning}")
    begun = {partition_id for partition_id, begun_move in moves.items() if begun_move == move}
    held = set() if back else set(replicas.assignments.partitions[move.source])
    return sorted(begun | held)


async def read_moves(cluster: ClusterHandle) -> MovesBegun:
    """The moves in progress. Raises ``ZooKeeperError``."""
    paths = ClusterPaths.of(cluster.root)
    try:
        names = await cluster.zookeeper.children(paths.replica_moves)
    except NoNodeError:
        names = []
    moves: dict[int, ReplicaMove] = {}
    foreign: list[str] = []
    for name in sorted(names):
        if not _PARTITION_NAME.fullmatch(name):
            foreign.append(f"{paths.replica_moves}/{name} is not named for a partition: it is ignored")
            continue
        try:
            move = await _read_move(cluster, int(name))
        except ProtocolError as error:
            foreign.append(str(error))
            continue
        if move is not None:
            moves[int(name)] = move
    return MovesBegun(dict(sorted(moves.items())), foreign)


async def _read_move(cluster: ClusterHandle, partition_id: int) -> ReplicaMove | None:
    path = ClusterPaths.of(cluster.root).replica_move(partition_id)
    try:
        return ReplicaMove.decode((await cluster.zookeeper.get(path))[0], path)
    except NoNodeError:
        return None


class ReplicaMover:
    """Moves the replicas of partitions in one direction."""

    def __init__(
        self,
        cluster: ClusterHandle,
        move: ReplicaMove,
        options: MoveOptions,
        report: Callable[[str], None],
        progress: Progress,
    ) -> None:
        """``report`` is called with lines for the operator, ``progress`` shows the progress of the copy.

        To carry out a plan, ``cluster`` has to come from :func:`locked_moves`.
        """
        self._cluster = cluster
        self._paths = ClusterPaths.of(cluster.root)
        self._direction = Direction(move, options.back)
        self._options = options
        self._report = report
        self._progress = progress

    async def plan(self, partition_ids: Sequence[int]) -> ReplicaPlan:
        """Plan from the present state of the cluster. Raises ``WaltzError`` if a step could not be done."""
        silent = False
        steps_by_partition: dict[int, list[ReplicaStep]] = {}
        for partition_id in partition_ids:
            view, steps = await self._plan(partition_id)
            silent |= view.holding[self._direction.leaving] is None
            if any(step in FILLING for step in steps):
                await self._mark(partition_id)  # fails when no server has the partition open
            if steps:
                steps_by_partition[partition_id] = steps
        return ReplicaPlan(self._direction, steps_by_partition, silent)

    async def carry_out(self, plan: ReplicaPlan) -> list[int]:
        """Take all steps. Returns the partitions whose files are left on a storage that does not answer.

        Raises ``WaltzError``. The next run continues after the steps that were taken.
        """
        return [partition_id for partition_id in plan.steps if not await self._move(partition_id)]

    # The present state

    async def _plan(self, partition_id: int) -> tuple[PartitionView, list[ReplicaStep]]:
        """The state and the remaining steps. Waits while a store session is beginning."""

        async def look() -> tuple[PartitionView, list[ReplicaStep] | StepRefused]:
            view = await self.look(partition_id)
            try:
                return view, self._direction.plan(view)
            except StepRefused as error:
                return view, error

        view, steps = await poll_until(
            look,
            lambda result: not isinstance(result[1], NotYetSettled),
            deadline_s=asyncio.get_running_loop().time() + min(SETTLE_S, self._options.timeout_s),
            next_delay_s=_look_again_s,
        )
        if isinstance(steps, StepRefused):
            raise WaltzError(f"partition {partition_id} cannot be moved: {steps}; nothing was done")
        return view, steps

    async def look(self, partition_id: int) -> PartitionView:
        """The state of a partition. Raises ``WaltzError`` of ZooKeeper."""
        zookeeper, root, tls = self._cluster
        replicas = await read_replicas(zookeeper, root, [partition_id])
        params = await store_admin.read_store_params(zookeeper, root)
        groups = (await store_admin.read_groups(zookeeper, root)).groups
        assigned = replicas.assignments.storages_of(partition_id)
        storages = sorted(assigned | set(self._direction.move))
        answers: list[StorageReport] = await asyncio.gather(
            *(ask_storage(storage, replicas, params, tls, ANSWER_TIMEOUT_S) for storage in storages)
        )
        reports = dict(zip(storages, answers, strict=True))
        metadata = replicas.metadata[partition_id]
        states = {} if metadata is None else {each.connect_string: state for each, state in metadata.replicas.items()}
        online = {
            storage
            for storage, report in reports.items()
            if not isinstance(report, str) and report.get(partition_id, False)
        }
        current = {
            storage
            for storage, state in states.items()
            if metadata is not None and state.is_member_of(metadata.session_id) and storage in online
        }
        holding = {
            storage: None if isinstance(report, str) else partition_id in report for storage, report in reports.items()
        }
        return PartitionView(
            frozenset(assigned),
            frozenset(states),
            frozenset(current),
            {storage: holding[storage] for storage in self._direction.move},
            groups,
            await _read_move(self._cluster, partition_id),
        )

    async def _mark(self, partition_id: int) -> int:
        deadline_s = self._deadline_s()
        return (await read_committed_marks(self._cluster, [partition_id], deadline_s=deadline_s))[partition_id]

    def _deadline_s(self) -> float:
        return asyncio.get_running_loop().time() + self._options.timeout_s

    # The steps

    async def _move(self, partition_id: int) -> bool:
        """Take all steps of a partition. Returns whether the old storage could be asked to delete the files."""
        direction = self._direction
        zookeeper, root, _ = self._cluster
        while True:
            view, step = await self._next_step(partition_id)
            if step is None:
                return True
            if step in FILLING:
                await self._fill(partition_id, step)
            elif step is ReplicaStep.JOIN:
                await self._until(partition_id, self._joined)
            elif step is ReplicaStep.UNASSIGN:
                if not direction.back:
                    await self._until_caught_up(partition_id)
                await self._until(partition_id, self._allowed(step))
                await store_admin.unassign_partitions(zookeeper, root, direction.leaving, [partition_id])
            elif step is ReplicaStep.REVERT:
                await self._switch_on(partition_id)
                await self._exchange(partition_id)
            elif step is ReplicaStep.RETURN:
                await self._switch_on(partition_id)
                await store_admin.assign_partitions(zookeeper, root, direction.joining, [partition_id])
            elif step is ReplicaStep.LEAVE:
                await self._until(partition_id, self._left)
            else:
                if not direction.back and direction.joining in view.current:
                    await self._until_caught_up(partition_id)
                files = await self._clear(partition_id)
                if files is _Files.LEFT:
                    return False
                if files is _Files.NEEDED:
                    continue
            self._report(f"partition {partition_id}: done: {direction.describe(step)}")

    async def _next_step(self, partition_id: int) -> tuple[PartitionView, ReplicaStep | None]:
        view = await self.look(partition_id)
        try:
            return view, self._direction.next_step(view)
        except StepRefused as error:
            raise WaltzError(f"partition {partition_id}: somebody else has changed its replicas: {error}") from None

    async def _until(self, partition_id: int, objection: Callable[[PartitionView], str | None]) -> None:
        """Repeat the check until it finds no objection."""

        async def look() -> str | None:
            return objection(await self.look(partition_id))

        await self._until_no_reason(partition_id, look)

    async def _until_no_reason(self, partition_id: int, look: Callable[[], Awaitable[str | None]]) -> None:
        """Repeat the check until it finds no objection. At the deadline raises ``WaltzError`` with the last
        objection."""
        deadline_s = self._deadline_s()
        reason = await poll_until(
            look, lambda reason: reason is None, deadline_s=deadline_s, next_delay_s=_look_again_s
        )
        if reason is not None:
            back = "" if self._direction.back else ", or with --cancel to take it back"
            raise WaltzError(
                f"partition {partition_id}: for {self._options.timeout_s:g} s {reason}; see waltz status, and run it "
                f"again{back}"
            )

    def _joined(self, view: PartitionView) -> str | None:
        joining = self._direction.joining
        return None if joining in view.current else f"{joining} has taken no full part in the store session"

    def _left(self, view: PartitionView) -> str | None:
        leaving = self._direction.leaving
        return f"no store session has begun without {leaving}" if leaving in view.listed else None

    def _allowed(self, step: ReplicaStep) -> Callable[[PartitionView], str | None]:
        def objection(view: PartitionView) -> str | None:
            try:
                check_step(view, step, leaving=self._direction.leaving, joining=self._direction.joining)
            except StepRefused as error:
                return str(error)
            return None

        return objection

    async def _until_caught_up(self, partition_id: int) -> None:
        """Return when the new replica takes full part and has all transactions that were committed at the call."""
        mark = await self._mark(partition_id)
        if mark == NO_TRANSACTION:
            return
        joining = self._direction.joining
        async with self._admin(joining) as admin:

            async def look() -> str | None:
                records = await admin.records(partition_id, mark, 1)
                return None if records else f"{joining} does not have transaction {mark} yet"

            await self._until_no_reason(partition_id, look)

    async def _clear(self, partition_id: int) -> _Files:
        """Delete the files unless they are needed again, and remove the record of the move."""
        files = _Files.DELETED
        try:
            async with self._admin(self._direction.leaving) as admin:
                if partition_id in await admin.assigned_partition_status():
                    files = await self._delete_files(admin, partition_id)
        except ConnectFailedError:
            files = _Files.LEFT
        if files is not _Files.NEEDED:
            with contextlib.suppress(NoNodeError):
                await self._cluster.zookeeper.delete(self._paths.replica_move(partition_id))
        return files

    async def _delete_files(self, admin: StorageAdminClient, partition_id: int) -> _Files:
        async def look() -> str | None:
            return await reason_to_keep(self._cluster, partition_id, self._direction.leaving)

        await self._until_no_reason(partition_id, look)
        reason = await delete_files(admin, partition_id, look)
        if reason is None:
            return _Files.DELETED
        self._report(f"partition {partition_id}: no files are deleted yet: {reason}")
        return _Files.NEEDED

    async def _switch_on(self, partition_id: int) -> None:
        """Switch on the replica that returns: an earlier run may have ended while the replica was switched off."""
        with contextlib.suppress(ConnectFailedError):
            async with self._admin(self._direction.joining) as admin:
                if (await admin.assigned_partition_status()).get(partition_id) is False:
                    await admin.set_available([partition_id], True)

    @contextlib.asynccontextmanager
    async def _admin(self, storage: str) -> AsyncIterator[StorageAdminClient]:
        endpoint = await admin_endpoint(self._cluster, storage)
        async with connection(StorageAdminClient, self._cluster, endpoint) as admin:
            yield admin

    # Filling

    async def _exchange(self, partition_id: int) -> None:
        zookeeper, root, _ = self._cluster
        leaving, joining = self._direction.leaving, self._direction.joining
        await store_admin.exchange_replica(zookeeper, root, partition_id, leaving, joining)

    async def _fill(self, partition_id: int, step: ReplicaStep) -> None:
        """Copy the records before any server knows the new replica, then register the replica."""
        move, joining = self._direction.move, self._direction.joining
        zookeeper, root, _ = self._cluster
        await self._until(partition_id, self._allowed(step))
        with contextlib.suppress(NodeExistsError):
            await zookeeper.create(self._paths.replica_move(partition_id), move.encode())
        if (begun := await _read_move(self._cluster, partition_id)) != move:
            raise WaltzError(f"a replica of partition {partition_id} is being moved {begun}")
        options = FillOptions(self._options.copy_bytes_per_s, self._options.timeout_s, self._direction.leaving)
        await ReplicaFilling(self._cluster, partition_id, joining, options, self._report, self._progress).run()
        await self._until(partition_id, self._allowed(step))
        if step is ReplicaStep.EXCHANGE:
            await self._exchange(partition_id)
        else:
            await store_admin.assign_partitions(zookeeper, root, joining, [partition_id])


def _look_again_s() -> float:
    return LOOK_AGAIN_S


def _partitions(partition_ids: Collection[int]) -> str:
    return f"partition{'s' if len(partition_ids) > 1 else ''} {id_ranges(partition_ids)}"
