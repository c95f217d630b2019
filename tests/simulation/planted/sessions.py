"""Bugs to plant in write sessions: how numbers come about, who may append, and what a client makes of it."""

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from unittest import mock

from waltz.client import election
from waltz.client.engine.partition.appends import PartitionAppends
from waltz.client.engine.partition.partition_session import PartitionSession
from waltz.client.engine.partition.write_session import ClientWriteSession, SessionState
from waltz.client.engine.submission import Submission
from waltz.common.access import EVERYTHING, Rights
from waltz.common.wire.client_server import MountRequest
from waltz.common.wire.write_sessions import (
    NO_WRITE_SESSION,
    HeartbeatResponse,
    LastTransactionIdRequest,
    LastTransactionStatus,
    SessionFenced,
)
from waltz.common.zk.client import ZooKeeper, ZooKeeperError
from waltz.server.partition.fencing import Fencing
from waltz.server.partition.partition import ServerPartition
from waltz.server.partition.sequencer import Sequencer, Verdict
from waltz.server.partition.write_session import WriteSession
from waltz.server.requests.appends import AppendCall
from waltz.server.requests.link import ClientLink
from waltz.server.requests.pending import Pending
from waltz.server.store.session.continuity import Continuity


@contextlib.contextmanager
def fence_without_barrier() -> Iterator[None]:
    """A fence begins while appends that came before it are undecided."""
    look = Sequencer.look

    def at_once(sequencer: Sequencer, pending: Pending, next_id: int) -> Verdict | None:
        if pending.is_fence and not pending.abandoned:
            sequencer._fence = pending
            return sequencer.reached(pending)
        return look(sequencer, pending, next_id)

    with mock.patch.object(Sequencer, "look", at_once):
        yield


def look_behind_fences(sequencer: Sequencer) -> bool:
    """What came behind a fence is looked at before that is carried out."""
    return sequencer.session_open and len(sequencer._commits) < sequencer._max_waiting


def count_in_memory(
    session: WriteSession,
    store_session_id: int,
    holder: int | None = None,
    rights: Rights = EVERYTHING,
    peer: str = "",
) -> None:
    """The number is one more than the last one of this owner."""
    session.number = max(session.number, 0) + 1
    session.holder, session.rights, session.peer = holder, rights, peer


def broken_by_everything(continuity: Continuity) -> bool:
    """Every store session raises the number."""
    return False


@contextlib.contextmanager
def broken_by_nothing() -> Iterator[None]:
    """Only the first store session of an owner gives it a number."""
    session_opened = Continuity.session_opened

    def unbroken(continuity: Continuity) -> bool:
        had_one = continuity in opened
        opened.add(continuity)
        return session_opened(continuity) or had_one

    opened: set[Continuity] = set()
    with mock.patch.object(Continuity, "session_opened", unbroken):
        yield


@contextlib.contextmanager
def trust_every_generation() -> Iterator[None]:
    """A number survives a raise of the generation."""
    session_taken = Continuity.session_taken

    def taken(continuity: Continuity, session_id: int, generation: int) -> None:
        session_taken(continuity, session_id, 0)

    with mock.patch.object(Continuity, "session_taken", taken):
        yield


@contextlib.contextmanager
def answer_before_the_store() -> Iterator[None]:
    """A fence is answered with the next number before any storage knows of a store session for it."""
    answer = Fencing.answer

    def answered(fencing: Fencing, pending: Pending, mark: int) -> bool:
        if not isinstance(pending.request, LastTransactionIdRequest) or not fencing.begins_fence(pending):
            return answer(fencing, pending, mark)
        fencing.session.begin(fencing.session.number)
        fencing._answer_last(pending.link, pending.request, LastTransactionStatus.OK, mark)
        return True

    with mock.patch.object(Fencing, "answer", answered):
        yield


@contextlib.contextmanager
def check_after_the_locks() -> Iterator[None]:
    """The session is checked when the locks have been, and have been raised."""
    admit = ServerPartition._admit

    def checked_late(
        partition: ServerPartition, link: ClientLink, requests: Sequence[AppendCall], write_session: int
    ) -> None:
        if partition._fencing.session.admits(link.client_id, write_session):
            admit(partition, link, requests, write_session)
            return
        next_id = partition._admission.next_id
        appends, conflicts, others, _ = partition._admission.admit(requests)
        partition._admission.next_id = next_id
        for conflict in conflicts:
            partition._conflict(link, conflict, write_session)
        if refused := [*appends, *others]:
            partition._fencing.refuse(link, refused, partition.high_water_mark or NO_WRITE_SESSION)

    with mock.patch.object(ServerPartition, "_admit", checked_late):
        yield


