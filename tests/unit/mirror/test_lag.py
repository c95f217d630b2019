"""How far and for how long a target is behind."""

from hypothesis import given
from hypothesis import strategies as st

from waltz.mirror.lag import NO_LAG, Lag, lag_of

IDS = st.integers(-1, 20)
TIMES = st.integers(0, 100)


@given(IDS, IDS, st.none() | TIMES, st.none() | TIMES, TIMES)
def test_by_what_the_source_tells_or_else_since_it_was_seen(
    mark: int, mirrored: int, commit_ms: int | None, since_ms: int | None, now_ms: int
) -> None:
    found = lag_of(mark, mirrored, commit_ms, Lag(1, since_ms), now_ms)
    if mark <= mirrored:
        assert found == NO_LAG
        assert found.age_ms(now_ms) == 0
        return
    assert found.transactions == mark - mirrored
    known = [each for each in (commit_ms, since_ms, now_ms) if each is not None]
    assert found.behind_since_ms == known[0]
    assert found.age_ms(now_ms) == max(now_ms - known[0], 0), "a clock that goes wrong makes no negative age"


def test_it_grows_while_nobody_answers() -> None:
    lag = lag_of(10, 5, 1000, NO_LAG, 3000)
    assert [lag.age_ms(now_ms) for now_ms in (3000, 4000, 9000)] == [2000, 3000, 8000]
