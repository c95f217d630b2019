"""Bytes that move tell a slow line from a dead one."""

from hypothesis import given
from hypothesis import strategies as st

from waltz.client.engine.links.silence import Silence
from waltz.common.net.guard import MIN_PROGRESS_BYTES

LOOK_S = 5
QUESTION_BYTES = 20

amounts = st.integers(0, 50) | st.integers(0, 3 * MIN_PROGRESS_BYTES)


def test_a_request_that_is_still_leaving_is_not_late() -> None:
    silence = Silence(now_s=0)
    silence.expect(taken_bytes=1000, now_s=1)
    silence.look(taken_bytes=1000, left_bytes=500, received_bytes=0, now_s=20)
    assert silence.quiet_s(25) == 5
    silence.look(taken_bytes=2500, left_bytes=1500, received_bytes=0, now_s=30)
    silence.look(taken_bytes=2500, left_bytes=2500, received_bytes=0, now_s=40)
    assert silence.quiet_s(40) == 10, "what leaves at once behind the request says nothing about its answer"


def test_what_comes_shows_life_and_a_whole_message_is_an_answer() -> None:
    silence = Silence(now_s=0)
    silence.expect(taken_bytes=10, now_s=1)
    assert silence.look(taken_bytes=10, left_bytes=10, received_bytes=1, now_s=20)
    assert silence.quiet_s(20) == 0
    assert not silence.look(taken_bytes=10, left_bytes=10, received_bytes=1, now_s=30)
    silence.answered()
    assert not silence.expecting
    silence.expect(taken_bytes=20, now_s=100)
    assert silence.quiet_s(101) == 1
    silence.excuse(now_s=200)
    assert silence.quiet_s(200) == 0


@given(st.integers(MIN_PROGRESS_BYTES // LOOK_S, 10 * MIN_PROGRESS_BYTES), st.integers(0, 100), st.integers(0, 4))
def test_a_line_on_which_something_large_leaves_is_never_quiet(rate: int, portions: int, start_s: int) -> None:
    """Behind a small request that the server cannot answer yet, and among questions that are repeated."""
    silence = Silence(now_s=0)
    large_bytes = portions * MIN_PROGRESS_BYTES
    silence.expect(QUESTION_BYTES, now_s=0)
    taken = QUESTION_BYTES + large_bytes
    for now_s in range(start_s, 1000, LOOK_S):
        left = min(rate * now_s, taken)
        taken += QUESTION_BYTES
        silence.expect(taken, now_s)
        silence.look(taken, left, 0, now_s)
        if left < large_bytes:
            assert silence.quiet_s(now_s) <= 3 * LOOK_S


@given(st.lists(st.integers(0, MIN_PROGRESS_BYTES - 1), min_size=2, max_size=20), st.booleans())
def test_questions_that_are_repeated_to_a_peer_that_takes_them_show_no_life(sizes: list[int], soon: bool) -> None:
    silence = Silence(now_s=0)
    silence.expect(QUESTION_BYTES, now_s=0)
    silence.look(QUESTION_BYTES, QUESTION_BYTES, 0, now_s=0)
    taken = [QUESTION_BYTES, QUESTION_BYTES]
    for step, size_bytes in enumerate(sizes, 1):
        taken.append(taken[-1] + size_bytes)
        left = taken[-2] if soon else taken[-3]  # acknowledged within a look, or within two
        silence.look(taken[-1], left, 0, now_s=step * LOOK_S)
        assert silence.quiet_s(step * LOOK_S) == step * LOOK_S


@given(st.integers(QUESTION_BYTES, 1000), st.lists(st.integers(0, 100), min_size=1, max_size=20))
def test_what_something_in_between_has_room_for_shows_no_life(room_bytes: int, sizes: list[int]) -> None:
    silence = Silence(now_s=0)
    taken = QUESTION_BYTES
    silence.expect(taken, now_s=0)
    silence.look(taken, taken, 0, now_s=0)
    for step, size_bytes in enumerate(sizes, 1):
        silence.look(taken, min(taken, room_bytes), 0, now_s=step * LOOK_S)
        taken += size_bytes
        assert silence.quiet_s(step * LOOK_S) == step * LOOK_S


@given(
    st.integers(1, 2 * MIN_PROGRESS_BYTES),
    st.lists(
        st.tuples(amounts, amounts, st.integers(0, 3), st.integers(1, 20)),
        min_size=1,
        max_size=20,
    ),
)
def test_quiet_is_the_time_since_something_that_matters_moved(
    end_bytes: int, looks: list[tuple[int, int, int, int]]
) -> None:
    silence = Silence(now_s=0)
    silence.expect(end_bytes, now_s=0)
    history = [(0, 0)]  # handed over and left, at each look
    now_s = received = moved_at_s = 0
    taken = end_bytes
    for handed_over, leaves, came, pause_s in looks:
        now_s += pause_s
        taken += handed_over
        left = min(history[-1][1] + leaves, taken)
        was_here, before_last = history[-1][0], history[-2:][0][0]
        waited = max(was_here - left, before_last - history[-1][1]) >= MIN_PROGRESS_BYTES
        if came or (left > history[-1][1] and (history[-1][1] < end_bytes or waited)):
            moved_at_s = now_s
        history.append((taken, left))
        received += came
        assert silence.look(taken, left, received, now_s) == bool(came)
        assert silence.quiet_s(now_s) == now_s - moved_at_s
