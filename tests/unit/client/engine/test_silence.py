"""Bytes that move tell a slow line from a dead one."""

from hypothesis import given
from hypothesis import strategies as st

from waltz.client.engine.silence import Silence


def test_a_request_that_is_still_leaving_is_not_late() -> None:
    silence = Silence(now_s=0)
    silence.expect(taken_bytes=1000, now_s=1)
    silence.look(left_bytes=500, received_bytes=0, now_s=20)
    assert silence.quiet_s(25) == 5
    silence.look(left_bytes=1500, received_bytes=0, now_s=30)
    silence.look(left_bytes=2500, received_bytes=0, now_s=40)
    assert silence.quiet_s(40) == 10, "what leaves behind the request says nothing about its answer"


def test_what_comes_shows_life_and_a_whole_message_is_an_answer() -> None:
    silence = Silence(now_s=0)
    silence.expect(taken_bytes=10, now_s=1)
    assert silence.look(left_bytes=10, received_bytes=1, now_s=20)
    assert silence.quiet_s(20) == 0
    assert not silence.look(left_bytes=10, received_bytes=1, now_s=30)
    silence.answered()
    assert not silence.expecting
    silence.expect(taken_bytes=20, now_s=100)
    assert silence.quiet_s(101) == 1
    silence.excuse(now_s=200)
    assert silence.quiet_s(200) == 0


@given(
    st.integers(1, 100),
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 3), st.integers(1, 20)), min_size=1, max_size=20),
)
def test_quiet_is_the_time_since_something_that_matters_moved(
    end_bytes: int, looks: list[tuple[int, int, int]]
) -> None:
    silence = Silence(now_s=0)
    silence.expect(end_bytes, now_s=0)
    now_s = delivered = received = 0
    moved_at_s = 0
    for sent, came, pause_s in looks:
        now_s += pause_s
        if came or (sent and delivered < end_bytes):
            moved_at_s = now_s
        delivered += sent
        received += came
        assert silence.look(delivered, received, now_s) == bool(came)
        assert silence.quiet_s(now_s) == now_s - moved_at_s
