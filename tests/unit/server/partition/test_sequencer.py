"""The sequencer against a naive model, and its rules one by one.

The model is a list: of all requests that are not answered, in the order of their arrival. Whatever sessions do, the
next to be looked at is the first in it that has not been looked at in the present session, and a flush is answered
only when no append is before it.
"""

from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.server.fakes import GENERATION, append, channel_of, feed, flush, mount, new_link, req_id
from waltz.common.wire.client_server import HighWaterMarkRequest
from waltz.common.wire.write_sessions import NO_WRITE_SESSION
from waltz.server.partition.locks import Conflict
from waltz.server.partition.sequencer import LOCKS_PER_REQUEST, MAX_RUN, Sequencer, Verdict
from waltz.server.requests.appends import AcceptedRun, AppendCall
from waltz.server.requests.pending import Awaits, Pending


class Arrive(NamedTuple):
    """A request comes: an append that passes, one that is refused because of the newest append or of the oldest that is
    undecided, or a flush."""

    kind: str
    client: int
    busy: bool
    """The log takes nothing at this moment."""


class Work(NamedTuple):
    """Work that takes the given number of turns."""

    turns: int


class Commit(NamedTuple):
    size: int


class Fail(NamedTuple):
    """The session ends, of what it has in hand no replica was given so many; requests arrive; the next session finds
    so many of the others, and so many of somebody else. It may end before anything else happens."""

    unwritten: int
    between: list[Arrive]
    found: int
    foreign: int


arrivals = st.builds(Arrive, st.sampled_from(["pass", "newest", "oldest", "flush"]), st.integers(0, 1), st.booleans())
fails = st.builds(
    Fail, st.integers(0, 4), st.lists(arrivals, max_size=3), st.integers(0, 5), st.sampled_from([0, 0, 3])
)
Step = Arrive | Work | Commit | Fail
steps = st.lists(
    st.one_of(
        arrivals, arrivals, arrivals, st.builds(Work, st.integers(1, 3)), st.builds(Commit, st.integers(1, 4)), fails
    ),
    max_size=40,
)


