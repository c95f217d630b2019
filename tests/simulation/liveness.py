"""What must go on, and what must end: health that tells the truth, bounded memory, nothing left behind.

The watch looks at the servers as an operator's monitor does, every second, inside of their processes.
"""

import contextlib
import os
from asyncio import all_tasks
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import waltz
from tests.simulation.application import LARGE_FACTOR
from tests.simulation.cluster import STORAGE_PORT, Host, ServerHost, SimulatedCluster, World
from tests.simulation.loop import Process, ProcessState, SimulatedTask, running_process
from tests.simulation.network import SimulatedTransport
from waltz.client.engine.links.links import LOOKS_PER_SILENCE, ServerLink
from waltz.client.engine.partition.appends import PartitionAppends
from waltz.client.engine.partition.feed import PartitionFeed
from waltz.client.engine.partition.monitor import TransactionMonitor
from waltz.client.engine.partition.mount import Mount
from waltz.client.options import ClientOptions
from waltz.common.cluster.owners import CLIENT_ID
from waltz.common.ids import NO_TRANSACTION
from waltz.common.net.channel import WRITE_HIGH_BYTES, Channel
from waltz.common.wire.client_server import LockFailure
from waltz.common.wire.versions import FIRST_WITH_ASSIGNMENT
from waltz.server.partition.locks import Conflict
from waltz.server.partition.partition import ServerPartition
from waltz.server.partition.registrations import Registrations
from waltz.server.process.replica_rounds import ROUND_S, ROUNDS_PER_UNASKED
from waltz.server.requests.appends import AppendCall
from waltz.server.requests.connection import MAX_UNSENT_BYTES
from waltz.server.requests.link import ClientLink
from waltz.server.store.interface import Append
from waltz.server.store.log.log import ReplicatedLog
from waltz.server.store.memory import MIN_SHARE_BYTES
from waltz.server.store.session.session import StoreSession

LOOK_INTERVAL_S = 1.0

PROOF_S = 5.0
"""A partition that was given something, and for so much longer than a session may stand still has neither committed nor
opened a session, must not call itself healthy."""

ASKED_EVERY_S = ROUNDS_PER_UNASKED * ROUND_S
"""For each partition of a server so much passes until an idle one is asked though nobody looks."""

DEAF_MAX_S = ClientOptions().silence_limit_s * (1 + 3 / LOOKS_PER_SILENCE) + LOOK_INTERVAL_S
"""A connection of a client from which nothing can come any more is replaced within this time."""

_WALTZ = f"{Path(waltz.__file__).parent}{os.sep}"


