"""Decides which requests of a partition may be examined now, and which may be answered. Pure.

To examine an append means to check its locks, and to assign a transaction id or to refuse it. To examine a mount or
flush means to note the last id assigned before. The result may depend on undecided appends, and the session of the log
may end before their decision. :class:`Sequencer` holds every request that cannot be answered immediately. It gets the
events of the log and returns the requests that become ready. It sends nothing, and has neither time nor tasks. The
state of a request is its :class:`~waltz.server.requests.pending.Awaits`.

The rules:

1. *The session comes first* (S3). Requests are examined in the order of their arrival, and only while a session is
   open. While a request waits for its turn, later requests wait behind it. (Otherwise locks would be checked against a
   state that another owner may have changed.)
2. *Only committed ids are reported* (S4). An append that was refused because of an undecided append waits for the
   commit of the latter. A mount or flush waits for the commit of the last append before it. Waiting requests are
   answered in the order of these ids; requests that wait for the same id, in the order of their examination. (Otherwise
   writers wait for an id that never comes.)
3. *The end of a session decides nothing.* A request that waits for a commit continues to wait: the next session may
   have found the append. When the next session has opened, all waiting requests, and the appends that were sent to no
   replica, have their turn again before all others, in the order of their examination. That is the order of arrival,
   over any number of sessions. (Otherwise a flush overtakes a refused append; the client takes the append for lost and
   repeats it, and both are committed.)
4. *A client may know more than this server.* A mount or a question with a newer generation than that of the last
   session waits for a session of the newer generation: another owner may have committed transactions between the two. A
   question also waits while no session is open, because there may be another owner. A mount or feed request from beyond
   the high-water mark waits for a proof that the mark is the end of the log: the answer to such a client is final.
5. *Everything is bounded* (L4). When too many requests wait for commits, no further request is examined. When too many
   questions wait, or too many clients from beyond the mark, the last ones are answered "unknown". The memory of the
   line is counted here, and limited by the owner of the sequencer.
6. *A fence stands alone.* All requests before a fence are decided before the fence is carried out, and until then no
   request after it is examined. (Otherwise an append of an older write session gets an id after the fence.) A fence too
   soon after another fence waits aside, without a delay of other requests.
"""

import itertools
from collections import deque
from collections.abc import Sequence
from enum import Enum
from heapq import heappop, heappush
from operator import itemgetter
from typing import NamedTuple

from waltz.common.ids import GENERATION_PART, ReqId
from waltz.common.wire.client_server import MountRequest
from waltz.server.partition.locks import Conflict
from waltz.server.requests.appends import AppendCall
from waltz.server.requests.link import ClientLink
from waltz.server.requests.pending import AnyFeedRequest, Awaits, Pending

MAX_RUN = 256
"""The largest number of appends of one connection that have their turn together."""

LOCKS_PER_REQUEST = 10
"""The number of locks whose check takes about as long as all other work of a request."""

_COMPACT_FROM = 1000
"""The length of the line from which on abandoned requests are removed."""


class Verdict(Enum):
    """Possible answers to a request."""

    READY = "what it asks for"
    AHEAD = "its client has applied more than is in the log"
    UNKNOWN = "nothing can be said at present"


class Turn(NamedTuple):
    """The next request to process."""

    pending: Pending
    appends: list[AppendCall]
    """For an append: the append, and the following appends of the same connection, generation and write session with
    the same answer to whether the audit has noted them. Otherwise empty."""
    work: int
    """The amount of work, in units of an ordinary request."""