class Model:
    """Drives a sequencer as a partition does, beside the list."""

    def __init__(self) -> None:
        self.sequencer = Sequencer(max_waiting=5)
        self.links = [new_link(client_id=number) for number in range(2)]
        self.left: dict[int, Pending] = {}
        """What is not answered, by the number of its arrival; dicts keep their order."""
        self.looked_at: set[int] = set()
        """The unanswered requests that were looked at in the running session, or in the last one."""
        self.awaiting: dict[int, int] = {}
        """The unanswered requests that wait for a commit, with its ids."""
        self.hand: list[int] = []
        """The unanswered requests that were given to the log, in order of their ids."""
        self.next_id = 0
        self.arrived = 0
        self.open(0)

    @property
    def mark(self) -> int:
        return self.next_id - 1 - len(self.hand)

    def number(self, pending: Pending) -> int:
        return next(number for number, known in self.left.items() if known.request is pending.request)

    def arrive(self, step: Arrive) -> None:
        link = self.links[step.client]
        number = self.arrived = self.arrived + 1
        locks = {"newest": [1], "oldest": [2]}.get(step.kind, [])
        request = flush(number) if step.kind == "flush" else append(number, write=locks)
        pending = self.left[number] = Pending(link, request)
        if self.sequencer.is_free and not step.busy:
            assert number == self.next_number()
            self.look(pending)
        else:
            self.sequencer.line_up(pending)

    def next_number(self) -> int:
        return next(number for number in self.left if number not in self.looked_at)

    def work(self) -> None:
        turn = self.sequencer.take()
        if not turn.appends:
            assert self.number(turn.pending) == self.next_number()
            self.look(turn.pending)
        for found in turn.appends:
            number = self.next_number()
            assert self.left[number].request is found
            assert self.left[number].link is turn.pending.link
            self.look(self.left[number])

    def look(self, pending: Pending) -> None:
        number = self.number(pending)
        self.looked_at.add(number)
        request = pending.request
        if type(request) is not AppendCall:
            if self.hand:
                self.awaiting[number] = self.next_id - 1
            self.answer(pending, self.sequencer.look(pending, self.next_id))
        elif request.write_locks and self.next_id:
            estimate = self.next_id - (len(self.hand) or 1 if request.write_locks == (2,) else 1)
            if self.sequencer.refuse(pending.link, Conflict(request, estimate, self.next_id), pending.write_session):
                assert not self.hand, "told of what is not committed"
                del self.left[number]
            else:
                self.awaiting[number] = estimate
        else:
            request.transaction_id, request.run = self.next_id, AcceptedRun(pending.link, self.next_id, 1, 0, 0)
            self.next_id += 1
            self.hand.append(number)

    def answer(self, pending: Pending, verdict: Verdict | None) -> None:
        number = self.number(pending)
        if verdict is None:
            assert number in self.awaiting
            return
        assert verdict is Verdict.READY
        before = [self.left[found].request for found in self.left if found < number]
        assert not any(type(request) is AppendCall for request in before), "a flush overtakes an append"
        del self.left[number]

    def commit(self, size: int) -> None:
        committed, self.hand = self.hand[:size], self.hand[size:]
        if not committed:
            return
        for number in committed:
            del self.left[number]
        decided = self.sequencer.committed(self.mark)
        due = sorted((awaited, number) for number, awaited in self.awaiting.items() if awaited <= self.mark)
        assert [(awaited, self.number(pending)) for awaited, pending in decided] == due
        for _, number in due:
            del self.awaiting[number]
        for _, pending in decided:
            if type(pending.request) is AppendCall:
                assert pending.awaits is Awaits.NOTHING
                del self.left[self.number(pending)]
        for _, pending in decided:
            if type(pending.request) is not AppendCall:
                self.answer(pending, self.sequencer.reached(pending))

    def end(self, unwritten: int) -> None:
        keep = max(0, len(self.hand) - unwritten)
        again, self.hand = self.hand[keep:], self.hand[:keep]
        self.next_id -= len(again)
        self.sequencer.session_ended([self.call(number) for number in again])

    def call(self, number: int) -> AppendCall:
        request = self.left[number].request
        assert isinstance(request, AppendCall)
        return request

    def open(self, foreign: int) -> None:
        for number in self.hand:  # known to be absent
            del self.left[number]
        self.next_id += foreign - len(self.hand)
        self.hand = []
        self.looked_at.clear()
        self.awaiting.clear()
        assert self.sequencer.session_opened(self.mark, GENERATION) == []

    def fail(self, step: Fail) -> None:
        self.end(step.unwritten)
        for arrival in step.between:
            self.arrive(arrival)
        self.commit(step.found)
        self.open(step.foreign)

    def take(self, step: Step) -> None:
        if isinstance(step, Arrive):
            self.arrive(step)
        elif isinstance(step, Commit):
            self.commit(step.size)
        elif isinstance(step, Fail):
            self.fail(step)
        else:
            for _ in range(step.turns):
                if self.sequencer.has_turn:
                    self.work()
        waiting = [found for number, found in self.left.items() if number not in self.hand]
        assert self.sequencer.size_bytes == sum(found.size_bytes for found in waiting)
        assert self.sequencer.waiting_count == len(waiting) - len(self.awaiting)


PASS, NEWEST, OLDEST, FLUSH = (Arrive(kind, 0, False) for kind in ("pass", "newest", "oldest", "flush"))

OVERTAKEN = [Fail(0, [PASS, NEWEST, FLUSH], 0, 0), Work(3), Fail(0, [], 0, 0), Work(3)]
"""A refused append and a flush behind it have waited for a session, which ends at once."""

CROSSED = [PASS, PASS, NEWEST, OLDEST, Fail(0, [], 0, 0), Work(2)]
"""The second of two refused appends waits for an older append than the first."""


@settings(max_examples=400, deadline=None)
@example(OVERTAKEN)
@example(CROSSED)
@given(steps)
def test_requests_are_looked_at_in_the_order_of_their_arrival_over_all_sessions(actions: list[Step]) -> None:
    model = Model()
    for action in actions:
        model.take(action)
    for _ in range(1000):
        if not model.left:
            break
        if model.sequencer.has_turn:
            model.work()
        else:
            model.commit(1)
    assert not model.left, "nobody is forgotten"
    assert model.sequencer.size_bytes == model.sequencer.waiting_count == 0


@settings(max_examples=100, deadline=None)
@given(steps, st.integers(0, 3))
def test_what_no_replica_was_given_is_left_in_order_at_the_end(actions: list[Step], unwritten: int) -> None:
    model = Model()
    for action in actions:
        model.take(action)
    model.end(unwritten)
    left = [found.request for number, found in model.left.items() if number not in model.hand]
    expected = [request for request in left if type(request) is AppendCall]
    assert [pending.request for pending in model.sequencer.close()] == expected
    assert model.sequencer.size_bytes == model.sequencer.waiting_count == 0