class Watch:
    """Looks at the servers of a cluster."""

    def __init__(self, world: World, cluster: SimulatedCluster) -> None:
        self._world = world
        self._cluster = cluster
        self._idle_at_s: dict[ServerPartition, float] = {}
        """When each partition had nothing to do, or did something, the last time."""
        self._moved: dict[ServerPartition, tuple[StoreSession, list[int], float]] = {}
        """The session of each partition, how far each of its replicas has come, and when that changed."""
        self._answered_at_s: dict[tuple[int, int], dict[str, float]] = {}
        """For each partition and store session, when each storage answered a request of it the last time."""
        self._proved_at_s: dict[ServerPartition, float] = {}
        """When a quorum of storages had answered the session of each partition the last time."""
        self._deaf_at_s: dict[SimulatedTransport, float] = {}
        """When it was first seen of each connection to a server that nothing comes from there any more."""

    def proved(self, partition: ServerPartition) -> None:
        """A partition has committed something, or opened a session: a quorum of its replicas has confirmed that."""
        self._idle_at_s[partition] = self._world.loop.now_s
        self._last_answered_s(partition)  # the session may be over at the next look

    def answered(self, storage: str, partition_id: int, session_id: int) -> None:
        """A storage has answered a request of a store session: it knows of no newer one."""
        self._answered_at_s.setdefault((partition_id, session_id), {})[storage] = self._world.loop.now_s

    def look(self) -> None:
        """Look at all servers that run."""
        for host in self._cluster.servers:
            if host.server is not None and host.process is not None and host.running and not host.paused:
                host.process.context.copy().run(self._look_at, host)
        self._look_at_connections()
        self._look_at_links()
        self._world.loop.call_later(LOOK_INTERVAL_S, self.look, context=self._world.network.context)

    def _look_at_connections(self) -> None:
        """What a connection has taken and not sent is bounded by the limits of channels and of what is in flight."""
        options = self._world.options
        in_flight_bytes = (options.concurrent_transactions + LARGE_FACTOR) * 2 * options.data_size_bytes
        for transport in self._world.network.transports:
            channel = transport.get_protocol()
            if not isinstance(channel, Channel):
                continue
            to_storage = transport.addresses[1][1] == STORAGE_PORT
            limit_bytes = max(WRITE_HIGH_BYTES, options.window_size_bytes) if to_storage else MAX_UNSENT_BYTES
            if channel.unsent_bytes > limit_bytes + in_flight_bytes:
                self._world.fail(
                    f"{transport} keeps {channel.unsent_bytes} bytes that are not sent; its limit is "
                    f"{limit_bytes + in_flight_bytes}"
                )

    def _look_at_links(self) -> None:
        """A client replaces a connection on which a server's feed would come when that goes dead, whatever it asks."""
        now_s = self._world.loop.now_s
        for transport in self._world.network.transports:
            channel = transport.get_protocol()
            link = channel._handler if isinstance(channel, Channel) else None
            if not isinstance(link, ServerLink) or link.channel is not channel or not link._watched:
                continue
            if not transport.peer.blackholed or link._paused_by:
                self._deaf_at_s.pop(transport, None)
                continue
            deaf_at_s = max(self._deaf_at_s.setdefault(transport, now_s), transport.process.resumed_at_s)
            if channel.version < FIRST_WITH_ASSIGNMENT:
                # No question is answered at once there, so nothing is known until something has to be answered.
                if not link._silence.expecting:
                    continue
                deaf_at_s = max(deaf_at_s, link._silence._moved_at_s / transport.process.clock_rate)
            if (
                now_s - deaf_at_s > self._world.by_slow_clocks_s(DEAF_MAX_S)
                and transport.process.state is ProcessState.RUNNING
            ):
                self._world.fail(f"{link}, a client's, is dead for {now_s - deaf_at_s:.0f} s, and nobody replaces it")

    def owned(self) -> set[int]:
        """The partitions of which an owner has an open session and says that it is healthy."""
        found: set[int] = set()
        for host in self._cluster.servers:
            if host.server is not None and host.process is not None and host.running and not host.paused:
                found |= host.process.context.copy().run(_healthy_partitions, host)
        return found

    def _look_at(self, host: ServerHost) -> None:
        assert host.server is not None
        assert host.process is not None
        now_s = self._world.loop.now_s
        limit_bytes, limit_s = self._world.options.append_memory_bytes, self._world.options.standstill_max_s + PROOF_S
        waiting_bytes = 0
        for partition in host.server.partitions.values():
            self._look_at_session(host, partition)
            self._look_at_health(host, partition)
            waiting_bytes += partition._sequencer.size_bytes
            idle_at_s = max(self._idle_at_s.setdefault(partition, now_s), host.process.resumed_at_s)
            if not partition._undecided.count and not partition._sequencer.waiting_count:
                self._idle_at_s[partition] = now_s
            elif partition.healthy and now_s - idle_at_s > self._world.by_slow_clocks_s(limit_s):
                self._world.fail(
                    f"{host.name} says that partition {partition.partition_id} is healthy; it was given something and "
                    f"has proved nothing for {now_s - idle_at_s:.0f} s"
                )
        if limit_bytes and waiting_bytes > limit_bytes + MIN_SHARE_BYTES * len(host.server.partitions):
            self._world.fail(f"{host.name} keeps {waiting_bytes} bytes of appends; its limit is {limit_bytes}")

    def _look_at_session(self, host: ServerHost, partition: ServerPartition) -> None:
        """A session that makes no progress, and could be followed by one that does, has to end (rule L2)."""
        log = partition._log
        session = (log._session or log._opening) if isinstance(log, ReplicatedLog) else None
        if session is None or session.ended is not None or host.process is None:
            self._moved.pop(partition, None)
            return
        now_s = self._world.loop.now_s
        known, best, moved_s = self._moved.get(partition, (session, [], now_s))
        positions = [
            max(each.acked, NO_TRANSACTION if (mark := session.machine.mark(each.replica_id)) is None else mark)
            for each in session._members
        ]
        if known is session and best:
            positions = [max(pair) for pair in zip(positions, best, strict=True)]
        if session.ring is None:
            should_move = any(
                session.machine.is_barred(each.replica_id) and self._can_be_reached(host, each.storage)
                for each in session._members
            )
        else:
            should_move = bool(session.undecided_batches)
        if known is not session or positions != best or not should_move or host.process.resumed_at_s > moved_s:
            moved_s = now_s
        self._moved[partition] = session, positions, moved_s
        if now_s - moved_s > self._world.by_slow_clocks_s(self._world.options.standstill_max_s):
            self._world.fail(
                f"{host.name} keeps session {session.session_id} of partition {partition.partition_id}, in which "
                f"nothing has moved for {now_s - moved_s:.0f} s: {session.machine.describe()}"
            )

    def _look_at_health(self, host: ServerHost, partition: ServerPartition) -> None:
        """A healthy partition has committed or had its session confirmed lately, idle or not (rule L5).

        How a server finds that out is not asked: what counts is when a quorum of the storages answered its session.
        """
        log = partition._log
        if not isinstance(log, ReplicatedLog) or host.process is None:
            return
        limit_s = self._world.options.standstill_max_s + PROOF_S + ASKED_EVERY_S * self._world.options.partitions
        unproved_s = self._world.loop.now_s - max(self._last_answered_s(partition), host.process.resumed_at_s)
        if unproved_s > self._world.by_slow_clocks_s(limit_s) and _seen_healthy(log):
            self._world.fail(
                f"{host.name} says that partition {partition.partition_id} is healthy, and no quorum of its storages "
                f"has answered its session for {unproved_s:.0f} s"
            )

    def _last_answered_s(self, partition: ServerPartition) -> float:
        """When a quorum of the storages had answered an open session of the partition, as far as is known by now."""
        answered_s = self._proved_at_s.setdefault(partition, self._world.loop.now_s)
        session = partition._log._session if isinstance(partition._log, ReplicatedLog) else None
        if session is not None:
            answered_at_s = self._answered_at_s.get((partition.partition_id, session.session_id), {})
            latest_s = sorted(answered_at_s.values(), reverse=True)[: session._quorum]
            if len(latest_s) == session._quorum:
                answered_s = self._proved_at_s[partition] = max(answered_s, latest_s[-1])
        return answered_s

    def _can_be_reached(self, server: ServerHost, storage: str) -> bool:
        host = next((each for each in self._cluster.storages if each.connect_string == storage), None)
        network = self._world.network
        return (
            host is not None
            and host.up
            and not host.paused
            and not network.is_cut(server.name, host.name)
            and not network.is_cut(host.name, server.name)
        )


