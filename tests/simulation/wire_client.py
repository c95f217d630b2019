"""A client of write sessions that knows the messages and nothing else, and keeps no rules.

It shares no code with the client library but the codec. It sends appends under numbers that are over, or never were; it
fences and appends in one breath; it mounts at owners that are deposed; it hangs up before it is answered.
"""

import asyncio
import contextlib
import functools
from collections import defaultdict

from tests.simulation.application import DATA_PREFIX, hashes_of
from tests.simulation.checker import Attempt, Checker, Outcome, Submitted
from tests.simulation.cluster import SERVER_PORT, Host, ServerHost, SimulatedCluster, World
from tests.simulation.loop import Process
from tests.simulation.session_checks import SessionChecks
from waltz.client.locks import NO_LOCKS, PartitionLocalLock, lock_array
from waltz.common.errors import WaltzError
from waltz.common.ids import Endpoint, ReqId
from waltz.common.net.channel import Channel, connect
from waltz.common.wire.append_request import encode_append
from waltz.common.wire.client_server import (
    LockFailure,
    Message,
    MountRequest,
    decode_batch,
    encode,
)
from waltz.common.wire.frames import CLIENT_SERVER, Bounds
from waltz.common.wire.refused import NotAuthorized
from waltz.common.wire.version5 import AppendFailed
from waltz.common.wire.versions import FIRST_WITH_WRITE_SESSION
from waltz.common.wire.write_sessions import (
    NO_WRITE_SESSION,
    FenceOption,
    HeartbeatOption,
    HeartbeatRequest,
    HeartbeatResponse,
    LastTransactionIdRequest,
    LastTransactionIdResponse,
    LastTransactionStatus,
    SessionFenced,
)
from waltz.server.process.node import WaltzServer

FIRST_CLIENT_ID = 1 << 24
"""Above those that the cluster gives."""

OPERATOR_CLIENT_ID = FIRST_CLIENT_ID - 1

PATIENCE_S = 3.0

OPERATOR_PATIENCE_S = 10.0

_OLD_VERSIONS = (0, 2, 4)


class WireClientHost(Host):
    """Runs a client that keeps no rules; each run is a client of its own."""

    def __init__(
        self, world: World, number: int, checker: Checker, checks: SessionChecks, cluster: SimulatedCluster
    ) -> None:
        super().__init__(world, f"wire-{number}")
        self.checker = checker
        self.checks = checks
        self.cluster = cluster
        self.draw = world.random(self.name)
        self.outstanding: dict[bytes, Submitted] = {}
        self.numbers: defaultdict[int, list[int]] = defaultdict(list)
        """All numbers ever told, by partition."""
        self.own_numbers: dict[int, int] = {}
        """The number told last, by partition."""
        self.channels: list[Channel] = []
        """All connections of this run."""
        self._number = number
        self._asked_to_end = False
        self._silent = asyncio.Event()

    @property
    def client_id(self) -> int:
        """The client id of this run."""
        return FIRST_CLIENT_ID + 1_000 * self._number + self.runs

    @property
    def over(self) -> bool:
        """Whether it is time to leave the others alone."""
        return self._asked_to_end or self.world.loop.now_s >= self.world.options.duration_s - 1.0

    def start(self) -> None:
        if not self.running:
            self._asked_to_end, self._silent, self.channels = False, asyncio.Event(), []
        super().start()

    async def stop(self) -> None:
        """End the present conversation, and see the end of every connection."""
        self._asked_to_end = True
        await self._silent.wait()
        for channel in self.channels:
            await channel.close_within(PATIENCE_S)

    def crash(self, *, power_loss: bool) -> None:
        self.forget_outstanding()
        super().crash(power_loss=power_loss)

    def forget_outstanding(self) -> None:
        """Nobody will know what becomes of them."""
        for submitted in self.outstanding.values():
            submitted.outcome = Outcome.UNKNOWN
        self.outstanding.clear()

    async def program(self, process: Process) -> None:
        version = self.draw.choice(_OLD_VERSIONS) if self.draw.random() < 0.25 else FIRST_WITH_WRITE_SESSION
        self.world.trace.line(self.name, f"is client {self.client_id}, version {version}")
        seq_num = 0
        while not self.over:
            await asyncio.sleep(self.draw.choice((0.01, 0.1, 0.5)) * self.draw.random())
            partition_id = self.draw.randrange(self.world.options.partitions)
            owners = [host for host in self.cluster.servers if _generation(host.server, partition_id) is not None]
            if owners:
                seq_num += 1
                conversation = Conversation(self, partition_id, seq_num)
                with contextlib.suppress(WaltzError):
                    await conversation.hold(self.draw.choice(owners), version)
        self.forget_outstanding()
        self._silent.set()
        await asyncio.Event().wait()


