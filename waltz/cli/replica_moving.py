"""Moving replicas from one storage node to another, step by step, partition by partition.

What is to be done next is decided from what is there, so an interrupted run is finished, or taken back, by another one.
"""

import argparse
import asyncio
import contextlib
import functools
import sys
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from waltz.cli.output import confirm, show, tell
from waltz.cli.progress import progress
from waltz.cli.session import Session
from waltz.common.cluster.marks import read_committed_marks
from waltz.common.cluster.replicas import Replicas, read_replicas
from waltz.common.errors import ConnectFailedError, WaltzError
from waltz.common.ids import NO_TRANSACTION, Endpoint
from waltz.common.metrics.registry import Json
from waltz.common.zk import store_admin
from waltz.common.zk.client import NodeExistsError, NoNodeError, ZooKeeper
from waltz.common.zk.mutex import mutex
from waltz.common.zk.paths import ClusterPaths
from waltz.operations.filling import FillOptions, ReplicaFilling
from waltz.operations.moves import ranges
from waltz.operations.replica_moves import (
    Move,
    Refused,
    Step,
    Unsettled,
    View,
    check_back,
    check_move,
    check_step,
    next_step,
    next_step_back,
)
from waltz.operations.storages import admin_endpoint, connection
from waltz.operations.survey.survey import StorageReport, ask_storage
from waltz.storage.remote.admin_client import StorageAdminClient

ANSWER_TIMEOUT_S = 5.0
"""How long a storage may take to say what it has."""

LOOK_AGAIN_S = 0.25
SETTLE_S = 5.0
"""How long a plan waits for what may pass by itself, as the beginning of a session does."""

LOCK_EXTRA_S = 10.0
"""How long a lock may be held beyond the session time-out, after which that of a killed process is free."""


class Pair(NamedTuple):
    """Whether replicas go forth or back, and between whom."""

    move: Move
    back: bool

    @property
    def leaving(self) -> str:
        """Who has none in the end."""
        return self.move.destination if self.back else self.move.source

    @property
    def joining(self) -> str:
        """Who has them in the end."""
        return self.move.source if self.back else self.move.destination

    def next_step(self, view: View) -> Step | None:
        """What follows. Raises ``Refused``."""
        return (next_step_back if self.back else next_step)(view, self.move)

    def plan(self, view: View) -> list[Step]:
        """All that follows. Raises ``Refused``."""
        return (check_back if self.back else check_move)(view, self.move)


async def move_replicas(options: argparse.Namespace, session: Session) -> None:
    """What ``waltz storage move`` does. Raises ``WaltzError``."""
    await store_admin.read_store_params(session.zookeeper, session.root)  # before anything is made there
    if options.plan:
        await _carry_out(options, session)
        return
    paths = ClusterPaths.of(session.root)
    with contextlib.suppress(NodeExistsError):
        await session.zookeeper.create(paths.replica_moves, None, make_path=True)
    assert session.config is not None
    session_timeout_s = session.config.zookeeper_session_timeout_ms / 1000
    if await session.zookeeper.exists(paths.replica_moves_lock) is not None:
        tell(
            options,
            "another waltz storage move works on this cluster, or was killed less than "
            f"{session_timeout_s:g} s ago: waiting for that long",
        )
    async with mutex(session.zookeeper, paths.replica_moves_lock, timeout_s=session_timeout_s + LOCK_EXTRA_S) as locked:
        try:
            await _carry_out(options, session._replace(zookeeper=locked))
        except asyncio.CancelledError:
            print("nothing is lost: run it again to go on, or with --cancel to take it back", file=sys.stderr)
            raise


async def _carry_out(options: argparse.Namespace, session: Session) -> None:
    replicas = await read_replicas(session.zookeeper, session.root, ())
    move = Move(_named(replicas, options.source_storage), _named(replicas, options.destination_storage))
    if move.source == move.destination:
        raise WaltzError(f"{move.source} cannot be both source and destination")
    mover = Mover(options, session, Pair(move, back=options.cancel))
    await mover.run(await _wanted(options, session, replicas, move))


