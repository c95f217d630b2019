"""Reads committed high-water marks from the owners of the partitions.

The first half of rule S6 (bulk readers first read the mark, then choose a replica): only the owner knows the committed
mark, and records on a storage above that mark may still be truncated. The second half is
:mod:`waltz.common.cluster.replicas`.
"""

import asyncio
import operator
import random
import ssl
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from waltz.common.cluster.handle import ClusterHandle
from waltz.common.cluster.owners import RETRY_INITIAL_S, RETRY_MAXIMUM_S, Answer, Owner, OwnerConnection, read_owners
from waltz.common.errors import ConnectFailedError, ConnectionClosedError, ProtocolError, WaltzError
from waltz.common.ids import LONG_MIN, NO_TRANSACTION, Endpoint, ReqId
from waltz.common.net.backoff import Backoff
from waltz.common.polling import poll_until
from waltz.common.wire.client_server import HighWaterMarkRequest, HighWaterMarkResponse, Message
from waltz.common.wire.client_times import TimeRequest, TimeResponse, TimeStatus
from waltz.common.wire.storage_times import TimeQuestion
from waltz.common.wire.versions import FIRST_WITH_TIME
from waltz.common.zk.store_admin import sync_cluster

ATTEMPT_TIMEOUT_S = 5.0
"""Time limit of the connection to one server and its answer. Then the questions for its partitions are repeated."""


class MarkUnknownError(WaltzError):
    """No server has reported the committed high-water mark of a partition in time. The text has the reason."""


class _TimesUnknownError(WaltzError):
    """No storage keeps the times of the partition's commits, so a repeat is of no use."""


async def read_committed_marks(
    cluster: ClusterHandle, partition_ids: Iterable[int], *, deadline_s: float, time_ms: int | None = None
) -> dict[int, int]:
    """The committed high-water mark of every partition; -1 for an empty one.

    With ``time_ms``, in milliseconds since the epoch: the last transaction that was committed by that time, as far as
    is known. Raises ``MarkUnknownError`` when a mark is still missing at ``deadline_s`` (time of the loop), or
    immediately when it cannot be known; and ``WaltzError`` of ZooKeeper.
    """
    began_s = asyncio.get_running_loop().time()
    marks, reasons = await ask_committed_marks(cluster, partition_ids, deadline_s=deadline_s, time_ms=time_ms)
    if reasons:
        waited_s = deadline_s - began_s
        what, limit = ("high-water mark", f" within {waited_s:.3g} s") if time_ms is None else ("times", "")
        raise _unknown(reasons, what, limit)
    return marks


async def ask_committed_marks(
    cluster: ClusterHandle, partition_ids: Iterable[int], *, deadline_s: float, time_ms: int | None = None
) -> tuple[dict[int, int], dict[int, str]]:
    """The marks that servers report until ``deadline_s``, and the reasons for missing marks.

    The marks cover every commit that was reported to any process before the call. The owner at that time is in the
    assignment now, or was replaced by a server in the assignment, and a server never reports a mark of an older
    assignment than that of the question. (A server of the original may do so for a moment, after it has lost a
    partition and got it back.)

    A server that has just taken over a partition may not know the mark yet, and an owner may change during a question.
    Then the assignment is read again, and the new owner is asked. Raises ``WaltzError`` of ZooKeeper. ``time_ms`` as
    for :func:`read_committed_marks`.
    """
    backoff = Backoff(RETRY_INITIAL_S, RETRY_MAXIMUM_S, random.Random())
    missing = set(partition_ids)
    marks: dict[int, int] = {}
    reasons: dict[int, str] = {}
    hopeless: set[int] = set()

    async def ask() -> set[int]:
        await _ask_owners(cluster, missing, _Round(marks, reasons, hopeless, deadline_s, time_ms))
        missing.difference_update(marks)
        return missing - hopeless

    if missing:
        await sync_cluster(cluster.zookeeper, cluster.root)
        await poll_until(ask, operator.not_, deadline_s=deadline_s, next_delay_s=backoff.next_delay_s)
    return marks, {partition_id: reasons[partition_id] for partition_id in sorted(missing)}


def _unknown(reasons: dict[int, str], what: str, limit: str) -> MarkUnknownError:
    partition_id = min(reasons)
    others = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return MarkUnknownError(
        f"no server told the {what} of partition {partition_id}{others}{limit}: {reasons[partition_id]}"
    )


