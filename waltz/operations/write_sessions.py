"""Asks owners for the write sessions of their partitions, and raises write sessions for an operator.

The client's engine sends the same requests, but repeats them over the next connection after a broken connection, and so
may raise a session twice. An operator has to learn instead that the outcome is unknown.
"""

import asyncio
import ssl
from collections.abc import Mapping
from typing import NamedTuple

from waltz.common.cluster.owners import Owner, OwnerConnection
from waltz.common.errors import ConnectFailedError, ProtocolError, WaltzError
from waltz.common.ids import Endpoint, ReqId
from waltz.common.wire.versions import FIRST_WITH_WRITE_SESSION
from waltz.common.wire.write_sessions import (
    NO_WRITE_SESSION,
    FenceOption,
    LastTransactionIdRequest,
    LastTransactionIdResponse,
    LastTransactionStatus,
)

CONNECT_TIMEOUT_S = 10.0

ANSWER_TIMEOUT_S = 15.0
"""Time limit of an answer. A healthy server answers within 10 s, even if it cannot raise the write session."""


class SessionAnswer(NamedTuple):
    """The answer of the owner of a partition to the question for the write session."""

    version: int
    """Version of the protocol."""
    number: int | None
    """The number of the write session; None if the server has no write sessions."""
    last_transaction_id: int
    """The last committed transaction; -1 if there is none or the server has no write sessions."""


async def ask_owners(
    owners: Mapping[int, Owner], tls: ssl.SSLContext | None, timeout_s: float | None = None
) -> dict[int, SessionAnswer | str]:
    """Ask for the write session of every partition, without raising it. A text is the reason why there is no answer.

    ``timeout_s``, if given, limits each answer, but never extends the usual limit.
    """
    answers: dict[int, SessionAnswer | str] = {
        partition_id: f"server {owner.server_id} is gone" for partition_id, owner in owners.items()
    }
    by_endpoint: dict[Endpoint, dict[int, Owner]] = {}
    for partition_id, owner in owners.items():
        if owner.endpoint is not None:
            by_endpoint.setdefault(owner.endpoint, {})[partition_id] = owner
    async with asyncio.TaskGroup() as group:
        for endpoint, owned in by_endpoint.items():
            group.create_task(_ask_in_time(endpoint, owned, tls, answers, timeout_s))
    return answers


async def _ask_in_time(
    endpoint: Endpoint,
    owned: Mapping[int, Owner],
    tls: ssl.SSLContext | None,
    answers: dict[int, SessionAnswer | str],
    timeout_s: float | None,
) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await _ask_owner(endpoint, owned, tls, answers)
    except TimeoutError:
        answers.update(dict.fromkeys(owned, f"{endpoint} did not answer within {timeout_s:g} s"))


async def _ask_owner(
    endpoint: Endpoint, owned: Mapping[int, Owner], tls: ssl.SSLContext | None, answers: dict[int, SessionAnswer | str]
) -> None:
    try:
        connection = await OwnerConnection.open(endpoint, tls=tls, timeout_s=CONNECT_TIMEOUT_S)
    except ConnectFailedError as error:
        answers.update(dict.fromkeys(owned, str(error)))
        return
    try:
        answers.update(await _ask_over(connection, owned))
    except WaltzError as error:
        answers.update(dict.fromkeys(owned, str(error)))
    finally:
        await connection.close()


async def _ask_over(connection: OwnerConnection, owned: Mapping[int, Owner]) -> dict[int, SessionAnswer | str]:
    version = connection.channel.version
    if version < FIRST_WITH_WRITE_SESSION:
        return dict.fromkeys(owned, SessionAnswer(version, None, -1))
    pending = {
        partition_id: connection.send(partition_id, owner.generation, _question)
        for partition_id, owner in owned.items()
    }
    await asyncio.wait(pending.values(), timeout=ANSWER_TIMEOUT_S)
    answers: dict[int, SessionAnswer | str] = {}
    for partition_id, answer in pending.items():
        if answer.cancel():
            answers[partition_id] = f"{connection.endpoint} did not answer within {ANSWER_TIMEOUT_S:g} s"
            continue
        try:
            response = _response(answer.result().decode())
        except WaltzError as error:
            answers[partition_id] = str(error)
            continue
        if response.last_transaction_status is LastTransactionStatus.OK:
            answers[partition_id] = SessionAnswer(version, response.write_session, response.transaction_id)
        else:
            answers[partition_id] = f"the partition is not open at {connection.endpoint}"
    return answers


def _question(req_id: ReqId) -> LastTransactionIdRequest:
    return LastTransactionIdRequest(req_id, FenceOption(0), NO_WRITE_SESSION)


def _response(message: object) -> LastTransactionIdResponse:
    if not isinstance(message, LastTransactionIdResponse):
        raise ProtocolError(f"{type(message).__name__} came in answer to the question for the last transaction")
    return message


async def fence(
    endpoint: Endpoint, partition_id: int, generation: int, expected: int, tls: ssl.SSLContext | None
) -> LastTransactionIdResponse:
    """Ask a server to raise the write session of a partition, if the present session is as expected (-1: any session).

    Raises ``WaltzError``; the text says whether the session was raised, if that is known, and what to do.
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
    """The reason why a fence was refused, and the remedy; None if it was not refused."""
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
                f"{endpoint} got no quorum of storages for it in time, or too many came within "
                "server.minFenceInterval of each other; ask again"
            )
        case LastTransactionStatus.UNEXPECTED_SESSION:
            return f"the present one is {response.write_session}, not {expected}; somebody else may have raised it"
