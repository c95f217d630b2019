"""The write session of a partition, which decides who may append, and the answers to clients about it.

The sequencer orders a fence after all earlier requests and before all later requests: all earlier appends are decided,
then another store session begins, then the number is raised. A former owner of the partition cannot do that, because a
store session needs a quorum of the storages.
"""

import logging
from collections.abc import Callable, Sequence

from waltz.common.access import Right, Rights
from waltz.common.ids import NO_TRANSACTION
from waltz.common.quiet_log import QuietLog
from waltz.common.wire.versions import FIRST_WITH_WRITE_SESSION
from waltz.common.wire.write_sessions import (
    NO_WRITE_SESSION,
    FenceOption,
    HeartbeatOption,
    HeartbeatRequest,
    HeartbeatResponse,
    HeartbeatState,
    LastTransactionIdRequest,
    LastTransactionIdResponse,
    LastTransactionStatus,
    SessionFenced,
    SessionFlag,
)
from waltz.server.partition.partition_metrics import PartitionMetrics
from waltz.server.partition.write_session import WriteSession
from waltz.server.requests.appends import AppendCall
from waltz.server.requests.link import ClientLink
from waltz.server.requests.pending import Awaits, Pending

logger = logging.getLogger(__name__)

SessionRequest = HeartbeatRequest | LastTransactionIdRequest

NO_MARK = NO_TRANSACTION
"""The mark in answers while the mark is unknown."""