def _generation(server: WaltzServer | None, partition_id: int) -> int | None:
    """The generation under which a server owns a partition; None if it does not."""
    partition = None if server is None else server.partitions.get(partition_id)
    return None if partition is None else partition.generation


class Wire:
    """One connection to a server, for requests to one partition; handler of its channel."""

    def __init__(self, partition_id: int, client_id: int, first_seq_num: int, checks: SessionChecks) -> None:
        self.partition_id = partition_id
        self.client_id = client_id
        self.generation = -1
        self._seq_num = first_seq_num
        self._checks = checks
        self._answers: dict[bytes, asyncio.Future[Message]] = {}

    async def connect(self, server: ServerHost, version: int) -> Channel:
        """Connect; raises ``ConnectFailedError``."""
        self.generation = _generation(server.server, self.partition_id) or 0
        family = CLIENT_SERVER._replace(versions=tuple(range(version + 1)))
        return await connect(
            Endpoint(server.name, SERVER_PORT), family, "wire client", self, tls=None, timeout_s=PATIENCE_S
        )

    def next_req_id(self) -> bytes:
        """Another request of this client and partition."""
        self._seq_num += 1
        return bytes(ReqId.of(self.client_id, self.generation, self.partition_id, self._seq_num))

    def send(self, channel: Channel, request: Message) -> asyncio.Future[Message]:
        """Send a request; what is answered."""
        req_id = bytes(request.req_id)
        waiter = self._answers[req_id] = asyncio.get_running_loop().create_future()
        if channel.closed:
            waiter.cancel()
            return waiter
        channel.send(encode(request, channel.version))
        if isinstance(request, LastTransactionIdRequest) and FenceOption.FENCE in request.fence:
            waiter.add_done_callback(functools.partial(self._fence_answered, request.expected_session))
        return waiter

    def heard(self, message: Message) -> None:
        """A message has come."""
        waiter = self._answers.get(bytes(message.req_id))
        if waiter is not None and not waiter.done():
            waiter.set_result(message)

    def _fence_answered(self, expected: int, waiter: asyncio.Future[Message]) -> None:
        answer = None if waiter.cancelled() else waiter.result()
        if isinstance(answer, LastTransactionIdResponse) and answer.last_transaction_status is LastTransactionStatus.OK:
            who = str(ReqId(answer.req_id))
            self._checks.fenced(self.partition_id, answer.transaction_id, answer.write_session, who, expected)

    # What the channel tells

    def channel_ready(self, channel: Channel) -> None:
        """See the channel."""

    def channel_writable(self, channel: Channel) -> None:
        """See the channel."""

    def channel_closed(self, channel: Channel, error: Exception | None) -> None:
        """Nobody answers any more."""
        for waiter in self._answers.values():
            waiter.cancel()

    def frames_received(self, channel: Channel, buffer: bytes, bounds: Bounds) -> None:
        """See the channel."""
        for message in decode_batch(buffer, bounds, channel.version):
            self.heard(message)


async def fence(cluster: SimulatedCluster, checks: SessionChecks, partition_id: int, attempt: int) -> None:
    """Begin a write session that nobody holds alone, as an operator does; nothing happens where that fails."""
    for server in cluster.servers:
        if _generation(server.server, partition_id) is not None:
            wire = Wire(partition_id, OPERATOR_CLIENT_ID, attempt, checks)
            with contextlib.suppress(WaltzError):
                channel = await wire.connect(server, FIRST_WITH_WRITE_SESSION)
                request = LastTransactionIdRequest(wire.next_req_id(), FenceOption.FENCE, NO_WRITE_SESSION)
                await asyncio.wait([wire.send(channel, request)], timeout=OPERATOR_PATIENCE_S)
                channel.close()