def _seen_healthy(log: ReplicatedLog) -> bool:
    """Whether the log is healthy, without the session being asked whether it is for the sake of this look."""
    session = log._session
    looked_at = session is not None and session._looked_at
    healthy = log.healthy
    if session is not None:
        session._looked_at = looked_at
    return healthy


def _healthy_partitions(host: ServerHost) -> set[int]:
    assert host.server is not None
    return {
        partition_id
        for partition_id, partition in host.server.partitions.items()
        if partition._sequencer.session_open and partition.healthy
    }


def left_behind(process: Process) -> list[str]:
    """Tasks, timers and sockets of the real code that a process has, which should have ended everything."""
    loop = process.loop
    left = [
        f"task {code.co_qualname}"
        for task in all_tasks(loop)
        if isinstance(task, SimulatedTask)
        and task.process is process
        and (code := getattr(task.get_coro(), "cr_code", None)) is not None
        and code.co_filename.startswith(_WALTZ)
    ]
    left += [
        f"timer {getattr(callback, '__qualname__', callback)}"
        for callback in loop.timers_of(process)
        if getattr(callback, "__module__", "").startswith("waltz.")
    ]
    left += [f"{resource!r}" for resource in process.resources.values() if "connection" in repr(resource)]
    return sorted(left)


def check_nothing_left(world: World, host: Host, process: Process) -> None:
    """A program that has ended in order has ended everything."""
    if left := left_behind(process):
        world.fail(f"{host.name} has ended and left behind: {', '.join(left[:10])}")


class Refusal(NamedTuple):
    """What a server knew when it refused a request because of a lock."""

    mark: int
    estimate: int


def channel_of(mount: Mount) -> Channel | None:
    """The connection to the server on which a partition is, or is to be, mounted."""
    return None if mount.link is None else mount.link.channel


class Loss(NamedTuple):
    """What made a client take an append for lost."""

    transaction_id: int
    channel: Channel | None
    """The connection that fed it."""