@contextlib.contextmanager
def check_at_arrival() -> Iterator[None]:
    """The session is checked when an append arrives, and not when it is its turn."""
    append, admit, admits = ServerPartition.append, ServerPartition._admit, WriteSession.admits

    def checked(
        partition: ServerPartition, link: ClientLink, requests: Sequence[AppendCall], write_session: int = -1
    ) -> None:
        mark = partition.high_water_mark
        if mark is not None and not admits(partition._fencing.session, link.client_id, write_session):
            partition._fencing.refuse(link, requests, mark)
        else:
            append(partition, link, requests, write_session)

    def unchecked(
        partition: ServerPartition, link: ClientLink, requests: Sequence[AppendCall], write_session: int
    ) -> None:
        with mock.patch.object(WriteSession, "admits", admit_everything):
            admit(partition, link, requests, write_session)

    with (
        mock.patch.object(ServerPartition, "append", checked),
        mock.patch.object(ServerPartition, "_admit", unchecked),
    ):
        yield


def admit_everything(session: WriteSession, client_id: int | None, write_session: int) -> bool:
    return True


@contextlib.contextmanager
def exclusive_ends_with_the_connection() -> Iterator[None]:
    """A holder that mounts again has lost its exclusivity."""
    mount = ServerPartition.mount

    def forgetful(partition: ServerPartition, link: ClientLink, request: MountRequest) -> None:
        if partition._fencing.session.holder == link.client_id:
            partition._fencing.session.holder = None
        mount(partition, link, request)

    with mock.patch.object(ServerPartition, "mount", forgetful):
        yield


@contextlib.contextmanager
def exclusive_for_a_connection() -> Iterator[None]:
    """The holder is known by its connection, and not by its client id."""
    store_session_begun, admit = Fencing.store_session_begun, ServerPartition._admit
    held_by: dict[Fencing, ClientLink] = {}

    def begun(fencing: Fencing, session_id: int, unbroken: bool, fence: Pending | None, mark: int) -> None:
        if fence is not None:
            held_by[fencing] = fence.link
        store_session_begun(fencing, session_id, unbroken, fence, mark)

    def admitted(
        partition: ServerPartition, link: ClientLink, requests: Sequence[AppendCall], write_session: int
    ) -> None:
        fencing = partition._fencing
        if fencing.session.holder is not None and held_by.get(fencing) is not link:
            fencing.refuse(link, requests, partition.high_water_mark or NO_WRITE_SESSION)
        else:
            admit(partition, link, requests, write_session)

    with (
        mock.patch.object(Fencing, "store_session_begun", begun),
        mock.patch.object(ServerPartition, "_admit", admitted),
    ):
        yield


@contextlib.contextmanager
def exclusive_over_a_change() -> Iterator[None]:
    """An owner that begins anew still takes its old holder for the holder."""
    begin = WriteSession.begin

    def holding(
        session: WriteSession,
        store_session_id: int,
        holder: int | None = None,
        rights: Rights = EVERYTHING,
        peer: str = "",
    ) -> None:
        begin(session, store_session_id, session.holder if holder is None else holder, rights, peer)

    store_session_begun = Fencing.store_session_begun

    def begun(fencing: Fencing, session_id: int, unbroken: bool, fence: Pending | None, mark: int) -> None:
        if fence is None:
            with mock.patch.object(WriteSession, "begin", holding):
                store_session_begun(fencing, session_id, unbroken, fence, mark)
        else:
            store_session_begun(fencing, session_id, unbroken, fence, mark)

    with mock.patch.object(Fencing, "store_session_begun", begun):
        yield


def admit_by_number_alone(session: WriteSession, client_id: int | None, write_session: int) -> bool:
    """Whoever knows the number may append, whoever holds it."""
    if write_session == NO_WRITE_SESSION:
        return session.holder is None
    return write_session == session.number


