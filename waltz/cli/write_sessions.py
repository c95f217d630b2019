"""``waltz session``: who may write to partitions, and how an operator puts an end to what older writers have sent."""

import argparse
import asyncio
import ssl
from collections.abc import Mapping
from typing import NamedTuple

from waltz.cli.output import show
from waltz.cli.server_metrics import SessionMetrics, add_http_option, read_metrics
from waltz.cli.session import Nouns, Session, cluster_command, noun, number, partition_ranges
from waltz.common.cluster.owners import Owner, OwnerConnection, read_owners
from waltz.common.errors import ConnectFailedError, ProtocolError, WaltzError
from waltz.common.ids import Endpoint, ReqId
from waltz.common.metrics.registry import Json
from waltz.common.wire.versions import FIRST_WITH_WRITE_SESSION
from waltz.common.wire.write_sessions import (
    NO_WRITE_SESSION,
    FenceOption,
    LastTransactionIdRequest,
    LastTransactionIdResponse,
    LastTransactionStatus,
)
from waltz.common.zk.client import ZooKeeper
from waltz.common.zk.store_admin import read_partition_metadata, read_store_params, sync_cluster

CONNECT_TIMEOUT_S = 10.0
"""Also for metrics."""

ANSWER_TIMEOUT_S = 15.0
"""A server that is well answers within 10 s, even if it cannot do what it is asked for."""


class Told(NamedTuple):
    """What the owner of a partition has told of its write session."""

    version: int
    """Of the protocol."""
    number: int | None
    """None where the server knows no write sessions."""
    last_transaction_id: int
    """The last committed one; -1 if there is none or the server knows no write sessions."""


def register(nouns: Nouns) -> None:
    """Add the noun and its verbs."""
    verbs = noun(nouns, "session", "write sessions: look at them, raise them")
    parser = cluster_command(
        verbs, "show", "print the write session of partitions, and who owns them", _show, prints=True
    )
    parser.add_argument("-p", "--partition", type=partition_ranges, help="e.g. 0-6,7,10-16 (default: all)")
    add_http_option(parser, "holders of exclusive sessions, fences and refused appends are read there")
    help_text = "raise the write session of a partition: whoever holds an older one can add nothing from then on"
    parser = cluster_command(verbs, "fence", help_text, _fence, prints=True)
    parser.add_argument("-p", "--partition", type=number(minimum=0), required=True)
    safeguard = parser.add_mutually_exclusive_group(required=True)
    safeguard.add_argument(
        "--if-session",
        type=number(minimum=1),
        metavar="W",
        help="the present number, as a safeguard: nothing is raised if there is another one meanwhile",
    )
    safeguard.add_argument("-f", "--force", action="store_true", help="raise it whatever the present number is")


async def _show(options: argparse.Namespace, session: Session) -> None:
    zookeeper, root = session.zookeeper, session.root
    await sync_cluster(zookeeper, root)
    count = (await read_store_params(zookeeper, root)).partition_count
    wanted = range(count) if options.partition is None else options.partition
    if unknown := [partition_id for partition_id in wanted if partition_id >= count]:
        raise _no_partition(unknown[0], count)
    owners = await read_owners(zookeeper, root)
    told = await ask_owners({each: owners[each] for each in wanted if each in owners}, session.tls)
    servers = sorted({owner.endpoint for owner in owners.values() if owner.endpoint is not None})
    metrics, unread = await read_metrics(options.http, servers, CONNECT_TIMEOUT_S)
    document: list[Json] = []
    lines = []
    for partition_id in wanted:
        owner = owners.get(partition_id)
        seen = metrics.get(owner.endpoint) if owner is not None and owner.endpoint is not None else None
        session_metrics = None if seen is None else seen.sessions.get(partition_id)
        store_session = await _store_session(zookeeper, root, partition_id)
        answer = told.get(partition_id, "no server owns it")
        lines.append(describe(partition_id, owner, store_session, answer, session_metrics))
        document.append(_document(partition_id, owner, store_session, answer, session_metrics))
    lines += [f"the metrics at {address} cannot be read: {reason}" for address, reason in unread.items()]
    show(options, document, lines)
    silent = sum(isinstance(told.get(partition_id, ""), str) for partition_id in wanted)
    if silent:
        raise WaltzError(f"the write sessions of {silent} of {len(wanted)} partitions are not known")
    if unread:
        raise WaltzError(f"the metrics of {len(unread)} servers cannot be read")


async def _store_session(zookeeper: ZooKeeper, root: str, partition_id: int) -> int | None:
    metadata = await read_partition_metadata(zookeeper, root, partition_id)
    return None if metadata is None else metadata.session_id


