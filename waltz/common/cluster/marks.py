"""Committed high-water marks, asked of the servers that own the partitions.

First half of rule S6 (bulk readers bound first, choose after): only the owner knows what is committed; what lies on a
storage above that mark may still be truncated. The second half is :mod:`waltz.common.cluster.replicas`.
"""

import asyncio
import random
import ssl
from collections.abc import Iterable, Mapping

from waltz.common.cluster.owners import RETRY_INITIAL_S, RETRY_MAXIMUM_S, Answer, Owner, OwnerConnection, read_owners
from waltz.common.errors import ConnectFailedError, ConnectionClosedError, ProtocolError, WaltzError
from waltz.common.ids import NO_TRANSACTION, Endpoint
from waltz.common.net.backoff import Backoff
from waltz.common.wire.client_server import HighWaterMarkRequest, HighWaterMarkResponse
from waltz.common.zk.client import ZooKeeper
from waltz.common.zk.store_admin import sync_cluster

ATTEMPT_TIMEOUT_S = 5.0
"""How long one server may take to accept a connection and answer; then its partitions are asked for again."""


class MarkUnknownError(WaltzError):
    """No server told a partition's committed high-water mark in time; the text says why."""


async def read_committed_marks(
    zookeeper: ZooKeeper, root: str, partition_ids: Iterable[int], *, tls: ssl.SSLContext | None, deadline_s: float
) -> dict[int, int]:
    """The committed high-water mark of every partition; -1 for an empty one.

    Raises ``MarkUnknownError`` when a mark is still missing at ``deadline_s`` (time of the loop), and ``WaltzError`` of
    ZooKeeper.
    """
    began_s = asyncio.get_running_loop().time()
    marks, reasons = await ask_committed_marks(zookeeper, root, partition_ids, tls=tls, deadline_s=deadline_s)
    if reasons:
        raise _unknown(reasons, deadline_s - began_s)
    return marks


async def ask_committed_marks(
    zookeeper: ZooKeeper, root: str, partition_ids: Iterable[int], *, tls: ssl.SSLContext | None, deadline_s: float
) -> tuple[dict[int, int], dict[int, str]]:
    """The marks that servers tell until ``deadline_s``, and why those of the other partitions are missing.

    The marks cover everything whose commit anybody was told of before the call: whoever owned the partition then is in
    the assignment by now, or was replaced by a server that is, and a server tells no mark of an older assignment than
    the question's. (A server of the original may, for a moment after it has lost a partition and got it back.)

    A server that has just taken a partition over may not know the mark yet, and an owner may change while it is asked:
    then the assignment is read again and the new owner asked. Raises ``WaltzError`` of ZooKeeper.
    """
    loop = asyncio.get_running_loop()
    backoff = Backoff(RETRY_INITIAL_S, RETRY_MAXIMUM_S, random.Random())
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


def _unknown(reasons: dict[int, str], waited_s: float) -> MarkUnknownError:
    partition_id = min(reasons)
    others = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return MarkUnknownError(
        f"no server told the high-water mark of partition {partition_id}{others} "
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
    reasons = dict.fromkeys(missing, "no server owns it; is a server running?")
    owners = await read_owners(zookeeper, root)
    wanted: dict[Endpoint, dict[int, Owner]] = {}
    for partition_id, owner in owners.items():
        if partition_id in missing:
            if owner.endpoint is None:
                reasons[partition_id] = f"its owner, server {owner.server_id}, is gone"
            else:
                wanted.setdefault(owner.endpoint, {})[partition_id] = owner
    async with asyncio.TaskGroup() as group:
        for endpoint, owned in wanted.items():
            group.create_task(_ask_owner(endpoint, owned, marks, reasons, tls, deadline_s))
    return reasons


async def _ask_owner(
    endpoint: Endpoint,
    wanted: Mapping[int, Owner],
    marks: dict[int, int],
    reasons: dict[int, str],
    tls: ssl.SSLContext | None,
    deadline_s: float,
) -> None:
    """Ask one server for all marks it should know; never raises for what the server does."""
    loop = asyncio.get_running_loop()
    timeout_s = max(0.001, min(ATTEMPT_TIMEOUT_S, deadline_s - loop.time()))
    give_up_s = loop.time() + timeout_s
    reasons.update(dict.fromkeys(wanted, f"its owner {endpoint} did not answer within {timeout_s:g} s"))
    try:
        connection = await OwnerConnection.open(endpoint, tls=tls, timeout_s=timeout_s)
    except ConnectFailedError as error:
        reasons.update(dict.fromkeys(wanted, f"its owner: {error}"))
        return
    try:
        answers = {
            partition_id: connection.send(partition_id, owner.generation, HighWaterMarkRequest)
            for partition_id, owner in wanted.items()
        }
        await asyncio.wait(answers.values(), timeout=give_up_s - loop.time())
        for partition_id, answer in answers.items():
            if answer.cancel():
                continue
            try:
                mark = _mark(answer.result())
            except WaltzError as error:
                reasons[partition_id] = f"its owner: {error}"
            else:
                if mark < NO_TRANSACTION:
                    reasons[partition_id] = f"its owner {endpoint} does not know it yet"
                else:
                    marks[partition_id] = mark
    except ConnectionClosedError as error:
        reasons.update(dict.fromkeys(wanted, f"its owner: {error}"))
    finally:
        await connection.close()


def _mark(answer: Answer) -> int:
    message = answer.decode()
    if not isinstance(message, HighWaterMarkResponse):
        raise ProtocolError(f"{type(message).__name__} came in answer to the question for a high-water mark")
    return message.transaction_id
