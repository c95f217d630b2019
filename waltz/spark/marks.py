"""Committed high-water marks, asked of the servers that own the partitions.

First half of rule S6 (bulk readers bound first, choose after): only the owner knows what is committed; what lies on a
storage above that mark may still be truncated.
"""

import asyncio
import random
import ssl
from collections.abc import Iterable, Sequence

from waltz.common.errors import ConnectFailedError, ConnectionClosedError, WaltzError
from waltz.common.ids import NO_TRANSACTION, Endpoint, ReqId
from waltz.common.net.backoff import Backoff
from waltz.common.net.channel import Channel, connect
from waltz.common.wire import client_server as wire
from waltz.common.wire.frames import CLIENT_SERVER, Bounds
from waltz.common.zk.client import ZooKeeper
from waltz.common.zk.store_admin import read_partition_assignment, read_server_descriptors, sync_cluster
from waltz.common.zk.znodes import PartitionGeneration
from waltz.spark.errors import PlanningError

HELLO_TEXT = "Waltz Spark Reader"
ATTEMPT_TIMEOUT_S = 5.0
"""How long one server may take to accept a connection and answer; then its partitions are asked for again."""

INITIAL_DELAY_S = 0.1
MAXIMUM_DELAY_S = 2.0

TOOL_CLIENT_ID = -1


async def read_committed_marks(
    zookeeper: ZooKeeper, root: str, partition_ids: Iterable[int], *, tls: ssl.SSLContext | None, deadline_s: float
) -> dict[int, int]:
    """The committed high-water mark of every partition; -1 for an empty one.

    Raises ``PlanningError`` that says why the mark of a partition was not to be had until ``deadline_s`` (time of the
    loop), and ``WaltzError`` of ZooKeeper.
    """
    began_s = asyncio.get_running_loop().time()
    marks, reasons = await ask_committed_marks(zookeeper, root, partition_ids, tls=tls, deadline_s=deadline_s)
    if reasons:
        raise _not_known(reasons, deadline_s - began_s)
    return marks


async def ask_committed_marks(
    zookeeper: ZooKeeper, root: str, partition_ids: Iterable[int], *, tls: ssl.SSLContext | None, deadline_s: float
) -> tuple[dict[int, int], dict[int, str]]:
    """The marks that are to be had until ``deadline_s``, and for the other partitions the reason why they are not.

    Everything whose commit anybody was told before the call is up to the marks: whoever owned the partition then is in
    the assignment by now, or was replaced by somebody who is, and a server tells no mark of an older assignment than it
    is asked by. (A server of the original may, for a moment after it has lost a partition and got it back.)

    A server that has just taken a partition over may not know the mark yet, and an owner may change while it is asked:
    then the assignment is read again and the new owner asked. Raises ``WaltzError`` of ZooKeeper.
    """
    loop = asyncio.get_running_loop()
    backoff = Backoff(INITIAL_DELAY_S, MAXIMUM_DELAY_S, random.Random())
    missing = set(partition_ids)
    if missing:
        await sync_cluster(zookeeper, root)
    marks: dict[int, int] = {}
    reasons: dict[int, str] = {}
    while missing:
        reasons = await _ask_owners(zookeeper, root, missing, marks, tls, deadline_s)
        missing -= marks.keys()
        delay_s = backoff.next_delay_s()
        if not missing or loop.time() + delay_s >= deadline_s:
            break
        await asyncio.sleep(delay_s)
        if loop.time() >= deadline_s:
            break  # the loop was late; an attempt without any time would only hide the true reason
    return marks, {partition_id: reasons[partition_id] for partition_id in sorted(missing)}


def _not_known(reasons: dict[int, str], waited_s: float) -> PlanningError:
    partition_id = min(reasons)
    others = f" (and of {len(reasons) - 1} more partitions)" if len(reasons) > 1 else ""
    return PlanningError(
        f"the high-water mark of partition {partition_id}{others} was not to be had "
        f"within {waited_s:.3g} s: {reasons[partition_id]}"
    )


