"""Planted bugs: each breaks one rule of the real code, and the simulator has to find it.

A planted bug is a patch that lasts as long as its context. The number beside it says within how many seeds it is found.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest import mock

from tests.simulation.disk import SimulatedFile
from waltz.client.appends import PartitionAppends
from waltz.client.feed import PartitionFeed
from waltz.client.mount import Mount
from waltz.client.stream import StreamClient
from waltz.common.ids import NO_TRANSACTION
from waltz.common.wire import storage as wire
from waltz.common.wire.client_server import FeedData, LockFailure
from waltz.common.zk.client import ANY_VERSION
from waltz.common.zk.znodes import PartitionMetadata
from waltz.server.locks import LockTable
from waltz.server.partition import ServerPartition
from waltz.server.registrations import Registrations
from waltz.server.store import log, recovery, session
from waltz.server.store.interface import Append
from waltz.server.store.metadata_node import MetadataNode
from waltz.server.store.recovery import RecoveryMachine, Step
from waltz.server.store.recovery_effects import GetMaximum, Open
from waltz.server.store.replica import Replica
from waltz.server.store.settlement import Settlement
from waltz.storage import session_rule
from waltz.storage.log import PartitionLog
from waltz.storage.partition import StoragePartition


class Mutant(NamedTuple):
    """A planted bug. ``plant`` gives the context in which it is there."""

    description: str
    seeds: int
    plant: Callable[[], AbstractContextManager[object]]
    fault_kinds: tuple[str, ...] = ()
    """The kinds of faults that bring it to light; none: all."""
    conditions: Mapping[str, Any] = MappingProxyType({})
    """Options of the simulation that bring it to light."""


def _patch(target: object, name: str, replacement: object) -> Callable[[], AbstractContextManager[object]]:
    return lambda: mock.patch.object(target, name, replacement)


@contextlib.contextmanager
def _quorum_off_by_one() -> Iterator[None]:
    def too_few(replica_count: int) -> int:
        return max(replica_count // 2, 1)

    with mock.patch.object(session, "quorum_of", too_few), mock.patch.object(recovery, "quorum_of", too_few):
        yield


def _sync_nothing(file: SimulatedFile) -> None:
    """Say that it is durable."""


def _truncate_nothing(partition_log: PartitionLog, transaction_id: int) -> int:
    return min(transaction_id, partition_log.max_transaction_id)


def _accept_every_session(message: object, session_id: int) -> None:
    """No request is refused for its session."""


def _acknowledge_regardless(partition: StoragePartition, request: Any, frame: bytes) -> None:
    request.requester.answer(frame)


@contextlib.contextmanager
def _answer_before_the_write_ends() -> Iterator[None]:
    """S1: a newer session is told the maximum while the write of an older one is under way, which is acknowledged."""
    receive = StoragePartition.receive

    async def answer(partition: StoragePartition, request: Any) -> None:
        request.requester.answer(await partition._perform(request))

    def hasty(partition: StoragePartition, request: Any) -> None:
        message = request.message
        questions = wire.LastSessionInfoRequest | wire.MaxTransactionIdRequest
        if isinstance(message, questions) and message.session_id >= partition._session_id:
            partition._session_id = message.session_id
            partition._tasks.append(asyncio.create_task(answer(partition, request)))
        else:
            receive(partition, request)

    with (
        mock.patch.object(StoragePartition, "receive", hasty),
        mock.patch.object(StoragePartition, "_acknowledge", _acknowledge_regardless),
    ):
        yield


def _never_reset(table: LockTable, high_water_mark: int) -> None:
    """Keep what the last session has left."""


@contextlib.contextmanager
def _stale_locks() -> Iterator[None]:
    """H2. A client that waits until it has applied what came before its mount hides it."""

    def mounted_at_once(feed: PartitionFeed, item: Any) -> None:
        feed._owner.mount_reached(item.req_id)

    with (
        mock.patch.object(LockTable, "reset", _never_reset),
        mock.patch.object(PartitionFeed, "offer_mounted", mounted_at_once),
    ):
        yield


def _conflict_at_once(partition: ServerPartition, link: Any, conflict: Any) -> None:
    link.send(LockFailure(conflict.request.req_id, conflict.estimate))


def _answer_at_once(partition: ServerPartition, pending: Any) -> None:
    partition._answer(pending)


async def _settle_by_id(opened: Any, undecided: Sequence[Append]) -> Settlement:
    """H1: whatever is not above the new mark is taken for committed."""
    mark = opened.high_water_mark
    return Settlement(
        [append for append in undecided if append.transaction_id <= mark],
        [append for append in undecided if append.transaction_id > mark],
    )


def _write_without_comparing(node: MetadataNode, metadata: PartitionMetadata, version: int) -> Any:
    async def write() -> int:
        return (await node._zookeeper.set(node.path, metadata.encode(), ANY_VERSION)).version

    return write()


@contextlib.contextmanager
def _open_before_metadata() -> Iterator[None]:
    """H4: the session opens as soon as a quorum is recovered."""
    progress = RecoveryMachine._progress

    def early(machine: RecoveryMachine) -> Any:
        effects = progress(machine)
        if not machine._opened and machine.high_water_mark is not None and machine._quorum_recovered():
            machine._opened = True
            effects.append(Open(machine.high_water_mark))
            for replica in machine._replicas.values():
                if replica.step is Step.RECOVERED:
                    machine._join(replica)
            effects += machine._effects
            machine._effects = []
        return effects

    with mock.patch.object(RecoveryMachine, "_progress", early):
        yield


@contextlib.contextmanager
def _trust_everything() -> Iterator[None]:
    """Every replica keeps what it holds, whatever the metadata say of it."""

    def inspect(machine: RecoveryMachine, replica: Any) -> None:
        replica.counted = replica.replica_id in machine._previous
        replica.intact = replica.may_vote = True
        replica.step = Step.INSPECTING
        machine._effects.append(GetMaximum(replica.replica_id))

    with mock.patch.object(RecoveryMachine, "_inspect", inspect):
        yield


def _record_nothing(machine: RecoveryMachine, mark: int, support: Any) -> dict[Any, Any]:
    return {}


def _decide_lowest(evidence: Any, previous_replica_count: int) -> int | None:
    marks = [item.mark for item in evidence if item.votes]
    return min(marks) if len(marks) >= previous_replica_count // 2 + 1 else None


def _decide_with_one(evidence: Any, previous_replica_count: int) -> int | None:
    marks = [item.mark for item in evidence if item.votes]
    return max(marks) if marks else None


def _appended_in_spite_of_errors(
    replica: Replica, life: int, last_id: int, size_bytes: int, error: Exception | None
) -> None:
    replica._in_flight_bytes -= size_bytes
    if last_id > replica.acked:
        replica.acked = last_id
        replica._session.acknowledged()
    replica.pump()


@contextlib.contextmanager
def _slip_back() -> Iterator[None]:
    """S2: a replica whose connection broke goes on where it was, without joining again."""
    one_life = Replica._one_life

    async def life(replica: Replica) -> None:
        if replica.next_id == 0 or replica._session.ring is None:
            await one_life(replica)
            return
        replica._begin_life()
        try:
            replica._client = await replica._session.connections.client(replica.storage)
            replica.live = replica._serving = True
            replica.next_id = replica.acked + 1
            replica.pump()
            await replica._serve(replica._client, replica.acked)
        except Exception:
            replica.live = replica._serving = False
            replica._session.replica_left()

    with mock.patch.object(Replica, "_one_life", life):
        yield


@contextlib.contextmanager
def _feed_with_gaps() -> Iterator[None]:
    """A client takes whatever comes, if it is newer than what it has."""
    offer = PartitionFeed.offer

    def anything_new(feed: PartitionFeed, item: FeedData) -> None:
        feed.received = max(feed.received, item.transaction_id - 1)
        offer(feed, item)

    with mock.patch.object(PartitionFeed, "offer", anything_new), _mount_behind():
        yield


@contextlib.contextmanager
def _feed_with_duplicates() -> Iterator[None]:
    """A client takes what it has taken before."""
    offer = PartitionFeed.offer

    def anything_old(feed: PartitionFeed, item: FeedData) -> None:
        feed.received = min(feed.received, item.transaction_id - 1)
        offer(feed, item)

    with mock.patch.object(PartitionFeed, "offer", anything_old):
        yield


@contextlib.contextmanager
def _mount_behind() -> Iterator[None]:
    """A client asks for the feed from one transaction too far."""
    request_feed = Mount._request_feed

    def too_far(mount: Mount) -> None:
        mount._feed.received += 1
        try:
            request_feed(mount)
        finally:
            mount._feed.received -= 1

    with mock.patch.object(Mount, "_request_feed", too_far):
        yield


@contextlib.contextmanager
def _fail_with_the_connection() -> Iterator[None]:
    """S5: a client takes what is undecided for failed as soon as its connection is lost."""
    link_lost = StreamClient.link_lost

    def lost(client: StreamClient, link: Any, error: Exception) -> None:
        mounted = client._mounted_on(link)
        link_lost(client, link, error)
        for partition in mounted:
            last = partition.appends.monitor.last_enqueued
            if last is not None:
                partition.appends._flushed(last.req_id)

    with mock.patch.object(StreamClient, "link_lost", lost):
        yield


@contextlib.contextmanager
def _claim_more() -> Iterator[None]:
    """A client has its locks checked against more than it has applied."""
    append = PartitionAppends._append

    def claiming(appends: PartitionAppends, submission: Any, data: bytes, header: int, mark: int, *locks: Any) -> None:
        append(appends, submission, data, header, max(mark, appends._feed.received), *locks)

    with mock.patch.object(PartitionAppends, "_append", claiming):
        yield


def _decided_before_applied(appends: PartitionAppends, message: Any) -> None:
    appends._flushed(message.req_id)


def _stale_registration(registrations: Registrations, link: Any) -> bool:
    return True


def _no_locks(
    table: LockTable, write: Any, read: Any, append: Any, client_high_water_mark: int, transaction_id: int
) -> int | None:
    return None


def _raise_nothing(
    table: LockTable, write: Any, read: Any, append: Any, client_high_water_mark: int, transaction_id: int
) -> int | None:
    estimate = table.estimate(write, read)
    return estimate if estimate > max(client_high_water_mark, NO_TRANSACTION) else None


MUTANTS: dict[str, Mutant] = {
    "quorum-off-by-one": Mutant("half of the replicas are taken for a majority", 10, _quorum_off_by_one),
    "ack-before-sync": Mutant("a storage syncs no file", 10, _patch(SimulatedFile, "datasync", _sync_nothing)),
    "skip-truncate": Mutant(
        "a storage says that it has truncated, and has not", 20, _patch(PartitionLog, "truncate", _truncate_nothing)
    ),
    "stale-session-accepted": Mutant(
        "a storage serves every session", 30, _patch(session_rule, "fence", _accept_every_session)
    ),
    "S1-fence-checked-once": Mutant(
        "a storage answers a newer session before the write of an older one has ended, and acknowledges both",
        60,
        _answer_before_the_write_ends,
        ("flap", "depose", "slow-disk"),
    ),
    "S2-slips-back": Mutant("a replica whose connection broke does not join again", 20, _slip_back),
    "S3-lock-table-not-reset": Mutant(
        "the lock table survives its session (H2), and clients append before they have applied what came before",
        60,
        _stale_locks,
        ("flap",),
        {"lock_names": 5, "apply_pause_s": 0.6, "partitions": 1, "clients": 4, "concurrent_transactions": 100},
    ),
    "S4-lock-failure-at-once": Mutant(
        "a lock failure names an id that may never be", 60, _patch(ServerPartition, "_conflict", _conflict_at_once)
    ),
    "S5-flush-at-once": Mutant(
        "a flush is answered while appends are undecided",
        10,
        _patch(ServerPartition, "_await_decisions", _answer_at_once),
    ),
    "S5-settle-by-id": Mutant(
        "after a change of session ids alone decide (H1)",
        30,
        _patch(log, "settle", _settle_by_id),
        ("flap",),
    ),
    "S5-fail-with-connection": Mutant("a client takes a lost connection for a failure", 10, _fail_with_the_connection),
    "S7-mark-not-recorded": Mutant(
        "a mark is used before it is recorded",
        100,
        _patch(RecoveryMachine, "_records_for", _record_nothing),
        ("rotate-minority",),
    ),
    "H3-trust-everything": Mutant("no replica is cut to what can be trusted", 30, _trust_everything),
    "H4-open-before-metadata": Mutant(
        "a session opens before its metadata are written",
        30,
        _open_before_metadata,
        ("strand-minority", "kill-server", "lose-answer"),
    ),
    "metadata-without-compare": Mutant(
        "metadata are written whatever others wrote",
        60,
        _patch(MetadataNode, "write", _write_without_comparing),
        ("flap", "depose", "rotate-minority"),
    ),
    "decide-lowest": Mutant(
        "a recovery takes the lowest mark of a majority",
        30,
        _patch(recovery, "decide_high_water_mark", _decide_lowest),
    ),
    "decide-with-one": Mutant(
        "a recovery takes the word of one replica", 30, _patch(recovery, "decide_high_water_mark", _decide_with_one)
    ),
    "errors-are-acknowledgements": Mutant(
        "a failed append counts as a vote", 10, _patch(Replica, "_appended", _appended_in_spite_of_errors)
    ),
    "feed-with-gaps": Mutant("a client asks for one transaction too few, and accepts the gap", 10, _feed_with_gaps),
    "feed-with-duplicates": Mutant("a client applies what it has applied", 100, _feed_with_duplicates),
    "feed-gap-on-reconnect": Mutant("a mounted client asks for one transaction too few", 10, _mount_behind),
    "flush-before-feed": Mutant(
        "a client believes a flush before it has applied what came before it",
        10,
        _patch(PartitionAppends, "flush_response", _decided_before_applied),
    ),
    "claim-more": Mutant("locks are checked against what was received, not applied", 100, _claim_more),
    "locks-not-checked": Mutant("no lock ever fails", 10, _patch(LockTable, "admit", _no_locks)),
    "locks-not-raised": Mutant("no lock is ever raised", 10, _patch(LockTable, "admit", _raise_nothing)),
    "stale-connection-accepted": Mutant(
        "a server takes appends from connections that were given up",
        100,
        _patch(Registrations, "is_valid", _stale_registration),
    ),
}
"""Every planted bug."""