# Rule by rule


def opened(mark: int = 9, max_waiting: int = 100) -> Sequencer:
    sequencer = Sequencer(max_waiting)
    sequencer.session_opened(mark, GENERATION)
    return sequencer


def state(sequencer: Sequencer) -> tuple[bool, bool]:
    return sequencer.is_free, sequencer.has_turn


def test_nothing_is_looked_at_without_a_session() -> None:
    sequencer = Sequencer(10)
    sequencer.line_up(Pending(new_link(), append(1)))
    assert state(sequencer) == (False, False)
    sequencer.session_opened(-1, GENERATION)
    assert state(sequencer) == (False, True), "somebody was here before"
    sequencer.take()
    assert state(sequencer) == (True, False)


def test_a_run_is_of_one_connection_and_generation() -> None:
    sequencer, one, other = opened(), new_link(), new_link(client_id=2)
    for pending in [
        Pending(one, append(1)),
        Pending(one, append(2)),
        Pending(other, append(3)),
        Pending(other, append(4, generation=GENERATION + 1)),
        Pending(other, flush(5)),
        Pending(other, append(6)),
    ]:
        sequencer.line_up(pending)
    turns = [sequencer.take() for _ in range(5)]
    assert [[found.header for found in turn.appends] for turn in turns] == [[1, 2], [3], [4], [], [6]]
    assert [turn.work for turn in turns] == [2, 1, 1, 1, 1]


def test_a_turn_is_no_longer_than_a_run_or_its_locks_allow() -> None:
    sequencer, link = opened(), new_link()
    for number in range(MAX_RUN + 1):
        sequencer.line_up(Pending(link, append(number)))
    assert [len(sequencer.take().appends) for _ in range(2)] == [MAX_RUN, 1]
    many = range(LOCKS_PER_REQUEST * MAX_RUN + 1)
    for number in range(3):
        sequencer.line_up(Pending(link, append(number, write=many)))
    turn = sequencer.take()
    assert len(turn.appends) == 1
    assert turn.work == 1 + len(many) // LOCKS_PER_REQUEST


def test_a_lock_failure_is_told_at_once_or_with_the_commit() -> None:
    sequencer, link = opened(9), new_link()
    assert sequencer.refuse(link, Conflict(append(1), 9, 10), NO_WRITE_SESSION)
    later, sooner = append(2), append(3)
    assert not sequencer.refuse(link, Conflict(later, 11, 12), NO_WRITE_SESSION)
    assert not sequencer.refuse(link, Conflict(sooner, 10, 12), NO_WRITE_SESSION)
    assert [(found, pending.request) for found, pending in sequencer.committed(10)] == [(10, sooner)]
    assert [(found, pending.request) for found, pending in sequencer.committed(13)] == [(11, later)]
    assert not sequencer.committed(14)


def test_when_too_many_wait_for_commits_nothing_is_looked_at() -> None:
    sequencer, link = opened(9, max_waiting=2), new_link()
    for number in range(2):
        assert state(sequencer) == (True, False)
        sequencer.refuse(link, Conflict(append(number), 10, 11), NO_WRITE_SESSION)
    sequencer.line_up(Pending(link, append(3)))
    assert state(sequencer) == (False, False)
    sequencer.committed(10)
    assert state(sequencer) == (False, True)


def test_a_mount_of_a_newer_generation_waits_for_a_session_of_it() -> None:
    sequencer, mounting = opened(), Pending(new_link(), mount(1, 9, generation=GENERATION + 1))
    assert sequencer.look(mounting, 10) is None
    assert mounting.awaits is Awaits.SESSION
    sequencer.session_ended([])
    sequencer.session_opened(9, GENERATION + 1)
    assert sequencer.take().pending is mounting
    assert sequencer.look(mounting, 10) is Verdict.READY
    assert mounting.answered


def test_a_mount_of_a_newer_generation_goes_with_its_connection_or_its_time() -> None:
    sequencer, links = opened(), [new_link(), new_link(client_id=2)]
    mounts = [Pending(link, mount(1, 9, generation=GENERATION + 1)) for link in links]
    for mounting in mounts:
        sequencer.look(mounting, 10)
    sequencer.forget(links[0])
    sequencer.expire(mounts[1])
    sequencer.session_opened(9, GENERATION + 1)
    assert not sequencer.has_turn