async def _ask_owners(
    zookeeper: ZooKeeper,
    root: str,
    missing: set[int],
    marks: dict[int, int],
    tls: ssl.SSLContext | None,
    deadline_s: float,
) -> dict[int, str]:
    """Ask every owner once, side by side; add to ``marks``, and say why the rest is missing."""
    assignment = await read_partition_assignment(zookeeper, root)
    endpoints = {server.server_id: server.endpoint for server in await read_server_descriptors(zookeeper, root)}
    reasons = dict.fromkeys(missing, "no server owns it; is a server running?")
    async with asyncio.TaskGroup() as group:
        for server_id, owned in assignment.servers.items():
            wanted = [item for item in owned if item.partition_id in missing]
            endpoint = endpoints.get(server_id)
            if endpoint is None:
                text = f"its owner, server {server_id}, is gone"
                reasons.update({item.partition_id: text for item in wanted})
            elif wanted:
                group.create_task(_ask_owner(endpoint, wanted, marks, reasons, tls, deadline_s))
    return reasons


async def _ask_owner(
    endpoint: Endpoint,
    wanted: Sequence[PartitionGeneration],
    marks: dict[int, int],
    reasons: dict[int, str],
    tls: ssl.SSLContext | None,
    deadline_s: float,
) -> None:
    """Ask one server for all marks it should know; never raises for what the server does."""
    timeout_s = max(0.001, min(ATTEMPT_TIMEOUT_S, deadline_s - asyncio.get_running_loop().time()))
    question = _Question(wanted)
    channel: Channel | None = None
    failure = f"its owner {endpoint} did not answer within {timeout_s:g} s"
    try:
        async with asyncio.timeout(timeout_s):
            channel = await connect(endpoint, CLIENT_SERVER, HELLO_TEXT, question, tls=tls, timeout_s=timeout_s)
            await question.answered.wait()
        if question.closed is not None:
            failure = f"its owner {endpoint}: {question.closed}"
    except TimeoutError:
        pass
    except ConnectFailedError as error:
        failure = f"its owner: {error}"
    finally:
        if channel is not None:
            channel.close()
            await channel.wait_closed()
    for partition_id, _ in wanted:
        mark = question.marks.get(partition_id)
        if mark is None:
            reasons[partition_id] = failure
        elif mark < NO_TRANSACTION:
            reasons[partition_id] = f"its owner {endpoint} does not know it yet"
        else:
            marks[partition_id] = mark


class _Question:
    """One connection's requests and answers; a ``ChannelHandler``."""

    def __init__(self, wanted: Sequence[PartitionGeneration]) -> None:
        self.marks: dict[int, int] = {}
        self.answered = asyncio.Event()
        """Set when every answer came or none will come any more."""
        self.closed: WaltzError | None = None
        self._open = {
            bytes(ReqId.of(TOOL_CLIENT_ID, generation, partition_id, number)): partition_id
            for number, (partition_id, generation) in enumerate(wanted)
        }

    def channel_ready(self, channel: Channel) -> None:
        """Part of ``ChannelHandler``."""
        for req_id in self._open:
            channel.send(wire.encode(wire.HighWaterMarkRequest(req_id), channel.version))

    def frames_received(self, channel: Channel, buffer: bytes, bounds: Bounds) -> None:
        """Part of ``ChannelHandler``."""
        for message in wire.decode_batch(buffer, bounds, channel.version):
            if isinstance(message, wire.HighWaterMarkResponse):
                partition_id = self._open.pop(bytes(message.req_id), None)
                if partition_id is not None:
                    self.marks[partition_id] = message.transaction_id
        if not self._open:
            self.answered.set()

    def channel_writable(self, channel: Channel) -> None:
        """Part of ``ChannelHandler``."""

    def channel_closed(self, channel: Channel, error: Exception | None) -> None:
        """Part of ``ChannelHandler``."""
        if self._open:
            self.closed = ConnectionClosedError(f"closed the connection{f' ({error})' if error else ''}")
        self.answered.set()
