"""What is in flight, against a list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.mirror.window import Window, WindowLimit

STEPS = st.lists(
    st.one_of(st.tuples(st.just("send"), st.integers(0, 60)), st.tuples(st.just("commit"), st.integers(0, 5)))
)


@given(st.integers(-1, 10), st.integers(1, 4), st.integers(1, 100), STEPS)
def test_bounded_in_transactions_and_bytes(start: int, count: int, size: int, steps: list[tuple[str, int]]) -> None:
    window = Window(start, WindowLimit(count, size))
    flying: list[int] = []
    committed = start
    for step, value in steps:
        if step == "send":
            admitted = not flying or (len(flying) < count and sum(flying) + value <= size)
            assert window.admits(value) == admitted
            if admitted:
                window.sent(value)
                flying.append(value)
        else:
            done = min(value, len(flying))
            assert window.committed(committed + done) == (done, sum(flying[:done]))
            committed += done
            del flying[:done]
        assert (window.committed_id, window.size_bytes, window.transactions) == (committed, sum(flying), len(flying))
        assert window.next_id == committed + len(flying) + 1


def test_an_old_mark_changes_nothing() -> None:
    window = Window(7, WindowLimit(10, 10))
    window.sent(1)
    assert window.committed(3) == (0, 0)
    assert (window.committed_id, window.transactions) == (7, 1)


def test_what_was_never_sent_is_of_somebody_else() -> None:
    window = Window(7, WindowLimit(10, 10))
    window.sent(1)
    with pytest.raises(ValueError, match="transaction 9 is committed, and nothing was sent behind 8"):
        window.committed(9)