def describe(
    partition_id: int,
    owner: Owner | None,
    store_session: int | None,
    told: Told | str,
    metrics: SessionMetrics | None,
) -> str:
    """What is known of one partition; ``told`` is a text if its owner told nothing."""
    fields: dict[str, int | str] = {
        "partition": partition_id,
        "owner": "none" if owner is None else f"{owner.server_id} ({owner.endpoint or 'gone'})",
        "store session": "none" if store_session is None else store_session,
    }
    if isinstance(told, str):
        fields["write session"] = f"not known: {told}"
    elif told.number is None:
        fields["write session"] = f"none: the owner speaks version {told.version}, which has no write sessions"
        metrics = None
    else:
        fields["write session"] = told.number
        fields["last transaction"] = told.last_transaction_id
    if metrics is not None:
        holder = metrics.exclusive_holder
        fields["exclusive holder"] = "none" if holder is None else f"client {holder}"
        fields["fences"] = metrics.fences
        fields["refused appends"] = metrics.fenced_appends + metrics.dropped_appends
    return ", ".join(f"{name}: {value}" for name, value in fields.items())


def _document(
    partition_id: int,
    owner: Owner | None,
    store_session: int | None,
    told: Told | str,
    metrics: SessionMetrics | None,
) -> dict[str, Json]:
    """The same in JSON. What is not known, or not there, is null; ``version`` is the owner's."""
    answer = told if isinstance(told, Told) else None
    document: dict[str, Json] = {
        "partition": partition_id,
        "owner": None
        if owner is None
        else {"server": owner.server_id, "endpoint": None if owner.endpoint is None else str(owner.endpoint)},
        "store_session": store_session,
        "write_session": None if answer is None else answer.number,
        "version": None if answer is None else answer.version,
        "last_transaction": None if answer is None or answer.number is None else answer.last_transaction_id,
        "error": told if isinstance(told, str) else None,
    }
    if metrics is not None and document["write_session"] is not None:
        document["exclusive_holder"] = metrics.exclusive_holder
        document["fences"] = metrics.fences
        document["refused_appends"] = metrics.fenced_appends + metrics.dropped_appends
    return document


async def ask_owners(
    owners: Mapping[int, Owner], tls: ssl.SSLContext | None, timeout_s: float | None = None
) -> dict[int, Told | str]:
    """Ask for the write session of every partition; nothing is raised. A text says why there is no answer.

    Each owner may take ``timeout_s``, if that is given, and no longer than it takes anyway.
    """
    told: dict[int, Told | str] = {
        partition_id: f"server {owner.server_id} is gone" for partition_id, owner in owners.items()
    }
    by_endpoint: dict[Endpoint, dict[int, Owner]] = {}
    for partition_id, owner in owners.items():
        if owner.endpoint is not None:
            by_endpoint.setdefault(owner.endpoint, {})[partition_id] = owner
    async with asyncio.TaskGroup() as group:
        for endpoint, owned in by_endpoint.items():
            group.create_task(_ask_in_time(endpoint, owned, tls, told, timeout_s))
    return told


async def _ask_in_time(
    endpoint: Endpoint,
    owned: Mapping[int, Owner],
    tls: ssl.SSLContext | None,
    told: dict[int, Told | str],
    timeout_s: float | None,
) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await _ask_owner(endpoint, owned, tls, told)
    except TimeoutError:
        told.update(dict.fromkeys(owned, f"{endpoint} did not answer within {timeout_s:g} s"))


async def _ask_owner(
    endpoint: Endpoint, owned: Mapping[int, Owner], tls: ssl.SSLContext | None, told: dict[int, Told | str]
) -> None:
    try:
        connection = await OwnerConnection.open(endpoint, tls=tls, timeout_s=CONNECT_TIMEOUT_S)
    except ConnectFailedError as error:
        told.update(dict.fromkeys(owned, str(error)))
        return
    try:
        told.update(await _ask_over(connection, owned))
    except WaltzError as error:
        told.update(dict.fromkeys(owned, str(error)))
    finally:
        await connection.close()


async def _ask_over(connection: OwnerConnection, owned: Mapping[int, Owner]) -> dict[int, Told | str]:
    version = connection.channel.version
    if version < FIRST_WITH_WRITE_SESSION:
        return dict.fromkeys(owned, Told(version, None, -1))
    answers = {
        partition_id: connection.send(partition_id, owner.generation, _question)
        for partition_id, owner in owned.items()
    }
    await asyncio.wait(answers.values(), timeout=ANSWER_TIMEOUT_S)
    told: dict[int, Told | str] = {}
    for partition_id, answer in answers.items():
        if answer.cancel():
            told[partition_id] = f"{connection.endpoint} did not answer within {ANSWER_TIMEOUT_S:g} s"
            continue
        try:
            response = _response(answer.result().decode())
        except WaltzError as error:
            told[partition_id] = str(error)
            continue
        if response.last_transaction_status is LastTransactionStatus.OK:
            told[partition_id] = Told(version, response.write_session, response.transaction_id)
        else:
            told[partition_id] = f"the partition is not open at {connection.endpoint}"
    return told


