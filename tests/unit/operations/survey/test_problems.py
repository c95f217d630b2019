"""What the console says is wrong, and in which order."""

import pytest

from tests.unit.console.fakes import cluster, in_trouble
from waltz.operations.survey.checks import Check
from waltz.operations.survey.cluster_state import NO_RECORD, NO_REPLICA
from waltz.operations.survey.problems import CRITICAL, WARNING, WORDS, failed_checks, find_problems, shortened


def test_a_cluster_that_is_well_has_no_problems() -> None:
    state = cluster(12)
    assert find_problems(state) == []
    assert all(failed_checks(partition, set()) == [] for partition in state.partitions)


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
    (problem,) = problems
    assert problem[:4] == (severity, "server server-2.example:55180 does not answer", "", "connection refused")
    assert (problem.section, problem.check, problem.title) == ("server-down", None, problem.text)


@pytest.mark.parametrize(
    ("silent", "reasons", "is_told"),
    [
        ({"storage-1"}, ["storage-1 did not tell"], False),
        (set(), ["storage-1 is to hold it"], True),
        (
            {"storage-1"},
            ["storage-1 did not tell", "storage-9 holds it"],
            True,
        ),
        ({"storage-9"}, ["storage-1 is to hold it"], True),
    ],
)
def test_what_silent_storages_do_not_tell_is_their_trouble(silent: set[str], reasons: list[str], is_told: bool) -> None:
    name = Check.PARTITION_ASSIGNMENT_ZK_STORAGE_CONSISTENCY.name
    partition = cluster(1).partitions[0]._replace(problems=(name,), reasons={name: reasons})
    assert failed_checks(partition, {f"{each}.example:55280" for each in silent}) == [name] * is_told


def test_the_worst_check_comes_first() -> None:
    names = (Check.REPLICA_RECOVERY_STATUS.name, Check.PARTITION_QUORUM_STATUS.name)
    partition = cluster(1).partitions[0]._replace(problems=names, reasons={name: ["why"] for name in names})
    assert failed_checks(partition, set()) == list(reversed(names))


def test_every_check_has_words() -> None:
    assert set(WORDS) == {NO_REPLICA, NO_RECORD, *(check.name for check in Check)}
    assert [words.severity for words in WORDS.values()] == sorted(words.severity for words in WORDS.values())


def test_long_texts_are_cut() -> None:
    assert shortened("a" * 300) == "a" * 300
    assert shortened("a" * 301) == "a" * 299 + "…"
