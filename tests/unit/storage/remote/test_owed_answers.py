"""When an answer is late, and when a connection is silent, compared with a model that remembers everything."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.storage.remote.owed_answers import (
    HIDDEN_BYTES,
    MAX_ANSWER_TIMES_S,
    MAX_OVERTAKEN_LIMITS,
    MAX_WAIT_S,
    MIN_BYTES_PER_S,
    OwedAnswers,
)

LONGEST_ALLOWANCE_S = HIDDEN_BYTES / MIN_BYTES_PER_S + MAX_ANSWER_TIMES_S
SILENT_AFTER_S = 5.0
MIB = 1 << 20


@dataclass
class Sent:
    size_bytes: int
    position: int
    timeout_s: float
    sent_s: float
    progress_s: float = 0.0
    overtaken_s: float = 0.0


@st.composite
def courses(draw: st.DrawFn) -> list[tuple[str, int]]:
    kinds = st.sampled_from(["send", "answer", "leave", "receive", "part", "look", "look", "look"])
    return draw(st.lists(st.tuples(kinds, st.integers(0, 100)), max_size=120))


@given(courses())
def test_a_request_is_late_when_nothing_has_moved_for_it(course: list[tuple[str, int]]) -> None:
    owed: OwedAnswers[int] = OwedAnswers(SILENT_AFTER_S)
    now_s, taken, left, received, receiving = 0.0, 0, 0, 0, False
    arriving: int | None = None
    sent: dict[int, Sent] = {}
    answered: list[int] = []
    seen_received, seen_left, next_seq = 0, 0, 0
    for kind, value in course:
        now_s += 0.001
        if kind == "send":
            size = (value + 1) * 1000 if value < 90 else value * MIB // 10
            taken += size
            owed.sent(next_seq, size, taken, 1.0 + value % 3, now_s, next_seq)
            sent[next_seq] = Sent(size, taken, 1.0 + value % 3, now_s, now_s)
            next_seq += 1 + value % 40
        elif kind == "answer" and sent:
            seq_num = sorted(sent)[value % len(sent)]
            answered.append(sent.pop(seq_num).position)
            assert owed.answered(seq_num, now_s) == seq_num
            received += 20
        elif kind == "leave":
            left = min(taken, left + value * 50_000)
        elif kind == "receive":
            received, receiving = received + value, False
        elif kind == "part":
            received, receiving = received + value, True
            arriving = sorted(sent)[value % len(sent)] if sent and value % 3 else None
        elif kind == "look":
            now_s += value / 100
            verdict = owed.look(now_s, left, received, receiving=receiving, arriving=arriving)
            for seq_num, request in sent.items():
                if any(position < request.position for position in answered) or (left > seen_left < request.position):
                    request.progress_s = now_s
                if receiving and received > seen_received:
                    request.overtaken_s = now_s
                    if arriving in sent and arriving <= seq_num:
                        request.progress_s = now_s
            seen_received, seen_left, answered = received, left, []
            for seq_num in verdict.late:
                assert now_s >= due_s(sent.pop(seq_num))
                assert owed.give_up(seq_num) == seq_num
            for request in sent.values():
                assert now_s < due_s(request) + LONGEST_ALLOWANCE_S
                assert verdict.next_look_s <= due_s(request) + LONGEST_ALLOWANCE_S
            assert len(owed) == len(sent)
            for position in [request.position for request in sent.values()] + [0, taken // 2, taken]:
                before = sum(request.size_bytes for request in sent.values() if request.position <= position)
                assert owed.transfer(position, left).moved_bytes == min(left, position) - before
    assert owed.take_waiters() == list(sent)
    assert not len(owed)


def due_s(request: Sent) -> float:
    """Without the allowance for hidden bytes and long lines."""
    overtaken_s = min(request.overtaken_s, request.sent_s + (MAX_OVERTAKEN_LIMITS - 1) * request.timeout_s)
    return max(request.progress_s, overtaken_s) + request.timeout_s


@given(st.lists(st.integers(1, 40 * MIB), min_size=1, max_size=5), st.floats(0.01, 1.0))
def test_a_connection_on_which_nothing_moves_is_silent_in_bounded_time(sizes: list[int], step_s: float) -> None:
    owed: OwedAnswers[None] = OwedAnswers(SILENT_AFTER_S)
    taken = 0
    for seq_num, size_bytes in enumerate(sizes):
        taken += size_bytes
        owed.sent(seq_num, size_bytes, taken, 1.0, 0.0)
    now_s = 0.0
    probes = 0
    while True:
        now_s += step_s
        verdict = owed.look(now_s, 0, 0, receiving=False)
        probes += verdict.probe
        if verdict.silent:
            break
        assert now_s < SILENT_AFTER_S + LONGEST_ALLOWANCE_S + step_s
    assert now_s >= SILENT_AFTER_S
    assert probes == 1


def test_new_requests_that_leave_do_not_keep_a_connection_alive() -> None:
    owed: OwedAnswers[None] = OwedAnswers(SILENT_AFTER_S)
    silent = False
    for second in range(10):
        owed.sent(second, 100, (second + 1) * 100, 1.0, float(second))
        silent = silent or owed.look(second + 0.5, (second + 1) * 100, 0, receiving=False).silent
    assert silent


def test_a_large_request_keeps_it_alive_as_long_as_it_leaves() -> None:
    owed: OwedAnswers[None] = OwedAnswers(SILENT_AFTER_S)
    owed.sent(0, 32 * MIB, 32 * MIB, 1.0, 0.0)
    for second in range(1, 32):
        verdict = owed.look(float(second), second * MIB, 0, receiving=False)
        assert not verdict.late
        assert not verdict.silent


def test_an_answered_connection_is_never_silent() -> None:
    owed: OwedAnswers[None] = OwedAnswers(SILENT_AFTER_S)
    owed.sent(0, 100, 100, 1.0, 0.0)
    owed.answered(0, 0.5)
    assert not owed
    assert not owed.look(1000.0, 100, 20, receiving=False).silent
    owed.sent(1, 100, 200, 1.0, 2000.0)
    verdict = owed.look(2000.1, 200, 20, receiving=False)
    assert verdict == ([], False, False, verdict.next_look_s)


def test_nothing_is_waited_for_without_end() -> None:
    owed: OwedAnswers[None] = OwedAnswers(SILENT_AFTER_S)
    owed.sent(0, 100, 100, 2.0, 0.0)
    late: list[int] = []
    for second in range(1, round(MAX_WAIT_S) + 2):
        late += owed.look(float(second), 100, second * MIB, receiving=True, arriving=0).late
        assert not late or second >= MAX_WAIT_S
    assert late == [0]


def test_a_request_that_others_overtake_is_not_waited_for_long() -> None:
    """Answers to what was sent later keep coming: the peer has dropped this one."""
    owed: OwedAnswers[None] = OwedAnswers(SILENT_AFTER_S)
    owed.sent(0, 100, 100, 2.0, 0.0)
    late_s = None
    for second in range(1, 60):
        owed.sent(second, 100, 100 + second * 100, 2.0, float(second))
        verdict = owed.look(second + 0.5, 100 + second * 100, second * MIB, receiving=True, arriving=second)
        if 0 in verdict.late:
            late_s = second + 0.5
        owed.answered(second, second + 0.9)
    assert late_s is not None
    assert late_s <= MAX_OVERTAKEN_LIMITS * 2.0 + MAX_ANSWER_TIMES_S + 1


def test_a_request_behind_a_long_answer_is_waited_for() -> None:
    owed: OwedAnswers[None] = OwedAnswers(SILENT_AFTER_S)
    owed.sent(0, 100, 100, 2.0, 0.0)
    owed.sent(1, 100, 200, 2.0, 0.0)
    for second in range(1, 100):
        assert not owed.look(float(second), 200, second * MIB, receiving=True, arriving=0).late


def test_a_look_does_not_walk_through_everything_that_is_owed(monkeypatch: pytest.MonkeyPatch) -> None:
    owed: OwedAnswers[None] = OwedAnswers(SILENT_AFTER_S)
    for number in range(20_000):
        owed.sent(number, 100, (number + 1) * 100, 30.0, 0.0)
    judged = []

    def due_s(*request: float) -> float:
        judged.append(request)
        return 30.0

    monkeypatch.setattr(owed, "_due_s", due_s)
    for number in range(10):
        owed.look(number / 4, 0, 0, receiving=False)
    assert len(judged) == 10


def test_what_is_answered_behind_an_unanswered_request_is_forgotten() -> None:
    owed: OwedAnswers[None] = OwedAnswers(SILENT_AFTER_S)
    owed.sent(0, 100, 100, 500.0, 0.0)
    for number in range(1, 5000):
        owed.sent(number, 100, (number + 1) * 100, 500.0, number / 100)
        owed.answered(number, number / 100 + 0.005)
        owed.look(number / 100 + 0.006, (number + 1) * 100, 20 * number, receiving=False)
    assert sum(map(len, owed._by_timeout.values())) <= 2


def test_a_fast_line_is_given_little_more_time_than_before() -> None:
    """Who has shown 50 MB/s is not waited for as if the line were slow: a dead storage is noticed as soon as ever."""
    owed: OwedAnswers[None] = OwedAnswers(SILENT_AFTER_S)
    owed.sent(0, 500_000, 500_000, 30.0, 0.0)
    owed.answered(0, 0.01)
    for number in range(1, 9):
        owed.sent(number, MIB, 500_000 + number * MIB, 30.0, 0.01)
    position = 500_000 + 8 * MIB
    assert owed.transfer(position, position).allowance_s < 0.2
    assert owed.transfer(500_000 + MIB, position).allowance_s < 0.05


def test_a_long_line_is_given_two_of_its_answer_times() -> None:
    owed: OwedAnswers[None] = OwedAnswers(SILENT_AFTER_S)
    for number in range(10):
        owed.sent(number, 100, (number + 1) * 100, 30.0, float(number))
        owed.look(number + 0.25, (number + 1) * 100, 20 * number, receiving=False)
        owed.answered(number, number + 0.5)
    owed.sent(10, 100, 1100, 30.0, 10.0)
    assert 1.0 <= owed.transfer(1100, 1100).allowance_s < 1.2


def test_a_line_that_has_become_long_is_given_two_of_its_present_answer_times() -> None:
    """What its answers took before says nothing any more: with these times it would be given up between two answers."""
    owed: OwedAnswers[None] = OwedAnswers(SILENT_AFTER_S)
    for number in range(10):
        owed.sent(number, 100, (number + 1) * 100, 30.0, float(number))
        owed.look(number + 0.25, (number + 1) * 100, 20 * number, receiving=False)
        owed.answered(number, number + (0.002 if number < 7 else 0.5))
    owed.sent(10, 100, 1100, 30.0, 10.0)
    assert 1.0 <= owed.transfer(1100, 1100).allowance_s < 1.2


def test_a_line_that_has_become_short_is_given_little_time_at_once() -> None:
    owed: OwedAnswers[None] = OwedAnswers(SILENT_AFTER_S)
    for number, took_s in enumerate((0.5, 0.5, 0.002)):
        owed.sent(number, 100, (number + 1) * 100, 30.0, float(number))
        owed.look(number + 0.25, (number + 1) * 100, 20 * number, receiving=False)
        owed.answered(number, number + took_s)
    owed.sent(3, 100, 400, 30.0, 3.0)
    assert owed.transfer(400, 400).allowance_s < 0.01


def test_the_answer_time_of_a_line_is_known_while_nothing_is_answered() -> None:
    owed: OwedAnswers[None] = OwedAnswers(SILENT_AFTER_S)
    owed.sent(0, 100, 100, 30.0, 0.0)
    owed.answered(0, 0.5)
    owed.sent(1, 100, 200, 30.0, 1.0)
    for quarter in range(8):
        owed.look(1.0 + quarter / 4, 200, 20, receiving=False)
    assert 1.0 <= owed.transfer(200, 200).allowance_s < 1.2


def test_an_unknown_line_gets_time_for_what_may_be_hidden() -> None:
    owed: OwedAnswers[None] = OwedAnswers(SILENT_AFTER_S)
    owed.sent(0, 100, 100, 30.0, 0.0)
    owed.sent(1, 32 * MIB, 100 + 32 * MIB, 30.0, 0.0)
    assert owed.transfer(100, 0).allowance_s < 0.001
    assert owed.transfer(100 + 32 * MIB, 0).allowance_s == HIDDEN_BYTES / MIN_BYTES_PER_S
    before = owed.transfer(100 + 32 * MIB, MIB).moved_bytes
    assert owed.transfer(100 + 32 * MIB, 2 * MIB).moved_bytes == before + MIB
    owed.answered(0, 1.0)
    assert owed.transfer(100 + 32 * MIB, 2 * MIB).moved_bytes == before + MIB + 100


def test_a_late_request_has_its_waiter_told_once_and_its_answer_is_missed_until_it_comes() -> None:
    owed: OwedAnswers[str] = OwedAnswers(SILENT_AFTER_S)
    owed.sent(0, 100, 100, 1.0, 0.0, "waiter")
    owed.look(0.5, 100, 0, receiving=False)
    assert owed.look(20.0, 100, 0, receiving=False).late == [0]
    assert owed.give_up(0) == "waiter"
    assert owed
    assert owed.answered(0, 21.0) is None
    assert not owed


def test_what_was_sent_before_the_clock_was_set_back_was_sent_then() -> None:
    """An answer that seems to come before its request would make every allowance negative, and rising."""
    owed: OwedAnswers[None] = OwedAnswers(SILENT_AFTER_S)
    owed.sent(0, 100, 100, 30.0, 1.0)
    owed.sent(1, 100, 200, 30.0, 4.0)
    owed.set_back(1.5)
    owed.answered(0, 1.75)
    owed.answered(1, 1.75)
    owed.sent(2, 100, 300, 1.0, 1.75)
    assert 0.5 <= owed.transfer(300, 300).allowance_s < 1
    assert not owed.look(2.7, 300, 40, receiving=False).late
    verdict = owed.look(60.0, 300, 40, receiving=False)
    assert verdict.late == [2]


def test_a_first_request_before_the_clock_was_set_back_does_not_hide_silence() -> None:
    owed: OwedAnswers[None] = OwedAnswers(SILENT_AFTER_S)
    owed.sent(0, 100, 100, 30.0, 1000.0)
    owed.set_back(1.0)
    owed.look(1.25, 100, 0, receiving=False)
    assert owed.look(5.0, 100, 0, receiving=False).probe
    assert owed.look(8.0, 100, 0, receiving=False).silent