@contextlib.contextmanager
def lock_failures_are_told(fail: Callable[[str], None]) -> Iterator[None]:
    """A client takes an append for lost when a later one of its own comes in the feed. It must not hear of a lock
    failure of that append afterwards, if the server knew of it before it committed the later one (rule S4).

    A server knows from the moment at which it meets the conflict, also over a change of session; unless what the
    request conflicted with was not committed after all: then it begins anew. It can only see to the order on one
    connection: what is on its way there may be overtaken by what the partition's next owner feeds.
    """
    committed_as: dict[bytes, int] = {}
    committed_by: dict[ServerPartition, int] = {}
    refusals: dict[bytes, Refusal] = {}
    losses: dict[bytes, Loss] = {}
    mounts: dict[int, Mount] = {}
    seen_by_client, told_to_client = TransactionMonitor.committed, PartitionAppends.lock_failure
    seen_by_server, refused_by_server = ServerPartition.batch_committed, ServerPartition._conflict
    bound = PartitionAppends.bind

    def bind(appends: PartitionAppends, mount: Mount, feed: PartitionFeed) -> None:
        mounts[id(appends.monitor)] = mount
        bound(appends, mount, feed)

    def seen(monitor: "TransactionMonitor[object]", req_id: bytes) -> object:
        if req_id in monitor:
            for older in monitor._order:
                if older == req_id:
                    break
                if monitor.get(older) is not None:
                    losses[older] = Loss(committed_as.get(bytes(req_id), -1), channel_of(mounts[id(monitor)]))
        return seen_by_client(monitor, req_id)

    def told(appends: PartitionAppends, message: LockFailure) -> None:
        req_id = bytes(message.req_id)
        refusal, loss = refusals.get(req_id), losses.get(req_id)
        if (
            refusal is not None
            and loss is not None
            and refusal.mark < loss.transaction_id
            and loss.channel is channel_of(appends._mount)
        ):
            process = running_process()
            fail(
                f"{'-' if process is None else process.host} hears that a lock had changed after it took the append "
                f"for lost: {req_id.hex()}"
            )
        told_to_client(appends, message)

    def committed(partition: ServerPartition, appends: Sequence[Append], records: Sequence[bytes]) -> None:
        committed_as.update((bytes(append.req_id), append.transaction_id) for append in appends)
        committed_by[partition] = appends[-1].transaction_id
        seen_by_server(partition, appends, records)

    def refused(
        partition: ServerPartition, link: ClientLink, conflict: Conflict[AppendCall], write_session: int
    ) -> None:
        req_id = bytes(conflict.request.req_id)
        known = refusals.get(req_id)
        if known is None or known.estimate > committed_by.get(partition, -1):
            mark = partition.high_water_mark
            refusals[req_id] = Refusal(-1 if mark is None else mark, conflict.estimate)
        refused_by_server(partition, link, conflict, write_session)

    with (
        mock.patch.object(PartitionAppends, "bind", bind),
        mock.patch.object(TransactionMonitor, "committed", seen),
        mock.patch.object(PartitionAppends, "lock_failure", told),
        mock.patch.object(ServerPartition, "batch_committed", committed),
        mock.patch.object(ServerPartition, "_conflict", refused),
    ):
        yield


@contextlib.contextmanager
def registered_links_are_newest(fail: Callable[[str], None]) -> Iterator[None]:
    """Of the connections that a client opened to a server and on which it asked to mount a partition, the one counts
    there that was opened last, whatever order the mounts arrive in: the client has given up the others.

    Programs that have not joined the cluster share one client id, so nothing is known of their connections.
    """
    register = Registrations.register
    asked: dict[Registrations, dict[int | None, dict[ClientLink, None]]] = {}

    def registered(registrations: Registrations, link: ClientLink, generation: int, session_id: bytes) -> bool:
        counts = register(registrations, link, generation, session_id)
        if link.client_id == CLIENT_ID:
            return counts
        links = asked.setdefault(registrations, {}).setdefault(link.client_id, {})
        links[link] = None
        for closed in [each for each in links if each.channel.closed]:
            del links[closed]
        if link.client_id == CLIENT_ID:
            return counts  # that of whoever is no client: all of them have it
        newest = max(links, key=_opened_as, default=link)
        if not newest.channel.closed and not registrations.is_valid(newest):
            process = running_process()
            fail(
                f"{'-' if process is None else process.host} takes an older connection of client {link.client_id} "
                f"for the one that counts than {newest.channel.peer}, on which it asked for a mount, too"
            )
        return counts

    with mock.patch.object(Registrations, "register", registered):
        yield


def _opened_as(link: ClientLink) -> int:
    """Connections are numbered in the order in which they are opened."""
    assert isinstance(link.channel, Channel)
    assert isinstance(link.channel._transport, SimulatedTransport)
    return link.channel._transport.number