class Fencing:
    """The write session of one partition, and the requests about it. The clock is that of the metrics."""

    def __init__(
        self,
        partition_id: int,
        metrics: PartitionMetrics,
        min_interval_s: float,
        max_early_count: int,
        log_quietly: QuietLog,
    ) -> None:
        """``min_interval_s`` is the shortest time between two fences. At most ``max_early_count`` fences wait for that
        time."""
        self.session = WriteSession()
        self._partition_id = partition_id
        self._metrics = metrics
        self._min_interval_s = min_interval_s
        self._max_early_count = max_early_count
        self._early: list[Pending] = []
        self._log_quietly = log_quietly
        self._log_fences = QuietLog(logger)  # apart from the many lines about refused appends, which could hide these
        self._fenced_s: float | None = None
        self._asked_s = 0.0

    def gauges(self) -> dict[str, Callable[[], int]]:
        """Number and holder of the session; -1 for none."""
        session = self.session
        return {
            "write-session": lambda: session.number,
            "exclusive-holder": lambda: -1 if session.holder is None else session.holder,
        }

    def wait_s(self, pending: Pending) -> float:
        """The wait of a request that would begin a fence too soon after another fence; 0 for other requests."""
        if self._fenced_s is None or pending.abandoned or not self.begins_fence(pending):
            return 0.0
        return max(0.0, self._fenced_s + self._min_interval_s - self._metrics.clock())

    def begins_fence(self, pending: Pending) -> bool:
        """Whether the answer to a request needs the begin of a store session."""
        request = pending.request
        if type(request) is LastTransactionIdRequest and request.expected_session not in (
            NO_WRITE_SESSION,
            self.session.number,
        ):
            return False
        return pending.is_fence and (
            type(request) is not HeartbeatRequest or self.session.holder != pending.link.client_id
        )

    def stand_aside(self, pending: Pending, high_water_mark: int) -> None:
        """Keep a fence that is too early until :meth:`take_early`, unless too many fences wait already."""
        self._early = [early for early in self._early if not early.abandoned]
        if len(self._early) >= self._max_early_count:
            pending.end()
            self.give_up(pending, high_water_mark, "too many have come within server.minFenceInterval of each other")
            return
        pending.awaits = Awaits.INTERVAL
        self._early.append(pending)

    def take_early(self) -> list[Pending]:
        """Take the waiting fences that are still wanted, in the order of their arrival."""
        early, self._early = self._early, []
        return [pending for pending in early if not pending.abandoned]

    @property
    def holder_rights(self) -> Rights | None:
        """The rights of the holder of an exclusive session; ``None`` if the session is not exclusive."""
        return None if self.session.holder is None else self.session.rights

    def judge_holder(self) -> None:
        """End an exclusive session if its holder may not append any more: others may write in it."""
        session = self.session
        rights, noted = session.rights, session.noted
        if rights.refusal(Right.APPEND, self._partition_id, session.peer, noted=noted) is not None:
            self._release()
        session.noted = rights.lenient and not rights.permits(Right.APPEND, self._partition_id)

    def _release(self) -> None:
        self._log_fences.warning(
            "partition %d: client %s has lost its right to append, and exclusive write session %d with it",
            self._partition_id,
            self.session.holder,
            self.session.number,
        )
        self.session.holder = None

    def refuse(self, link: ClientLink, appends: Sequence[AppendCall], high_water_mark: int) -> None:
        """Refuse appends that the session does not admit. There is no such answer for older clients; these learn the
        outcome by a flush. A lock failure as answer would make them repeat the append as fast as they can."""
        if link.channel.version < FIRST_WITH_WRITE_SESSION:
            self._metrics.dropped_exclusive.mark(len(appends))
            self._log_refusal("dropped", link, len(appends))
            return
        self._metrics.session_fenced.mark(len(appends))
        self._log_refusal("refused", link, len(appends))
        for append in appends:
            link.send(SessionFenced(append.req_id, high_water_mark, self.session.number))

    def _log_refusal(self, verb: str, link: ClientLink, count: int) -> None:
        session = self.session
        self._log_quietly.warning(
            "partition %d: %s %d appends of client %s at %s: %s",
            self._partition_id,
            verb,
            count,
            link.client_id,
            link.channel.peer,
            f"the write session is {session.number}"
            if session.is_open_to(link.client_id)
            else f"client {session.holder} holds write session {session.number} exclusively",
        )

    def answer(self, pending: Pending, high_water_mark: int) -> bool:
        """Answer a request, after the decision of all requests before it. Returns false if the request first needs a
        new store session."""
        link, request = pending.link, pending.request
        if self.begins_fence(pending):
            self._asked_s = self._metrics.clock()
            return False
        if type(request) is HeartbeatRequest:
            self._answer_heartbeat(link, request, high_water_mark)
        elif type(request) is LastTransactionIdRequest:
            status = LastTransactionStatus.UNEXPECTED_SESSION if pending.is_fence else LastTransactionStatus.OK
            self._answer_last(link, request, status, high_water_mark)
        return True

    def store_session_begun(self, session_id: int, unbroken: bool, fence: Pending | None, high_water_mark: int) -> None:
        """Raise the write session: a store session has begun after the mark. ``fence`` is the request that waited for
        that."""
        if fence is None:
            if not unbroken:
                self.session.begin(session_id)
            return
        link, request = fence.link, fence.request
        exclusive = type(request) is HeartbeatRequest or (
            type(request) is LastTransactionIdRequest and FenceOption.EXCLUSIVE in request.fence
        )
        self.session.begin(session_id, link.client_id if exclusive else None, link.rights, link.channel.peer)
        self._fenced_s = self._metrics.clock()
        self._metrics.fences.mark()
        self._metrics.fence_latency.update(self._fenced_s - self._asked_s)
        self._log_fences.info(
            "partition %d: client %s at %s has begun %s %d behind transaction %d, in %.0f ms",
            self._partition_id,
            link.client_id,
            link.channel.peer,
            "the exclusive write session" if exclusive else "write session",
            self.session.number,
            high_water_mark,
            1000 * (self._fenced_s - self._asked_s),
        )
        self._note(link, exclusive=exclusive)
        if exclusive:  # the right may have gone while the store session was begun, or have never been there
            self.judge_holder()
        if type(request) is HeartbeatRequest:
            self._answer_heartbeat(link, request, high_water_mark)
        elif type(request) is LastTransactionIdRequest:
            self._answer_last(link, request, LastTransactionStatus.OK, high_water_mark)

    def give_up(self, pending: Pending, high_water_mark: int | None, reason: str = "no store session began") -> None:
        """End a request that cannot be answered in time. ``reason`` is for the log."""
        link, request = pending.link, pending.request
        if pending.is_fence:
            self._log_fences.warning(
                "partition %d: no write session was begun for client %s at %s: %s",
                self._partition_id,
                link.client_id,
                link.channel.peer,
                reason,
            )
            self._note(link, exclusive=type(request) is HeartbeatRequest, error=reason)
        if type(request) is HeartbeatRequest:
            refuse_heartbeat(link, request)
        elif type(request) is LastTransactionIdRequest:
            failed = pending.is_fence and high_water_mark is not None
            status = LastTransactionStatus.FENCE_FAILED if failed else LastTransactionStatus.NOT_READY
            self._answer_last(link, request, status, high_water_mark)

    def _note(self, link: ClientLink, *, exclusive: bool, error: str = "") -> None:
        operation = "begin an exclusive write session" if exclusive else "begin a write session"
        link.acted(operation, Right.FENCE, [self._partition_id], error)

    def _answer_heartbeat(self, link: ClientLink, request: HeartbeatRequest, high_water_mark: int) -> None:
        session, client_id = self.session, link.client_id
        if not request.heartbeat & (HeartbeatOption.GET_SESSION | HeartbeatOption.EXCLUSIVE):
            state, number = HeartbeatState.OK, NO_WRITE_SESSION
        elif session.is_open_to(client_id):
            state, number = HeartbeatState.OK, session.number
        else:
            state, number = HeartbeatState.HELD_BY_ANOTHER, NO_WRITE_SESSION
        flags = session.flags(client_id)
        link.send(HeartbeatResponse(request.req_id, state, high_water_mark, number, flags))

    def _answer_last(
        self,
        link: ClientLink,
        request: LastTransactionIdRequest,
        status: LastTransactionStatus,
        high_water_mark: int | None,
    ) -> None:
        mark = NO_MARK if high_water_mark is None else high_water_mark
        link.send(LastTransactionIdResponse(request.req_id, status, mark, self.session.number))


def refuse_heartbeat(link: ClientLink, request: HeartbeatRequest) -> None:
    """Refuse a heartbeat: the partition is not here, not ready, or not mounted."""
    link.send(HeartbeatResponse(request.req_id, HeartbeatState.NOT_READY, NO_MARK, NO_WRITE_SESSION, SessionFlag(0)))


def refuse_last(link: ClientLink, request: LastTransactionIdRequest) -> None:
    """Refuse a question for the last transaction: the partition is not here."""
    link.send(LastTransactionIdResponse(request.req_id, LastTransactionStatus.NOT_READY, NO_MARK, NO_WRITE_SESSION))