class Sequencer:
    """The requests of one partition that cannot be answered yet."""

    def __init__(self, max_waiting: int) -> None:
        """``max_waiting`` limits the number of requests that wait for commits, of requests that wait for proof, and of
        questions."""
        self.high_water_mark: int | None = None
        """The last committed transaction; None before the first session."""
        self.generation = -1
        """The generation of the last opened session."""
        self.session_open = False
        self.size_bytes = 0
        """The approximate memory of the requests that wait for their turn or for a commit."""
        self._max_waiting = max_waiting
        self._orders = itertools.count()
        self._line: deque[Pending] = deque()
        self._compact_at = _COMPACT_FROM
        self._commits: list[tuple[int, Pending]] = []  # a heap
        self._unwritten: list[tuple[int, Pending]] = []  # requests of ended sessions, with void ids
        self._early: dict[ClientLink, Pending] = {}  # mounts that wait for a session: the last mount of each connection
        self._questions: dict[Pending, None] = {}
        self._unproved: list[Pending] = []
        self._fence: Pending | None = None

    # The line

    @property
    def waiting_count(self) -> int:
        """The number of requests that wait for their turn."""
        return len(self._line) + len(self._unwritten)

    @property
    def is_free(self) -> bool:
        """Whether an arriving request may be processed immediately."""
        return (  # the same as _may_look, without the call
            not self._line and self.session_open and len(self._commits) < self._max_waiting and self._fence is None
        )

    @property
    def has_turn(self) -> bool:
        """Whether a waiting request may be processed now."""
        return bool(self._line) and self._may_look

    @property
    def _may_look(self) -> bool:
        return self.session_open and len(self._commits) < self._max_waiting and self._fence is None

    def line_up(self, pending: Pending) -> None:
        """Add a request that cannot be examined now, or has to be examined again after all others."""
        pending.awaits = Awaits.TURN
        self._line.append(pending)
        self.size_bytes += pending.size_bytes
        if len(self._line) >= self._compact_at:
            self._compact()

    def take(self) -> Turn:
        """Take the next request."""
        pending = self._pop()
        request = pending.request
        if type(request) is not AppendCall:
            return Turn(pending, [], 1)
        run = [request]
        lock_count = request.lock_count
        line = self._line
        while line and len(run) < MAX_RUN and lock_count <= LOCKS_PER_REQUEST * MAX_RUN:
            following = line[0].request
            if line[0].link is not pending.link or type(following) is not AppendCall:
                break
            if following.req_id[GENERATION_PART] != request.req_id[GENERATION_PART]:
                break
            if line[0].write_session != pending.write_session or line[0].noted != pending.noted:
                break
            run.append(following)
            lock_count += following.lock_count
            self._pop()
        return Turn(pending, run, len(run) + lock_count // LOCKS_PER_REQUEST)

    def _pop(self) -> Pending:
        pending = self._line.popleft()
        self.size_bytes -= pending.size_bytes
        return pending

    def _compact(self) -> None:
        """Remove mounts that were answered "not ready", and requests of closed connections."""
        self.size_bytes -= sum(pending.size_bytes for pending in self._line if pending.abandoned)
        self._line = deque(pending for pending in self._line if not pending.abandoned)
        self._compact_at = max(2 * len(self._line), _COMPACT_FROM)

    # Examining requests

    def refuse(self, link: ClientLink, conflict: Conflict[AppendCall], write_session: int) -> bool:
        """Note that an append was refused by a lock. Returns whether its client may be told now. Otherwise
        :meth:`committed` returns the append later, or the append has its turn again, in its write session."""
        assert self.high_water_mark is not None
        if conflict.estimate <= self.high_water_mark:
            return True
        self._await_commit(conflict.estimate, Pending(link, conflict.request, write_session), conflict.next_id)
        return False

    def look(self, pending: Pending, next_id: int) -> Verdict | None:
        """Examine a request other than an append, before an append gets the id ``next_id``. None if the request has to
        wait."""
        assert self.high_water_mark is not None
        if pending.is_fence and not pending.abandoned:
            self._fence = pending
        if next_id - 1 <= self.high_water_mark or pending.abandoned:
            return self.reached(pending)
        self._await_commit(next_id - 1, pending, next_id)
        return None

    def reached(self, pending: Pending) -> Verdict | None:
        """Note that all appends before a mount, a flush or a fence are decided and fed. None if the request has to wait
        for another event. A fence then waits for :meth:`take_fence` or :meth:`fence_ended`."""
        assert self.high_water_mark is not None
        request = pending.request
        if pending.abandoned:
            self.fence_ended(pending)
            return None
        if pending is self._fence:
            pending.awaits = Awaits.FENCE
            return Verdict.READY
        if type(request) is MountRequest:
            if ReqId(request.req_id).generation > self.generation:
                pending.awaits = Awaits.SESSION
                self._early[pending.link] = pending
                return None
            if request.client_high_water_mark > self.high_water_mark:
                return self.await_proof(pending)
        pending.end()
        return Verdict.READY

    def fence_ended(self, pending: Pending) -> None:
        """Note that a request is answered or abandoned. If it was a fence, later requests may be examined."""
        pending.end()
        if pending is self._fence:
            self._fence = None

    def take_fence(self) -> Pending | None:
        """Note that a store session has begun. Returns the fence that waited for it."""
        fence = self._fence
        if fence is None or fence.awaits is not Awaits.FENCE:
            return None
        self.fence_ended(fence)
        return fence

    def ask(self, pending: Pending) -> Verdict | None:
        """Take a question for the high-water mark. None if the question has to wait."""
        if self.session_open and ReqId(pending.request.req_id).generation <= self.generation:
            pending.end()
            return Verdict.READY
        if len(self._questions) >= self._max_waiting:
            pending.end()
            return Verdict.UNKNOWN
        pending.awaits = Awaits.SESSION
        self._questions[pending] = None
        return None

    def await_proof(self, pending: Pending) -> Verdict | None:
        """Take a mount or feed request from beyond the mark. None if the request has to wait for :meth:`prove`."""
        if len(self._unproved) >= self._max_waiting:
            pending.end()
            return Verdict.UNKNOWN
        pending.awaits = Awaits.PROOF
        self._unproved.append(pending)
        return None

    def take_unproved(self) -> list[Pending]:
        """Take all requests that wait for proof. Only a proof that begins after this call counts."""
        pendings, self._unproved = self._unproved, []
        return pendings

    def prove(self, pending: Pending, proved: bool, next_id: int) -> Verdict | None:
        """Note that the mark was proved to be the end of the log, or could not be proved. None if the request still has
        to wait."""
        assert self.high_water_mark is not None
        request = pending.request
        assert isinstance(request, MountRequest | AnyFeedRequest)
        if pending.abandoned:
            pending.end()
            return None
        if not self.session_open:
            self.line_up(pending)
            return None
        if request.client_high_water_mark <= self.high_water_mark and type(request) is MountRequest:
            return self.look(pending, next_id)
        pending.end()
        if request.client_high_water_mark <= self.high_water_mark:
            return Verdict.READY
        return Verdict.AHEAD if proved else Verdict.UNKNOWN

    def _await_commit(self, transaction_id: int, pending: Pending, next_id: int) -> None:
        pending.awaits = Awaits.COMMIT
        pending.order = next(self._orders)
        pending.next_id = next_id
        heappush(self._commits, (transaction_id, pending))
        self.size_bytes += pending.size_bytes

    # Events of the log

    def session_opened(self, high_water_mark: int, generation: int) -> list[Pending]:
        """Note that a session has begun after the mark. The undecided appends of earlier sessions have been decided
        before.

        Returns the questions that may be answered.
        """
        self.high_water_mark = high_water_mark
        self.generation = generation
        self.session_open = True
        again = self._take_void()
        self._line.extendleft(reversed(again))
        self.size_bytes += sum(pending.size_bytes for pending in again)
        early, self._early = self._early, {}
        for pending in early.values():
            if not pending.answered:
                self.line_up(pending)
        known = [question for question in self._questions if ReqId(question.request.req_id).generation <= generation]
        for question in known:
            del self._questions[question]
            question.end()
        return known

    def session_ended(self, unwritten: Sequence[AppendCall]) -> None:
        """Note that no request may be examined. The ``unwritten`` appends were sent to no replica."""
        self.session_open = False
        again = [
            (append.transaction_id, Pending(append.run.link, append, append.run.write_session)) for append in unwritten
        ]
        self._unwritten += again
        self.size_bytes += sum(pending.size_bytes for _, pending in again)

    def committed(self, high_water_mark: int) -> Sequence[tuple[int, Pending]]:
        """Note that all appends up to the mark are committed. Returns the requests that waited for that, with their
        ids.

        An append among them gets its lock failure, which names the id, directly after that id in the feed. A mount or
        flush goes to :meth:`reached`, after the feed.
        """
        self.high_water_mark = high_water_mark
        commits = self._commits
        if not commits or commits[0][0] > high_water_mark:
            return ()
        decided: list[tuple[int, Pending]] = []
        while commits and commits[0][0] <= high_water_mark:
            decided.append(heappop(commits))
            pending = decided[-1][1]
            self.size_bytes -= pending.size_bytes
            if type(pending.request) is AppendCall:
                pending.end()
        return decided

    def _take_void(self) -> list[Pending]:
        """Take the requests that wait for void ids, and the unwritten appends, in the order of their examination.

        No later append of the same client has been committed before any of these. The next session commits the
        undecided appends of a session from the oldest up to some end; these appends, and all later ones, are beyond
        that end.
        """
        again = [((pending.next_id, 0, pending.order), pending) for _, pending in self._commits]
        again += [((transaction_id, 1, 0), pending) for transaction_id, pending in self._unwritten]
        found = [pending for _, pending in sorted(again, key=itemgetter(0))]
        self.size_bytes -= sum(pending.size_bytes for pending in found)
        self._commits = []
        self._unwritten = []
        if self._fence is not None and self._fence.awaits is Awaits.COMMIT:
            self._fence = None  # it is examined again
        for pending in found:
            if not pending.answered:
                pending.awaits = Awaits.TURN
        return found

    # Ends

    def expire(self, pending: Pending) -> None:
        """Forget a request that was answered elsewhere."""
        self.fence_ended(pending)
        self._questions.pop(pending, None)

    def forget(self, link: ClientLink) -> None:
        """Forget the requests of a closed connection."""
        self._early.pop(link, None)

    def close(self) -> list[Pending]:
        """Stop. Takes all requests except questions. Returns the appends among them in order; they were never sent to a
        replica."""
        self.session_open = False
        left = [*self._take_void(), *self._line]
        self._line.clear()
        self._unproved.clear()
        self._early.clear()
        self._fence = None
        self.size_bytes = 0
        return [pending for pending in left if type(pending.request) is AppendCall]
