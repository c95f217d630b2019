"""Bugs to plant where clients and servers meet: locks, mounts, feeds, bulk readers."""

import asyncio
import contextlib
from array import array
from collections.abc import Iterator
from typing import Any
from unittest import mock

from waltz.client.engine.partition.appends import PartitionAppends
from waltz.client.engine.partition.feed import Fed, PartitionFeed
from waltz.client.engine.partition.mount import Mount
from waltz.client.engine.stream import StreamClient
from waltz.client.engine.submission import AppendFields, Submission
from waltz.client.transaction import Transaction
from waltz.common.cluster import marks, replicas
from waltz.common.ids import NO_TRANSACTION
from waltz.common.net.channel import Channel
from waltz.common.wire.client_server import HighWaterMarkRequest, HighWaterMarkResponse, LockFailure
from waltz.common.wire.structures import SessionInfo
from waltz.common.zk.client import ZooKeeper
from waltz.common.zk.znodes import PartitionGeneration
from waltz.operations.storages import PartitionCopy
from waltz.server.partition.admission import Admission
from waltz.server.partition.locks import LockTable
from waltz.server.partition.partition import ServerPartition
from waltz.server.partition.sequencer import Sequencer, Verdict
from waltz.server.requests.pending import Pending
from waltz.server.store.log.log import ReplicatedLog
from waltz.server.store.replica.replica import Replica
from waltz.storage.remote.admin_client import StorageAdminClient

_MUCH = 1 << 60


def never_reset(table: LockTable, high_water_mark: int) -> None:
    """Keep what the last session has left."""


@contextlib.contextmanager
def stale_locks() -> Iterator[None]:
    """H2. A client that waits until it has applied what came before its mount hides it."""

    def mounted_at_once(feed: PartitionFeed, item: Any) -> None:
        feed._mount_reached(item.req_id)

    with (
        mock.patch.object(LockTable, "reset", never_reset),
        mock.patch.object(PartitionFeed, "offer_mounted", mounted_at_once),
    ):
        yield


def conflict_at_once(partition: ServerPartition, link: Any, conflict: Any, write_session: int) -> None:
    link.send(LockFailure(conflict.request.req_id, conflict.estimate))


def answer_at_once(sequencer: Sequencer, pending: Pending, next_id: int) -> Verdict | None:
    return sequencer.reached(pending)


@contextlib.contextmanager
def feed_with_gaps() -> Iterator[None]:
    """A client takes whatever comes, if it is newer than what it has."""
    offer = PartitionFeed.offer

    def anything_new(feed: PartitionFeed, item: Fed) -> None:
        feed.received = max(feed.received, item[1] - 1)
        offer(feed, item)

    with mock.patch.object(PartitionFeed, "offer", anything_new), mount_behind():
        yield


@contextlib.contextmanager
def feed_with_duplicates() -> Iterator[None]:
    """A client takes what it has taken before."""
    offer = PartitionFeed.offer

    def anything_old(feed: PartitionFeed, item: Fed) -> None:
        feed.received = min(feed.received, item[1] - 1)
        offer(feed, item)

    with mock.patch.object(PartitionFeed, "offer", anything_old):
        yield


@contextlib.contextmanager
def end_the_feed_task() -> Iterator[None]:
    """What a callback raises ends the task that applies what is queued, and nobody takes that up again."""
    report = PartitionFeed._report

    async def let_out(feed: PartitionFeed, transaction: Transaction, error: BaseException) -> None:
        await report(feed, transaction, error)
        raise error

    def ended(feed: PartitionFeed, task: asyncio.Task[None]) -> None:
        if feed._task is task:
            feed._task = None
        if not task.cancelled():
            task.exception()

    with mock.patch.object(PartitionFeed, "_report", let_out), mock.patch.object(PartitionFeed, "_ended", ended):
        yield


@contextlib.contextmanager
def mount_behind() -> Iterator[None]:
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
def fail_with_the_connection() -> Iterator[None]:
    """S5: a client takes what is undecided for failed as soon as its connection is lost."""
    link_lost = StreamClient.link_lost

    def lost(client: StreamClient, link: Any, error: Exception) -> None:
        mounted = client._mounted_on(link)
        link_lost(client, link, error)
        for partition in mounted:
            last = partition.appends.monitor.last_enqueued
            if last is not None:
                partition.appends._flushed(last)

    with mock.patch.object(StreamClient, "link_lost", lost):
        yield


@contextlib.contextmanager
def claim_more() -> Iterator[None]:
    """A client has its locks checked against more than it has applied."""
    append = PartitionAppends._append

    def claiming(appends: PartitionAppends, submission: Any, fields: AppendFields) -> None:
        mark = max(fields.client_high_water_mark, appends._feed.received)
        append(appends, submission, fields._replace(client_high_water_mark=mark))

    with mock.patch.object(PartitionAppends, "_append", claiming):
        yield


def decided_before_applied(appends: PartitionAppends, message: Any) -> None:
    appends._flushed(message.req_id)


def no_locks(
    table: LockTable, write: Any, read: Any, append: Any, client_high_water_mark: int, transaction_id: int
) -> int | None:
    return None


def raise_nothing(
    table: LockTable, write: Any, read: Any, append: Any, client_high_water_mark: int, transaction_id: int
) -> int | None:
    estimate = table.estimate(write, read)
    return estimate if estimate > max(client_high_water_mark, NO_TRANSACTION) else None