def _named(replicas: Replicas, node: Endpoint) -> str:
    """The connect string of a node that is named by its data port or its admin port."""
    if str(node) in replicas.assignments.partitions:
        return str(node)
    if (name := replicas.name_of(node)) is not None:
        return name
    known = ", ".join(sorted(replicas.assignments.partitions)) or "none"
    raise WaltzError(f"there is no storage node {node} in the cluster; there are: {known}")


async def _wanted(options: argparse.Namespace, session: Session, replicas: Replicas, move: Move) -> list[int]:
    count = (await store_admin.read_store_params(session.zookeeper, session.root)).partition_count
    if options.partition is not None:
        if options.partition[0] < 0 or options.partition[-1] >= count:
            wrong = next(each for each in options.partition if not 0 <= each < count)
            raise WaltzError(f"there is no partition {wrong}; the cluster has {count}")
        return list(options.partition)
    moves = await read_moves(session.zookeeper, session.root)
    begun = {partition_id for partition_id, each in moves.items() if each == move}
    held = set() if options.cancel else set(replicas.assignments.partitions[move.source])
    return sorted(begun | held)


async def read_moves(zookeeper: ZooKeeper, root: str) -> dict[int, Move]:
    """The replicas that are on their way, by partition. Raises ``WaltzError``."""
    try:
        names = await zookeeper.children(ClusterPaths.of(root).replica_moves)
    except NoNodeError:
        return {}
    moves = {each: await _read_move(zookeeper, root, each) for each in sorted(map(int, names))}
    return {partition_id: move for partition_id, move in moves.items() if move is not None}


async def _read_move(zookeeper: ZooKeeper, root: str, partition_id: int) -> Move | None:
    path = ClusterPaths.of(root).replica_move(partition_id)
    try:
        return Move.decode((await zookeeper.get(path))[0], path)
    except NoNodeError:
        return None


