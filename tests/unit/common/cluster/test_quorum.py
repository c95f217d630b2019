from itertools import product

import pytest

from waltz.common.cluster.quorum import Evidence, can_reach, committed_mark, decide_high_water_mark, quorum_of


@pytest.mark.parametrize("count", range(1, 10))
def test_any_two_quorums_meet_and_none_is_larger_than_needed(count: int) -> None:
    quorum = quorum_of(count)
    assert 2 * quorum > count
    assert 2 * (quorum - 1) <= count


@pytest.mark.parametrize("count", range(1, 10))
def test_a_batch_commits_with_exactly_a_quorum_of_votes(count: int) -> None:
    quorum = quorum_of(count)
    for votes in range(count + 1):
        positions = [7] * votes + [6] * (count - votes)
        assert (committed_mark(positions, quorum) >= 7) is (votes >= quorum)


@pytest.mark.parametrize("count", range(1, 10))
def test_a_batch_waits_until_the_quorum_is_out_of_reach(count: int) -> None:
    """Every combination of voters, replicas that may still vote, and replicas that left without a vote."""
    quorum = quorum_of(count)
    for votes in range(count + 1):
        for gone in range(count - votes + 1):
            positions = [7] * votes + [6] * (count - votes)
            live = [False] * count
            for index in range(votes, count - gone):
                live[index] = True
            assert can_reach(7, positions, live, quorum) is (count - gone >= quorum)
    # One vote short, with as many abstentions as there may be: undecided. One more of either decides.
    positions = [7] * (quorum - 1) + [6] * (count - quorum + 1)
    live = [True] * quorum + [False] * (count - quorum)
    assert committed_mark(positions, quorum) < 7
    assert can_reach(7, positions, live, quorum)
    live[quorum - 1] = False
    assert not can_reach(7, positions, live, quorum)


@pytest.mark.parametrize("count", range(1, 6))
def test_committed_mark_against_its_definition(count: int) -> None:
    quorum = quorum_of(count)
    for positions in product(range(4), repeat=count):
        definition = max(mark for mark in range(4) if sum(p >= mark for p in positions) >= quorum)
        assert committed_mark(positions, quorum) == definition


def test_a_quorum_of_more_than_there_are_is_a_defect() -> None:
    with pytest.raises(ValueError, match="quorum of 2 among 1"):
        committed_mark([1], 2)


def voters(*marks: int) -> list[Evidence]:
    return [Evidence(mark, votes=True, intact=True) for mark in marks]


@pytest.mark.parametrize(
    ("evidence", "count", "expected"),
    [
        (voters(2, 2, 1), 3, 2),
        (voters(2, 1), 3, None),
        (voters(2, 2), 3, 2),
        (voters(3, 2, 2, 1), 5, 2),
        (voters(2, 1, 1), 5, None),
        (voters(2, 2, 2), 5, 2),
        (voters(1), 1, 1),
        (voters(1), 2, None),
        (voters(5, 4), 2, 4),
        ([], 3, None),
        ([Evidence(5, votes=False, intact=True)] * 3, 3, None),
        # Nothing below the lowest mark of a voter is acceptable, however many agree on it.
        ([*voters(5), Evidence(3, False, True), Evidence(3, False, True)], 3, None),
        ([*voters(5), Evidence(5, False, True), Evidence(3, False, True)], 3, 5),
        # A storage that forgot what it acknowledged: absent as a witness, present as a copy.
        ([*voters(2), Evidence(2, False, False)], 3, None),
        ([*voters(2, 1), Evidence(2, False, False)], 3, 2),
        ([*voters(2, 2), Evidence(0, False, False)], 3, 2),
        ([*voters(2), Evidence(2, False, False)], 2, 2),
    ],
)
def test_decision(evidence: list[Evidence], count: int, expected: int | None) -> None:
    assert decide_high_water_mark(evidence, count) == expected


@pytest.mark.parametrize("count", range(1, 6))
def test_no_decision_is_below_what_absent_replicas_could_prove_committed(count: int) -> None:
    """Exhaustive: all marks 0 to 2, all sets of absent replicas, whatever the absent ones hold."""
    quorum = quorum_of(count)
    for marks in product(range(3), repeat=count):
        committed = committed_mark(marks, quorum)
        for present in product((False, True), repeat=count):
            evidence = voters(*(mark for mark, here in zip(marks, present, strict=True) if here))
            decided = decide_high_water_mark(evidence, count)
            assert decided is None or decided >= committed
            if all(present):
                assert decided is not None