def admit_without_number(session: WriteSession, client_id: int | None, write_session: int) -> bool:
    """Appends without a number are admitted even in an exclusive session."""
    if write_session == NO_WRITE_SESSION:
        return True
    return write_session == session.number and session.holder in (None, client_id)


def admit_newer_numbers(session: WriteSession, client_id: int | None, write_session: int) -> bool:
    """The check is one of order: a number that is to come will do."""
    if write_session == NO_WRITE_SESSION:
        return session.holder is None
    return write_session >= session.number and session.holder in (None, client_id)


@contextlib.contextmanager
def expectations_ignored() -> Iterator[None]:
    """A fence is carried out whatever session its client expects."""
    answer = Fencing.answer

    def ignorant(fencing: Fencing, pending: Pending, mark: int) -> bool:
        if isinstance(pending.request, LastTransactionIdRequest):
            pending.request = pending.request._replace(expected_session=NO_WRITE_SESSION)
        return answer(fencing, pending, mark)

    with mock.patch.object(Fencing, "answer", ignorant):
        yield


# Clients


@contextlib.contextmanager
def elected_without_a_node() -> Iterator[None]:
    """A candidate waits for nobody, and deposes whoever leads."""

    @contextlib.asynccontextmanager
    async def no_mutex(
        zookeeper: ZooKeeper, path: str, *, timeout_s: float | None, token: bytes
    ) -> AsyncIterator[ZooKeeper]:
        with contextlib.suppress(ZooKeeperError):
            await zookeeper.create(path, token, ephemeral=True)
        yield zookeeper

    async def checked(node: ZooKeeper, path: str, token: bytes) -> None:
        pass

    with mock.patch.object(election, "mutex", no_mutex), mock.patch.object(election, "_check_held", checked):
        yield


@contextlib.contextmanager
def send_when_fenced() -> Iterator[None]:
    """A client goes on under its number when it has heard that it is over."""

    def sends(session: ClientWriteSession) -> bool:
        return session.state in (*_SENDING, SessionState.FENCED)

    def carried(session: ClientWriteSession) -> int:
        return session.number if session.state in (SessionState.HELD, SessionState.FENCED) else NO_WRITE_SESSION

    with (
        mock.patch.object(ClientWriteSession, "sends", property(sends)),
        mock.patch.object(ClientWriteSession, "carried", property(carried)),
        mock.patch.object(ClientWriteSession, "refusal", None),
    ):
        yield


_SENDING = (SessionState.OFF, SessionState.HELD, SessionState.PLAIN)


@contextlib.contextmanager
def adopt_every_number() -> Iterator[None]:
    """A client takes whatever number it is told when it mounts."""
    answered = ClientWriteSession.answered

    def adopting(session: ClientWriteSession, response: HeartbeatResponse) -> bool:
        session._renewing = True
        return answered(session, response)

    with mock.patch.object(ClientWriteSession, "answered", adopting):
        yield


@contextlib.contextmanager
def promote_at_every_mount() -> Iterator[None]:
    """A client that once asked for an exclusive session asks again whenever it mounts."""
    adopt = ClientWriteSession.adopt

    def adopting(session: ClientWriteSession, number: int) -> None:
        asks = session._ask_exclusive
        adopt(session, number)
        session._ask_exclusive = asks

    def ended(session: ClientWriteSession) -> None:
        session._renewing = False

    with (
        mock.patch.object(ClientWriteSession, "adopt", adopting),
        mock.patch.object(ClientWriteSession, "end_renewal", ended),
    ):
        yield


@contextlib.contextmanager
def attempt_fenced_again() -> Iterator[None]:
    """What a server refused because of its session is sent again in the next one."""

    def again(appends: PartitionAppends, message: SessionFenced) -> None:
        appends.session.fenced(message.write_session)
        appends._abort(message.req_id, appends._failed)
        appends.session_changed()

    with mock.patch.object(PartitionAppends, "session_fenced", again):
        yield


def attempt_lost_again(appends: PartitionAppends, submissions: Sequence[Submission]) -> None:
    """What got lost is sent again, behind what was sent after it."""
    appends._failed(submissions)


async def not_waited_for(session: PartitionSession, transaction_id: int) -> None:
    """A fence is over for the application before what came before it is applied, and decided."""