def raise_instead_of_assign(table: LockTable, high_water_mark: int) -> None:
    """S3: slots keep what is higher than the mark of the new session: ids that are void."""
    table._slots = array("q", [max(slot, high_water_mark) for slot in table._slots])


@contextlib.contextmanager
def keep_lock_tables() -> Iterator[None]:
    """S3: a session goes on with the lock table of the one before, whatever was committed between."""
    begin = Admission.begin

    def kept(admission: Admission, high_water_mark: int, changed: bool) -> None:
        admission.next_id = high_water_mark + 1
        begin(admission, high_water_mark, False)

    with mock.patch.object(Admission, "begin", kept):
        yield


def give_with_the_same_generation(partition: Any, server_id: int) -> PartitionGeneration:
    return PartitionGeneration(partition.partition_id, partition.generation or 1)


def give_with_a_new_count(partition: Any, server_id: int) -> PartitionGeneration:
    kept = server_id == partition.owner
    return PartitionGeneration(partition.partition_id, partition.generation if kept else server_id + 1)


@contextlib.contextmanager
def serve_future_generations() -> Iterator[None]:
    """An owner answers mounts that know a newer generation than the session which runs."""
    with mock.patch.object(ReplicatedLog, "opened_generation", 1 << 40):
        yield


def object_to_nobody(state: object, metadata: object) -> None:
    """S6: any replica may serve a bulk read."""


@contextlib.contextmanager
def read_without_sync() -> Iterator[None]:
    """S6: a bulk reader believes what its session sees of ZooKeeper, however old that is."""

    async def believe(zookeeper: ZooKeeper, root: str) -> None:
        pass

    with mock.patch.object(replicas, "sync_cluster", believe), mock.patch.object(marks, "sync_cluster", believe):
        yield


@contextlib.contextmanager
def reuse_request_ids() -> Iterator[None]:
    """Every tenth append of a partition has the id of the one before it, if that has left."""
    append = PartitionAppends._append
    counts: dict[PartitionAppends, int] = {}

    def reused(appends: PartitionAppends, submission: Submission, fields: AppendFields) -> None:
        counts[appends] = count = counts.get(appends, 0) + 1
        if count % 10 == 0 and appends.monitor.last_enqueued is None:
            appends._last_seq_num -= 1
        append(appends, submission, fields)

    with mock.patch.object(PartitionAppends, "_append", reused):
        yield


@contextlib.contextmanager
def marks_of_any_generation() -> Iterator[None]:
    """An owner tells its mark also to who has heard of a newer generation."""

    def of_any(sequencer: Sequencer, pending: Pending) -> Verdict | None:
        generation, sequencer.generation = sequencer.generation, 1 << 40
        try:
            return ask(sequencer, pending)
        finally:
            sequencer.generation = generation

    ask = Sequencer.ask
    with mock.patch.object(Sequencer, "ask", of_any):
        yield


@contextlib.contextmanager
def marks_of_undecided() -> Iterator[None]:
    """An owner counts an append to its mark that is under way."""

    def tell(partition: ServerPartition, link: Any, request: HighWaterMarkRequest) -> None:
        if partition.high_water_mark is not None and partition._undecided.count:
            link.send(HighWaterMarkResponse(request.req_id, partition.high_water_mark + 1))
        else:
            ask(partition, link, request)

    ask = ServerPartition.ask_high_water_mark
    with mock.patch.object(ServerPartition, "ask_high_water_mark", tell):
        yield


@contextlib.contextmanager
def no_more_asked_for() -> Iterator[None]:
    """A client that was fed a part of what it lacks does not ask for the rest."""
    ask_on = Mount._request_feed

    def mounted_only(mount: Mount) -> None:
        if mount.channel is not None or mount._feed.received == mount._fed_from:
            ask_on(mount)

    with mock.patch.object(Mount, "_request_feed", mounted_only):
        yield


@contextlib.contextmanager
def send_without_window() -> Iterator[None]:
    """A server sends to a replica whatever there is, however much is unanswered."""
    pump = Replica.pump

    def all_of_it(replica: Replica) -> None:
        replica._in_flight_bytes -= _MUCH
        try:
            pump(replica)
        finally:
            replica._in_flight_bytes += _MUCH

    def nothing(channel: Channel) -> None:
        pass

    with mock.patch.object(Replica, "pump", all_of_it), mock.patch.object(Channel, "pause_writing", nothing):
        yield


@contextlib.contextmanager
def members_not_refused() -> Iterator[None]:
    """A recovery overwrites what the next session has to count."""

    async def nothing(recovery: PartitionCopy) -> None:
        pass

    with mock.patch.object(PartitionCopy, "_check_no_member", nothing):
        yield


@contextlib.contextmanager
def copy_what_is_uncertain() -> Iterator[None]:
    """A recovery takes all that its source has for certain."""
    last_session_info = StorageAdminClient.last_session_info

    async def everything(client: StorageAdminClient, partition_id: int) -> SessionInfo:
        info = await last_session_info(client, partition_id)
        highest = info.local_low_water_mark
        while records := await client.records(partition_id, highest + 1, 100):
            highest += len(records)
        return info._replace(local_low_water_mark=highest)

    with mock.patch.object(StorageAdminClient, "last_session_info", everything):
        yield
