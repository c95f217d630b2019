"""Bugs to plant against liveness and isolation: what stands still, what is held, what is left behind."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from unittest import mock

from waltz.client.engine.links.links import ServerLink
from waltz.client.engine.partition.partition import StreamPartition
from waltz.common.cluster.manager import ClusterManager
from waltz.common.zk.client import ConnectionLossError, SessionExpiredError
from waltz.server.feeding.feed import Feed, Notices
from waltz.server.partition.partition import ServerPartition
from waltz.server.partition.registrations import Registrations, _Entry
from waltz.server.partition.sequencer import Sequencer
from waltz.server.requests.appends import AppendCall
from waltz.server.requests.link import ClientLink
from waltz.server.requests.pending import Pending
from waltz.server.store.log.replica_change import Answers, ReplicaChange
from waltz.server.store.replica.replica import Replica, ReplicaStalledError
from waltz.storage.remote.owed_answers import OwedAnswers

_NEVER = 1 << 62


def late_whatever_moves(replica: Replica, now_s: float, limit_s: float, *, needed: bool) -> None:
    """L1: what a replica owes has a deadline as a whole, however much of it moves."""
    if replica._client is not None and replica.owes and now_s - replica._last_progress_s > limit_s:
        replica.fail(ReplicaStalledError("late"))


@contextlib.contextmanager
def hope_for_copies() -> Iterator[None]:
    """L2: a live replica that lags and cannot copy is a vote to come."""
    check_progress = Replica.check_progress

    def hopeful(replica: Replica, now_s: float, limit_s: float, *, needed: bool) -> None:
        check_progress(replica, now_s, limit_s, needed=False)

    with mock.patch.object(Replica, "check_progress", hopeful):
        yield


def copies_never_stuck(replica: object) -> bool:
    """L2: a copy that fails again and again is progress."""
    return False


@contextlib.contextmanager
def patient_with_silence() -> Iterator[None]:
    """L3: a connection to a storage that went dead is kept."""
    make = OwedAnswers.__init__

    def never_silent(owed: OwedAnswers[object], silent_after_s: float) -> None:
        make(owed, float("inf"))

    with mock.patch.object(OwedAnswers, "__init__", never_silent):
        yield


@contextlib.contextmanager
def ask_as_nobody() -> Iterator[None]:
    """L3: signs of life are asked for under an id that all clients share."""
    make = ServerLink.__init__

    def make_nobodys(link: ServerLink, *arguments: object, client_id: int, **options: object) -> None:
        make(link, *arguments, client_id=0, **options)  # type: ignore[arg-type]  # passed on as they came

    with mock.patch.object(ServerLink, "__init__", make_nobodys):
        yield


def register_whoever_mounted_first(
    registrations: Registrations, link: ClientLink, generation: int, session_id: bytes
) -> bool:
    """L3: the connection that a client has replaced counts for as long as its server takes it for open."""
    entry = registrations._entries.get(link.client_id)
    if entry is not None and entry.link is not link and not entry.link.channel.closed:
        return False
    registrations._entries[link.client_id] = _Entry(link, generation, session_id)
    return True


def ask_nobody(session: object, *, unasked: bool) -> None:
    """L5: what an idle session was able to do once it can do for ever."""


def leave_what_moves_behind(partition: StreamPartition) -> bool:
    """A partition that is being left does not follow its owner, so nobody decides what was appended to it."""
    return partition.active


def mount_while_joining_again(partition: StreamPartition) -> bool:
    """A partition that is joined again is mounted before its feed begins, behind what was received before."""
    return partition.active or partition.appends.monitor.pending > 0


def begin_anew_with_every_question(link: ServerLink) -> None:
    """L3: what a client asks again and again puts off the end of a connection that went dead."""
    if link.channel is not None:
        link._silence.expect(link.channel.taken_bytes, link._loop.time())


def admit_everything(account: object, size_bytes: int) -> bool:
    """L4: nothing is too much."""
    return True


@contextlib.contextmanager
def hold_instead_of_refusing() -> Iterator[None]:
    """L4: what a partition has no room for is kept, and its connection is not read until there is room again."""
    count_memory = ServerPartition._count_memory
    held: dict[ServerPartition, set[ClientLink]] = {}

    def line_up(partition: ServerPartition, pending: Pending) -> bool:
        partition._sequencer.line_up(pending)
        partition._memory.add(pending.size_bytes)
        if partition._memory.exceeded:
            held.setdefault(partition, set()).add(pending.link)
            pending.link.hold(partition)
        return True

    def release(partition: ServerPartition) -> None:
        count_memory(partition)
        if not partition._memory.exceeded:
            for link in held.pop(partition, ()):
                link.release(partition)

    with (
        mock.patch.object(ServerPartition, "_line_up", line_up),
        mock.patch.object(ServerPartition, "_count_memory", release),
    ):
        yield


@contextlib.contextmanager
def lock_failures_behind_the_batch() -> Iterator[None]:
    """S4: lock failures leave when the whole batch has been fed."""
    committed = Feed.committed

    def fed_first(feed: Feed, first: int, count: int, frames: bytes, notices: Notices | None = None) -> None:
        committed(feed, first, count, frames)
        for link, failures in (notices or {}).items():
            for _, frame in failures:
                link.channel.send(frame)

    with mock.patch.object(Feed, "committed", fed_first):
        yield


@contextlib.contextmanager
def conflicts_forgotten_with_the_session() -> Iterator[None]:
    """S4: a session leaves appends undecided; who waits for one of them is looked at again, whatever became of it."""
    end = Sequencer.session_ended

    def wait_for_nothing(sequencer: Sequencer, unwritten: Sequence[AppendCall]) -> None:
        end(sequencer, unwritten)
        sequencer._commits = [(_NEVER, pending) for _, pending in sequencer._commits]

    with mock.patch.object(Sequencer, "session_ended", wait_for_nothing):
        yield


@contextlib.asynccontextmanager
async def reconsider_nothing(
    change: ReplicaChange,
    session_id: int,
    listed: frozenset[str],
    assigned: frozenset[str],
    give_up: Callable[[str], None],
) -> AsyncIterator[None]:
    """L7: a session that opens with other storages waits for ever for a quorum of them."""
    yield


@contextlib.contextmanager
def give_up_without_asking() -> Iterator[None]:
    """L7: a session that commits is given up for a set of replicas of which no quorum answers."""

    async def believe(change: ReplicaChange, session_id: int, present: object, assigned: object) -> Answers:
        return Answers(True, {})

    async def obey(
        change: ReplicaChange, session_id: int, listed: frozenset[str], assigned: frozenset[str]
    ) -> frozenset[str]:
        return assigned

    with mock.patch.multiple(ReplicaChange, can_take_over=believe, choose=obey):
        yield


async def close_nothing(feed: Feed) -> None:
    """L6: a task outlives what it belongs to."""


@contextlib.contextmanager
def follow_the_cluster_no_more() -> Iterator[None]:
    """L6: what follows the cluster ends when ZooKeeper is away, and is not begun again."""
    refresh = ClusterManager._refresh

    async def once(manager: ClusterManager) -> None:
        try:
            await refresh(manager)
        except (ConnectionLossError, SessionExpiredError) as error:
            raise asyncio.CancelledError from error

    with mock.patch.object(ClusterManager, "_refresh", once):
        yield