class Mover:
    """One run of the command."""

    def __init__(self, options: argparse.Namespace, session: Session, pair: Pair) -> None:
        self._options = options
        self._session = session
        self._zookeeper = session.zookeeper
        self._root = session.root
        self._paths = ClusterPaths.of(session.root)
        self._pair = pair
        self._files_left: list[int] = []

    async def run(self, partition_ids: Sequence[int]) -> None:
        """Plan, ask, and do it."""
        options, pair = self._options, self._pair
        gone = False
        plans: dict[int, list[Step]] = {}
        for partition_id in partition_ids:
            view, steps = await self._plan(partition_id)
            gone |= view.holding[pair.leaving] is None
            if Step.FILL in steps:
                await self._mark(partition_id)  # fails where no server has it open
            if steps:
                plans[partition_id] = steps
        lines = self._lines(plans)
        if options.plan or not plans:
            show(options, self._document(plans, applied=not plans), lines)
            return
        for line in lines:
            tell(options, line)
        confirm(options, "do this?", needs_terminal=True)
        for partition_id in plans:
            await self._move(partition_id)
        done = f"{pair.leaving} holds nothing of {_partitions(plans)}"
        if self._files_left:
            done = (
                f"{pair.leaving} does not answer: when it is back, delete its files of partitions "
                f"{', '.join(ranges(self._files_left))} (waltz storage remove-partition -d)"
            )
            if not gone:
                raise WaltzError(done)
        show(options, self._document(plans, applied=True), [done])

    # What is there

    async def _plan(self, partition_id: int) -> tuple[View, list[Step]]:
        """What is there, and what is to be done; a session that is just beginning is waited for."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + min(SETTLE_S, self._options.timeout)
        while True:
            view = await self._look(partition_id)
            try:
                return view, self._pair.plan(view)
            except Refused as error:
                if loop.time() >= deadline_s or not isinstance(error, Unsettled):
                    raise WaltzError(f"partition {partition_id} cannot be moved: {error}; nothing was done") from None
            await asyncio.sleep(LOOK_AGAIN_S)

    async def _look(self, partition_id: int) -> View:
        replicas = await read_replicas(self._zookeeper, self._root, [partition_id])
        params = await store_admin.read_store_params(self._zookeeper, self._root)
        groups = (await store_admin.read_groups(self._zookeeper, self._root)).groups
        assigned = replicas.assignments.storages_of(partition_id)
        asked = sorted(assigned | set(self._pair.move))
        answers: list[StorageReport] = await asyncio.gather(
            *(ask_storage(each, replicas, params, self._session.tls, ANSWER_TIMEOUT_S) for each in asked)
        )
        reports = dict(zip(asked, answers, strict=True))
        metadata = replicas.metadata[partition_id]
        states = {} if metadata is None else {each.connect_string: state for each, state in metadata.replicas.items()}
        online = {each for each, told in reports.items() if not isinstance(told, str) and told.get(partition_id, False)}
        current = {
            each
            for each, state in states.items()
            if metadata is not None and state.is_member_of(metadata.session_id) and each in online
        }
        holding = {each: None if isinstance(reports[each], str) else partition_id in reports[each] for each in reports}
        return View(
            frozenset(assigned),
            frozenset(states),
            frozenset(current),
            {each: holding[each] for each in self._pair.move},
            groups,
            await _read_move(self._zookeeper, self._root, partition_id),
        )

    async def _mark(self, partition_id: int) -> int:
        deadline_s = asyncio.get_running_loop().time() + self._options.timeout
        marks = await read_committed_marks(
            self._zookeeper, self._root, [partition_id], tls=self._session.tls, deadline_s=deadline_s
        )
        return marks[partition_id]

    # The steps

    async def _move(self, partition_id: int) -> None:
        pair = self._pair
        while (step := await self._next_step(partition_id)) is not None:
            if step is Step.FILL:
                await self._fill(partition_id)
            elif step is Step.JOIN:
                await self._until(partition_id, self._joined)
            elif step is Step.UNASSIGN:
                if not pair.back:
                    await self._until_caught_up(partition_id)
                await self._until(partition_id, self._allowed(step))
                await store_admin.unassign_partitions(self._zookeeper, self._root, pair.leaving, [partition_id])
            elif step is Step.RETURN:
                await store_admin.assign_partitions(self._zookeeper, self._root, pair.joining, [partition_id])
            elif step is Step.LEAVE:
                await self._until(partition_id, self._left)
            elif not await self._clear(partition_id):
                self._files_left.append(partition_id)
                return
            tell(self._options, f"partition {partition_id}: done: {_sentence(step, pair)}")

    async def _next_step(self, partition_id: int) -> Step | None:
        try:
            return self._pair.next_step(await self._look(partition_id))
        except Refused as error:
            raise WaltzError(f"partition {partition_id}: somebody else has changed its replicas: {error}") from None

    async def _until(self, partition_id: int, objection: Callable[[View], str | None]) -> None:
        """Look again until there is no objection."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._options.timeout
        while (reason := objection(await self._look(partition_id))) is not None:
            if loop.time() >= deadline_s:
                raise self._late(partition_id, reason)
            await asyncio.sleep(LOOK_AGAIN_S)

    def _late(self, partition_id: int, reason: str) -> WaltzError:
        back = "" if self._pair.back else ", or with --cancel to take it back"
        return WaltzError(
            f"partition {partition_id}: for {self._options.timeout} s {reason}; see waltz status, and run it "
            f"again{back}"
        )

    def _joined(self, view: View) -> str | None:
        joining = self._pair.joining
        return None if joining in view.current else f"{joining} has taken no full part in the store session"

    def _left(self, view: View) -> str | None:
        leaving = self._pair.leaving
        return f"no store session has begun without {leaving}" if leaving in view.listed else None

    def _allowed(self, step: Step) -> Callable[[View], str | None]:
        def objection(view: View) -> str | None:
            try:
                check_step(view, step, leaving=self._pair.leaving, joining=self._pair.joining)
            except Refused as error:
                return str(error)
            return None

        return objection

    async def _until_caught_up(self, partition_id: int) -> None:
        """Return when the new replica has all that is committed now: full part is taken before that."""
        mark = await self._mark(partition_id)
        if mark == NO_TRANSACTION:
            return
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._options.timeout
        async with self._admin(self._pair.joining) as admin:
            while not await admin.records(partition_id, mark, 1):
                if loop.time() >= deadline_s:
                    raise self._late(partition_id, f"{self._pair.joining} has not got transaction {mark}")
                await asyncio.sleep(LOOK_AGAIN_S)

    async def _clear(self, partition_id: int) -> bool:
        """Have the files deleted, and forget the move; whether the storage could be asked."""
        leaving, asked = self._pair.leaving, True
        try:
            async with self._admin(leaving) as admin:
                if partition_id in await admin.assigned_partition_status():
                    await admin.set_assigned([partition_id], False, delete_files=True)
        except ConnectFailedError:
            asked = False
        with contextlib.suppress(NoNodeError):
            await self._zookeeper.delete(self._paths.replica_move(partition_id))
        return asked

    @contextlib.asynccontextmanager
    async def _admin(self, storage: str) -> AsyncIterator[StorageAdminClient]:
        endpoint = await admin_endpoint(self._zookeeper, self._root, storage)
        async with connection(StorageAdminClient, self._zookeeper, self._root, endpoint, self._session.tls) as admin:
            yield admin

    # Filling

    async def _fill(self, partition_id: int) -> None:
        """Copy while no server knows of the new replica, then make it known."""
        move = self._pair.move
        await self._until(partition_id, self._allowed(Step.FILL))
        path = self._paths.replica_move(partition_id)
        with contextlib.suppress(NodeExistsError):
            await self._zookeeper.create(path, move.encode())
        if (found := await _read_move(self._zookeeper, self._root, partition_id)) != move:
            raise WaltzError(f"a replica of partition {partition_id} is being moved {found}")
        filling = ReplicaFilling(
            self._zookeeper,
            self._root,
            self._session.tls,
            partition_id,
            move.destination,
            FillOptions(self._options.rate * 1_000_000, self._options.timeout, move.source),
            functools.partial(tell, self._options),
            progress,
        )
        await filling.run()
        await self._until(partition_id, self._allowed(Step.FILL))
        await store_admin.assign_partitions(self._zookeeper, self._root, move.destination, [partition_id])

    # What is said

    def _lines(self, plans: Mapping[int, Sequence[Step]]) -> list[str]:
        pair, rate = self._pair, self._options.rate
        if not plans:
            if pair.back:
                return [f"nothing is to be done: no replica of these partitions is on its way {pair.move}"]
            return [f"nothing is to be done: {pair.leaving} holds none of these partitions"]
        lines = []
        for steps in dict.fromkeys(map(tuple, plans.values())):
            these = [each for each in plans if tuple(plans[each]) == steps]
            lines.append(f"{_partitions(these)}, one after the other:" if len(these) > 1 else f"{_partitions(these)}:")
            lines += [f"  {_sentence(step, pair)}" for step in steps]
        if any(Step.FILL in steps for steps in plans.values()):
            lines.append(f"copying takes no more than {rate} MB/s")
        return lines

    def _document(self, plans: Mapping[int, Sequence[Step]], *, applied: bool) -> dict[str, Json]:
        partitions: list[Json] = [
            {"partition": partition_id, "steps": [step.name for step in steps]} for partition_id, steps in plans.items()
        ]
        return {
            "applied": applied,
            "from": self._pair.leaving,
            "to": self._pair.joining,
            "files_left": list(self._files_left),
            "partitions": partitions,
        }


def _partitions(partition_ids: Collection[int]) -> str:
    return f"partition{'s' if len(partition_ids) > 1 else ''} {', '.join(ranges(partition_ids))}"


def _sentence(step: Step, pair: Pair) -> str:
    return step.value.format(leaving=pair.leaving, joining=pair.joining)
