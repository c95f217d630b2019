"""What the console says is wrong, and in which order."""

import pytest

from tests.unit.console.fakes import cluster, in_trouble
from waltz.console.problems import CRITICAL, WARNING, WORDS, find_problems, ranges, severity_of, shortened
from waltz.survey.checks import Check
from waltz.survey.cluster_state import NO_REPLICA


def test_a_cluster_that_is_well_has_no_problems() -> None:
    state = cluster(12)
    assert find_problems(state) == []
    assert {severity_of(partition) for partition in state.partitions} == {None}


def test_the_worst_comes_first_and_partitions_are_put_together() -> None:
    problems = find_problems(in_trouble(cluster(100)))
    assert [(each.severity, each.text) for each in problems] == [
        (CRITICAL, "partition 17 has no quorum of replicas online: appends wait"),
        (CRITICAL, "partition 17 is not known to be healthy"),
        (WARNING, "storage storage-5.example:55280 does not answer, and holds 60 replicas"),
        (WARNING, "60 partitions have replicas without full part in their store session"),
    ]
    assert problems[0].partitions == "17"
    assert problems[0].detail == "1 of 3 replicas are online: storage-3.example:55280"
    assert problems[2].detail.endswith("connection refused")
    assert problems[3].partitions.startswith("2-4,7-9,")
    assert problems[3].detail.startswith("partition 2, for example: storage storage-5.example:55280 was left in")


@pytest.mark.parametrize(("partitions", "severity"), [(3, CRITICAL), (0, WARNING)])
def test_a_server_that_does_not_answer_is_worse_when_it_owns_something(partitions: int, severity: str) -> None:
    state = cluster(12)
    silent = state.servers[1]._replace(version=None, partitions=partitions, reason="connection refused")
    problems = find_problems(state._replace(servers=(state.servers[0], silent)))
    assert problems == [(severity, "server 2 (server-2.example:55180) does not answer", "", "connection refused")]


def test_every_check_has_words() -> None:
    assert set(WORDS) == {NO_REPLICA, *(check.name for check in Check)}
    assert [words.severity for words in WORDS.values()] == sorted(words.severity for words in WORDS.values())


def test_long_texts_are_cut() -> None:
    assert shortened("a" * 300) == "a" * 300
    assert shortened("a" * 301) == "a" * 299 + "…"
    assert len(ranges(range(0, 2000, 2))) == 300


@pytest.mark.parametrize(
    ("partition_ids", "text"),
    [([], ""), ([7], "7"), ([0, 1, 2], "0-2"), ([0, 2, 3, 9], "0,2-3,9")],
)
def test_ranges(partition_ids: list[int], text: str) -> None:
    assert ranges(partition_ids) == text