def _question(req_id: ReqId) -> LastTransactionIdRequest:
    return LastTransactionIdRequest(req_id, FenceOption(0), NO_WRITE_SESSION)


def _response(message: object) -> LastTransactionIdResponse:
    if not isinstance(message, LastTransactionIdResponse):
        raise ProtocolError(f"{type(message).__name__} came in answer to the question for the last transaction")
    return message


async def _fence(options: argparse.Namespace, session: Session) -> None:
    partition_id = options.partition
    expected = NO_WRITE_SESSION if options.force else options.if_session
    await sync_cluster(session.zookeeper, session.root)
    count = (await read_store_params(session.zookeeper, session.root)).partition_count
    if partition_id >= count:
        raise _no_partition(partition_id, count)
    owner = (await read_owners(session.zookeeper, session.root)).get(partition_id)
    if owner is None or owner.endpoint is None:
        gone = "no server owns it" if owner is None else f"its owner, server {owner.server_id}, is gone"
        raise WaltzError(f"the write session of partition {partition_id} was not raised: {gone}; is a server running?")
    response = await fence(owner.endpoint, partition_id, owner.generation, expected, session.tls)
    last = response.transaction_id
    document: Json = {
        "partition": partition_id,
        "write_session": response.write_session,
        "last_transaction": last,
    }
    lines = [
        f"partition: {partition_id}, write session: {response.write_session}, last transaction: {last}",
        f"appends of older write sessions are refused from now on; none comes behind transaction {last}",
    ]
    show(options, document, lines)


async def fence(
    endpoint: Endpoint, partition_id: int, generation: int, expected: int, tls: ssl.SSLContext | None
) -> LastTransactionIdResponse:
    """Have a server raise the write session of a partition, if the present one is as expected (-1: whatever it is).

    Raises ``WaltzError`` which says whether it was raised, if that is known, and what to do.
    """
    failed = f"the write session of partition {partition_id} was not raised"
    try:
        connection = await OwnerConnection.open(endpoint, tls=tls, timeout_s=CONNECT_TIMEOUT_S)
    except ConnectFailedError as error:
        raise WaltzError(f"{failed}: {error}") from error
    try:
        version = connection.channel.version
        if version < FIRST_WITH_WRITE_SESSION:
            raise WaltzError(
                f"{failed}: its owner {endpoint} speaks version {version}, which has no write sessions; "
                "upgrade it, or have a server with version 5 own the partition"
            )
        answer = connection.send(
            partition_id, generation, lambda req_id: LastTransactionIdRequest(req_id, FenceOption.FENCE, expected)
        )
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                response = _response((await answer).decode())
        except (TimeoutError, WaltzError) as error:
            reason = str(error) or f"{endpoint} did not answer within {ANSWER_TIMEOUT_S:g} s"
            raise WaltzError(
                f"whether the write session of partition {partition_id} was raised is not known: {reason}; look at it "
                "with waltz session show, then ask again"
            ) from error
    finally:
        await connection.close()
    refused = explain_refusal(response, endpoint, expected)
    if refused is not None:
        raise WaltzError(f"{failed}: {refused}")
    return response


def explain_refusal(response: LastTransactionIdResponse, endpoint: Endpoint, expected: int) -> str | None:
    """Why a fence was refused, and what to do; None if it was not."""
    match response.last_transaction_status:
        case LastTransactionStatus.OK:
            return None
        case LastTransactionStatus.NOT_READY:
            return (
                f"the partition is not open at {endpoint}: it may be on its way to another server, or has no quorum of "
                "storages; ask again, and look at waltz cluster verify if that does not help"
            )
        case LastTransactionStatus.FENCE_FAILED:
            return (
                f"{endpoint} got no quorum of storages for it in time, or the one before it was less than "
                "server.minFenceInterval ago; ask again"
            )
        case LastTransactionStatus.UNEXPECTED_SESSION:
            return f"the present one is {response.write_session}, not {expected}; somebody else may have raised it"


def _no_partition(partition_id: int, count: int) -> WaltzError:
    return WaltzError(f"there is no partition {partition_id}; the cluster has {count}")