class _Round(NamedTuple):
    """The questions to all owners, and the answers so far."""

    marks: dict[int, int]
    reasons: dict[int, str]
    """The reasons for missing marks, by partition."""
    hopeless: set[int]
    """The partitions without need for another question."""
    deadline_s: float
    time_ms: int | None

    def request(self, req_id: ReqId) -> Message:
        """The question for one partition."""
        if self.time_ms is None:
            return HighWaterMarkRequest(req_id)
        return TimeRequest(req_id, TimeQuestion.LAST_AT, self.time_ms)


async def _ask_owners(cluster: ClusterHandle, missing: set[int], asked: _Round) -> None:
    """Ask every owner once, in parallel. Adds to the marks, and updates the reasons for missing marks."""
    reasons = asked.reasons
    owners = await read_owners(cluster.zookeeper, cluster.root)
    wanted: dict[Endpoint, dict[int, Owner]] = {}
    for partition_id, owner in owners.items():
        if partition_id in missing:
            if owner.endpoint is None:
                reasons[partition_id] = f"its owner, server {owner.server_id}, is gone"
            else:
                wanted.setdefault(owner.endpoint, {})[partition_id] = owner
    reasons.update(dict.fromkeys(missing - owners.keys(), "no server owns it; is a server running?"))
    async with asyncio.TaskGroup() as group:
        for endpoint, owned in wanted.items():
            group.create_task(_ask_owner(endpoint, owned, asked, cluster.tls))


async def _ask_owner(
    endpoint: Endpoint, wanted: Mapping[int, Owner], asked: _Round, tls: ssl.SSLContext | None
) -> None:
    """Ask one server for the marks of all its partitions. Errors of the server are not raised.

    If the deadline ends this attempt, the reason of an earlier attempt stays, because it has more information.
    """
    loop = asyncio.get_running_loop()
    reasons = asked.reasons
    timeout_s = max(0.001, min(ATTEMPT_TIMEOUT_S, asked.deadline_s - loop.time()))
    give_up_s = loop.time() + timeout_s
    is_cut_off = timeout_s < ATTEMPT_TIMEOUT_S

    def set_late_reason(partition_id: int, reason: str) -> None:
        if not (is_cut_off and partition_id in reasons):
            reasons[partition_id] = reason

    try:
        connection = await OwnerConnection.open(endpoint, tls=tls, timeout_s=timeout_s)
    except ConnectFailedError as error:
        is_late = loop.time() >= give_up_s
        for partition_id in wanted:
            if is_late:
                set_late_reason(partition_id, f"its owner: {error}")
            else:
                reasons[partition_id] = f"its owner: {error}"
        return
    try:
        if asked.time_ms is not None and connection.channel.version < FIRST_WITH_TIME:
            reasons.update(dict.fromkeys(wanted, f"its owner {endpoint} is too old to tell the times of commits"))
            asked.hopeless.update(wanted)
            return
        answers = {
            partition_id: connection.send(partition_id, owner.generation, asked.request)
            for partition_id, owner in wanted.items()
        }
        await asyncio.wait(answers.values(), timeout=give_up_s - loop.time())
        for partition_id, answer in answers.items():
            if answer.cancel():
                set_late_reason(partition_id, f"its owner {endpoint} did not answer within {timeout_s:g} s")
                continue
            try:
                mark = _mark(answer.result())
            except _TimesUnknownError as error:
                reasons[partition_id] = str(error)
                asked.hopeless.add(partition_id)
            except WaltzError as error:
                reasons[partition_id] = f"its owner: {error}"
            else:
                if mark < NO_TRANSACTION:
                    reasons[partition_id] = f"its owner {endpoint} does not know it yet"
                else:
                    asked.marks[partition_id] = mark
    except ConnectionClosedError as error:
        reasons.update(dict.fromkeys(wanted, f"its owner: {error}"))
    finally:
        await connection.close()


def _mark(answer: Answer) -> int:
    message = answer.decode()
    if isinstance(message, TimeResponse):
        if message.time_status is TimeStatus.NOT_KEPT:
            raise _TimesUnknownError("none of its storages keeps the times of commits: all are the original's")
        return message.transaction_id if message.time_status is TimeStatus.OK else LONG_MIN
    if not isinstance(message, HighWaterMarkResponse):
        raise ProtocolError(f"{type(message).__name__} came in answer to the question for a high-water mark")
    return message.transaction_id