class Conversation(Wire):
    """The messages of a client that keeps no rules, on one connection."""

    def __init__(self, host: WireClientHost, partition_id: int, connection_number: int) -> None:
        super().__init__(partition_id, host.client_id, connection_number * 10_000, host.checks)
        self._host = host
        self._draw = host.draw
        self._connection_number = connection_number
        self._known = host.numbers[partition_id]
        self._locks: list[PartitionLocalLock] = []
        """Of the appends of one breath: all but the first fail, as soon as that is decided."""

    async def hold(self, server: ServerHost, version: int) -> None:
        """Connect, mount, say this and that, and hang up."""
        host = self._host
        channel = await self.connect(server, version)
        host.channels.append(channel)
        try:
            mark = len(host.checker.log[self.partition_id]) - 1
            mount = self.send(channel, MountRequest(self.next_req_id(), mark, self._connection_number))
            await asyncio.wait([mount], timeout=PATIENCE_S)
            if channel.version >= FIRST_WITH_WRITE_SESSION and self._draw.random() < 0.7:
                await asyncio.wait([self.send(channel, self._heartbeat())], timeout=PATIENCE_S)
            for _ in range(self._draw.choice((1, 3, 10))):
                if host.over or channel.closed:
                    return
                await self._speak(channel)
                await asyncio.sleep(self._draw.choice((0.0, 0.005, 0.05, 0.5)) * self._draw.random())
        finally:
            channel.close()

    async def _speak(self, channel: Channel) -> None:
        """One breath: several requests, of which perhaps none is waited for."""
        waits: list[asyncio.Future[Message]] = []
        self._locks = [PartitionLocalLock("account", 0)] if self._draw.random() < 0.3 else []
        for _ in range(self._draw.choice((1, 1, 2, 4, 8))):
            if channel.version < FIRST_WITH_WRITE_SESSION or self._draw.random() < 0.6:
                self._append(channel)
            elif self._draw.random() < 0.5:
                waits.append(self.send(channel, self._heartbeat()))
            else:
                waits.append(self.send(channel, self._last()))
        if waits and self._draw.random() < 0.9:
            await asyncio.wait(waits, timeout=PATIENCE_S)
        if self._draw.random() < 0.05:
            channel.abort()

    def _append(self, channel: Channel) -> None:
        host = self._host
        if channel.closed:
            return
        submitted = host.checker.submit(host.name, self.partition_id)
        mark = len(host.checker.log[self.partition_id]) - 1
        data = DATA_PREFIX.pack(submitted.number, 0) + self._draw.randbytes(self._draw.randint(0, 100))
        attempt = Attempt(host.name, self.partition_id, mark, hashes_of(self._locks), (), (), data)
        host.checker.attempted(submitted, attempt, mark)
        req_id = self.next_req_id()
        number = self._some_number() if channel.version >= FIRST_WITH_WRITE_SESSION else NO_WRITE_SESSION
        host.outstanding[req_id] = submitted
        host.checks.carried(req_id, number)
        locks = (lock_array(self._locks), NO_LOCKS, NO_LOCKS)
        channel.send(encode_append(channel.version, req_id, mark, *locks, submitted.number, data, number))

    def _some_number(self) -> int:
        """Mostly its own; else one that is over, one that it was not given, one that is to come, or none."""
        kind = self._draw.random()
        if kind < 0.6:
            return self._host.own_numbers.get(self.partition_id, NO_WRITE_SESSION)
        if kind < 0.7 or not self._known:
            return NO_WRITE_SESSION
        return self._draw.choice(self._known[-4:]) + (kind > 0.95)

    def _heartbeat(self) -> HeartbeatRequest:
        exclusive = HeartbeatOption.EXCLUSIVE if self._draw.random() < 0.2 else HeartbeatOption(0)
        options = (HeartbeatOption.GET_SESSION | exclusive, HeartbeatOption.MARK_FOR_READERS)
        return HeartbeatRequest(self.next_req_id(), options[self._draw.random() < 0.1])

    def _last(self) -> LastTransactionIdRequest:
        options = FenceOption.FENCE if self._draw.random() < 0.8 else FenceOption(0)
        if self._draw.random() < 0.2:
            options |= FenceOption.EXCLUSIVE
        expected = NO_WRITE_SESSION if self._draw.random() < 0.7 else self._some_number()
        return LastTransactionIdRequest(self.next_req_id(), options, expected)

    def heard(self, message: Message) -> None:
        """Take numbers, and the ends of appends; the feed is of no interest."""
        if isinstance(message, SessionFenced):
            self._known.append(message.write_session)
            self._ended(message.req_id, "fenced")
        elif isinstance(message, LockFailure):
            if submitted := self._host.outstanding.get(bytes(message.req_id)):
                self._host.checker.lock_failure(self._host.name, submitted, message.transaction_id)
            self._ended(message.req_id, "lock")
        elif isinstance(message, AppendFailed):
            self._ended(message.req_id, message.reason.name)
        elif isinstance(message, NotAuthorized):
            self._ended(message.req_id, "no right")
        elif (
            isinstance(message, HeartbeatResponse | LastTransactionIdResponse)
            and message.write_session != NO_WRITE_SESSION
        ):
            self._host.own_numbers[self.partition_id] = message.write_session
            self._known.append(message.write_session)
        super().heard(message)

    def _ended(self, req_id: bytes, reason: str) -> None:
        submitted = self._host.outstanding.pop(bytes(req_id), None)
        if submitted is not None:
            self._host.checker.decided(submitted, Outcome.FAILED, reason)
