"""Whether the store sessions of one owner follow each other, against a model that sees what really happened."""

from hypothesis import given
from hypothesis import strategies as st

from waltz.server.store.session.continuity import Continuity

OURS, UNANSWERED, FOREIGN, RAISED, OPENED = range(5)
"""An id is taken by us, by us without an answer, by another owner; the generation is raised; a session opens."""


def test_the_first_session_follows_none() -> None:
    continuity = Continuity()
    continuity.session_taken(0, 0)
    assert not continuity.session_opened()


def test_a_session_that_came_to_nothing_breaks_nothing() -> None:
    continuity = Continuity()
    continuity.session_taken(4, 1)
    continuity.session_opened()
    continuity.session_taken(5, 1)
    continuity.session_taken(6, 1)
    assert continuity.session_opened()


@given(st.lists(st.sampled_from([OURS, OURS, UNANSWERED, FOREIGN, RAISED, OPENED, OPENED]), max_size=30))
def test_unbroken_if_all_ids_since_the_last_session_are_ours_for_sure(steps: list[int]) -> None:
    continuity = Continuity()
    generation = 3
    taken: list[int | None] = [None] * 10  # of every id the generation in which we took it
    opened, newest = 0, 0
    for step in steps:
        if step == OPENED and newest > opened:
            since = taken[opened : newest + 1]
            assert continuity.session_opened() == (None not in since and len(set(since)) == 1)
            opened = newest
        elif step == OURS:
            newest = len(taken)
            taken.append(generation)
            continuity.session_taken(newest, generation)
        elif step == RAISED:
            generation += 1
        elif step in (UNANSWERED, FOREIGN):
            taken.append(None)
