"""Where the checks of write sessions learn what happens: at storages, at owners of partitions, from what these send."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

from tests.simulation.loop import running_process
from tests.simulation.session_checks import Opened, SessionChecks
from waltz.client.engine.partition.appends import PartitionAppends
from waltz.client.engine.partition.partition_session import BegunSession, PartitionSession
from waltz.common.ids import ReqId
from waltz.common.wire.append_request import encode_append
from waltz.common.wire.client_server import Message
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
from waltz.server.partition.fencing import Fencing
from waltz.server.partition.partition import ServerPartition
from waltz.server.requests.appends import AppendCall
from waltz.server.requests.link import ClientLink
from waltz.server.requests.pending import Pending
from waltz.storage.disk.control_file import ControlFile, Marks
from waltz.storage.node.partition import StoragePartition


@contextlib.contextmanager
def write_sessions_are_checked(checks: SessionChecks) -> Iterator[None]:
    """While this lasts, the checks are told of everything that servers and storages do."""
    with contextlib.ExitStack() as stack:
        for target, name, replacement in (
            (StoragePartition, "_set_low_water_mark", _recording(checks)),
            (ControlFile, "keep_low_water_mark", _recording_by_the_journal(checks)),
            (Fencing, "refuse", _refusing(checks)),
            (Fencing, "_release", _releasing(checks)),
            (ClientLink, "send", _telling(checks)),
        ):
            stack.enter_context(mock.patch.object(target, name, replacement))
        stack.enter_context(_begins_are_seen(checks))
        stack.enter_context(_clients_are_seen(checks))
        yield


def _recording(checks: SessionChecks) -> Callable[[StoragePartition, int, int], None]:
    set_low_water_mark = StoragePartition._set_low_water_mark

    def recorded(partition: StoragePartition, session_id: int, mark: int) -> None:
        set_low_water_mark(partition, session_id, mark)
        checks.recorded(_running_host(), partition.partition_id, session_id)

    return recorded


def _recording_by_the_journal(checks: SessionChecks) -> Callable[[ControlFile, int, Marks], None]:
    keep_low_water_mark = ControlFile.keep_low_water_mark

    def recorded(control_file: ControlFile, partition_id: int, marks: Marks) -> None:
        keep_low_water_mark(control_file, partition_id, marks)
        checks.recorded(_running_host(), partition_id, marks.session_id)

    return recorded


@contextlib.contextmanager
def _begins_are_seen(checks: SessionChecks) -> Iterator[None]:
    """A fence is answered, and what waited behind it is looked at, when the number has been raised: that is between."""
    session_begun, store_session_begun = ServerPartition.session_begun, Fencing.store_session_begun
    generations: dict[Fencing, int] = {}

    def partition_begun(partition: ServerPartition, session_id: int, unbroken: bool, mark: int) -> None:
        generations[partition._fencing] = partition._log.opened_generation
        session_begun(partition, session_id, unbroken, mark)

    def begun(fencing: Fencing, session_id: int, unbroken: bool, fence: Pending | None, mark: int) -> None:
        before = fencing.session.number, fencing.session.holder
        store_session_begun(fencing, session_id, unbroken, fence, mark)
        after = fencing.session.number, fencing.session.holder
        opened = Opened(session_id, generations[fencing])
        asked = (False, None) if fence is None else _asked(fence)
        checks.begun(fencing, fencing._partition_id, opened, mark, before, after, asked)

    with (
        mock.patch.object(ServerPartition, "session_begun", partition_begun),
        mock.patch.object(Fencing, "store_session_begun", begun),
    ):
        yield


def _asked(fence: Pending) -> tuple[bool, int | None]:
    """The request was a fence; the client for which the session is to be exclusive, if any."""
    request = fence.request
    exclusive = type(request) is HeartbeatRequest or (
        type(request) is LastTransactionIdRequest and FenceOption.EXCLUSIVE in request.fence
    )
    return True, fence.link.client_id if exclusive else None


def _refusing(checks: SessionChecks) -> Callable[[Fencing, ClientLink, Sequence[AppendCall], int], None]:
    refuse = Fencing.refuse

    def refused(fencing: Fencing, link: ClientLink, appends: Sequence[AppendCall], mark: int) -> None:
        if link.channel.version < FIRST_WITH_WRITE_SESSION:  # the others are told
            for append in appends:
                checks.refused(bytes(append.req_id), fencing.session.number)
        refuse(fencing, link, appends, mark)

    return refused


def _releasing(checks: SessionChecks) -> Callable[[Fencing], None]:
    release = Fencing._release

    def released(fencing: Fencing) -> None:
        checks.released(fencing._partition_id, fencing.session.number)
        release(fencing)

    return released


def _telling(checks: SessionChecks) -> Callable[[ClientLink, Message], None]:
    send = ClientLink.send
    answered = (LastTransactionStatus.OK, LastTransactionStatus.UNEXPECTED_SESSION)

    def told(link: ClientLink, message: Message) -> None:
        if isinstance(message, SessionFenced):
            checks.refused(bytes(message.req_id), message.write_session)
            checks.told(ReqId(message.req_id).partition_id, message.high_water_mark, message.write_session)
        elif isinstance(message, HeartbeatResponse) and message.write_session != NO_WRITE_SESSION:
            checks.told(ReqId(message.req_id).partition_id, message.high_water_mark, message.write_session)
        elif isinstance(message, LastTransactionIdResponse) and message.last_transaction_status in answered:
            checks.told(ReqId(message.req_id).partition_id, message.transaction_id, message.write_session)
        send(link, message)

    return told


@contextlib.contextmanager
def _clients_are_seen(checks: SessionChecks) -> Iterator[None]:
    """What the client library hears, sends, and tells its application."""
    fenced = PartitionAppends.session_fenced
    response, fence, ask = PartitionSession.response, PartitionSession.fence, PartitionSession._ask

    def encoded(version: int, req_id: bytes, *fields: Any) -> bytes:
        checks.client_sends(bytes(req_id), fields[-1])
        return encode_append(version, req_id, *fields)

    def heard_fenced(appends: PartitionAppends, message: SessionFenced) -> None:
        if appends.session.enabled:
            checks.client_told(appends._client_id, appends.partition_id, message.write_session)
        fenced(appends, message)

    def heard(session: PartitionSession, message: HeartbeatResponse) -> None:
        if message.write_session != NO_WRITE_SESSION and message.req_id == session._asked:  # others it ignores
            checks.client_told(session._appends._client_id, session._partition_id, message.write_session)
        response(session, message)

    def asks(session: PartitionSession) -> None:
        if HeartbeatOption.EXCLUSIVE in session._state.question:
            checks.client_promotes(session._appends._client_id, session._partition_id, session._state.number)
        ask(session)

    async def has_fenced(session: PartitionSession, *, exclusive: bool, expected_session: int | None) -> BegunSession:
        begun = await fence(session, exclusive=exclusive, expected_session=expected_session)
        who = f"client {session._appends._client_id}"
        expected = NO_WRITE_SESSION if expected_session is None else expected_session
        checks.fenced(session._partition_id, begun.transaction_id, begun.number, who, expected)
        return begun

    with (
        mock.patch("waltz.client.engine.partition.appends.encode_append", encoded),
        mock.patch.object(PartitionAppends, "session_fenced", heard_fenced),
        mock.patch.object(PartitionSession, "response", heard),
        mock.patch.object(PartitionSession, "fence", has_fenced),
        mock.patch.object(PartitionSession, "_ask", asks),
    ):
        yield


def _running_host() -> str:
    process = running_process()
    return "-" if process is None else process.host