@pytest.mark.parametrize("generation", [GENERATION, GENERATION + 1])
def test_a_question_waits_for_a_mark_of_its_generation(generation: int) -> None:
    sequencer = Sequencer(1)
    asking, another = (
        Pending(new_link(), HighWaterMarkRequest(req_id(number, generation=generation))) for number in (1, 2)
    )
    assert sequencer.ask(asking) is None
    assert sequencer.ask(another) is Verdict.UNKNOWN, "too many"
    assert sequencer.session_opened(9, GENERATION) == ([asking] if generation == GENERATION else [])
    assert sequencer.session_opened(9, generation) == ([] if generation == GENERATION else [asking])
    assert sequencer.ask(Pending(new_link(), HighWaterMarkRequest(req_id(3)))) is Verdict.READY


def test_a_mark_is_told_only_while_a_session_is_open() -> None:
    sequencer = opened()
    assert sequencer.ask(Pending(new_link(), HighWaterMarkRequest(req_id(1)))) is Verdict.READY
    sequencer.session_ended([])
    asking = Pending(new_link(), HighWaterMarkRequest(req_id(2)))
    assert sequencer.ask(asking) is None, "another owner may have come"
    assert sequencer.session_opened(12, GENERATION) == [asking]


def test_a_question_that_was_answered_otherwise_makes_room() -> None:
    sequencer = Sequencer(1)
    asking, another = (Pending(new_link(), HighWaterMarkRequest(req_id(number))) for number in (1, 2))
    sequencer.ask(asking)
    sequencer.expire(asking)
    assert sequencer.ask(another) is None
    assert sequencer.session_opened(9, GENERATION) == [another]


@pytest.mark.parametrize(
    ("mark", "proved", "verdict"),
    [(9, True, Verdict.AHEAD), (9, False, Verdict.UNKNOWN), (11, True, Verdict.READY), (11, False, Verdict.READY)],
)
def test_a_client_from_beyond_the_mark_is_answered_after_proof(mark: int, proved: bool, verdict: Verdict) -> None:
    sequencer = opened(9)
    mounting, feeding = Pending(new_link(), mount(1, 10)), Pending(new_link(), feed(1, 10))
    assert sequencer.look(mounting, 10) is None
    assert sequencer.await_proof(feeding) is None
    assert mounting.awaits is feeding.awaits is Awaits.PROOF
    assert sequencer.take_unproved() == [mounting, feeding]
    assert sequencer.take_unproved() == []
    if mark > 9:
        sequencer.committed(mark)
    assert [sequencer.prove(pending, proved, mark + 1) for pending in (mounting, feeding)] == [verdict, verdict]


def test_a_client_from_beyond_the_mark_has_its_turn_again_when_the_session_has_ended() -> None:
    sequencer, mounting = opened(9), Pending(new_link(), mount(1, 10))
    sequencer.look(mounting, 10)
    sequencer.take_unproved()
    sequencer.session_ended([])
    assert sequencer.prove(mounting, True, 10) is None
    sequencer.session_opened(10, GENERATION)
    assert sequencer.take().pending is mounting
    assert sequencer.look(mounting, 11) is Verdict.READY


def test_of_too_many_clients_from_beyond_the_mark_the_last_are_told_nothing() -> None:
    sequencer = opened(9, max_waiting=1)
    assert [sequencer.look(Pending(new_link(), mount(number, 10)), 10) for number in (1, 2)] == [None, Verdict.UNKNOWN]


def test_a_request_whose_connection_has_closed_is_dropped_but_an_append_is_executed() -> None:
    sequencer, link = opened(), new_link()
    flushing = Pending(link, flush(1))
    sequencer.line_up(flushing)
    sequencer.line_up(Pending(link, append(2)))
    channel_of(link).abort()
    assert sequencer.look(sequencer.take().pending, 10) is None
    assert flushing.answered
    assert [found.header for found in sequencer.take().appends] == [2]


def test_what_was_answered_otherwise_does_not_pile_up_in_the_line() -> None:
    sequencer, link = Sequencer(10), new_link()
    sequencer.line_up(Pending(link, append(0)))
    for number in range(5000):
        mounting = Pending(link, mount(number, -1))
        sequencer.line_up(mounting)
        sequencer.expire(mounting)
        assert sequencer.waiting_count <= 1000
    sequencer.session_opened(-1, GENERATION)
    assert [found.header for found in sequencer.take().appends] == [0]
