"""The state of a replica for every kind of evidence, and whom to believe where two say different things."""

from collections.abc import Mapping

import pytest

from tests.unit.operations.survey.test_checks import MEMBER, WELL, metadata, with_report, with_states, with_storage
from waltz.common.replica_states import REMEDIES, ReplicaStatus
from waltz.common.storage_health import StorageHealth
from waltz.common.wire.lags import PartitionLags, ReplicaLag
from waltz.operations.survey.replica_judgement import (
    StorageFacts,
    SurveyedReplica,
    Told,
    admin_address,
    judge_replicas,
    lacks_record,
    owner_lags,
    with_owner_view,
)
from waltz.operations.survey.survey import Survey

FULL = "[Errno 28] No space left on device"
OFF = with_storage(a={0: False}, b={0: True}, c={0: True})._replace(admin_ports={"a:1": 2})


def told(**facts: StorageFacts) -> Told:
    """Of storage a; 9 is committed, and 7 was a moment before."""
    return Told({f"{name}:1": each for name, each in facts.items()}, {0: 9}, {0: 7})


@pytest.mark.parametrize(
    ("survey", "evidence", "state", "lag", "cause"),
    [
        (WELL, Told(), "current", None, None),
        (WELL, told(a=StorageFacts({0: 9})), "current", 0, None),
        (WELL, told(a=StorageFacts({0: 7}, session_ids={0: 7})), "current", 0, None),
        (WELL, told(a=StorageFacts({0: 6})), "lagging", 3, "lacks 3 committed transactions"),
        (WELL, told(a=StorageFacts({0: 9}, session_ids={0: 6})), "lagging", 0, "knows of session 6 only"),
        (
            WELL,
            Told({"a:1": StorageFacts({0: 6})}, {}, {0: 7}),
            "lagging",
            1,
            "lacks 1 committed transaction",
        ),
        (WELL, Told({"a:1": "no answer"}), "current", None, "did not tell what it holds: no answer"),
        (with_storage(a="refused"), told(), "away", None, "its storage does not answer: refused"),
        (WELL._replace(storage_reports={}), told(), "away", None, "its storage does not answer: it was not asked"),
        (
            with_report(storages={"a:1": False}),
            told(a=StorageFacts({0: 9})),
            "away",
            0,
            "server host1:5000 does not reach it",
        ),
        (with_storage(a={}), told(), "offline", None, "missing"),
        (OFF, told(), "offline", None, "offline: switched off, or out of service"),
        (OFF, told(a=StorageFacts(available={0: False})), "offline", None, "switched off"),
        (
            OFF,
            told(a=StorageFacts(available={0: True}, health=StorageHealth({0: FULL}))),
            "offline",
            None,
            f"out of service: {FULL}",
        ),
        (
            with_states(a=(6, 3), b=MEMBER, c=MEMBER),
            told(a=StorageFacts({0: 9})),
            "behind",
            0,
            "it is no member of the present session 7",
        ),
        (with_states(b=MEMBER, c=MEMBER), told(), "behind", None, "it is no member of the present session 7"),
        (
            with_report(healthy="no")._replace(metadata={0: None}),
            Told(),
            "behind",
            None,
            "there has been no store session yet",
        ),
        (WELL._replace(metadata={0: None}), told(a=StorageFacts({0: 9})), "current", 0, None),
    ],
)
def test_every_kind_of_evidence(survey: Survey, evidence: Told, state: str, lag: int | None, cause: str | None) -> None:
    replica = judge_replicas(survey, 0, evidence)[0]
    assert (replica.storage, replica.state, replica.lag, replica.cause) == ("a:1", state, lag, cause)
    assert (replica.do is None) == (state == "current")


def test_what_mends_a_replica_that_is_offline() -> None:
    def do(facts: StorageFacts) -> str | None:
        return judge_replicas(OFF, 0, told(a=facts))[0].do

    assert do(StorageFacts(available={0: False})) == "waltz storage availability -s a:2 -p 0 -o true"
    full = StorageFacts(available={0: True}, health=StorageHealth({0: FULL}))
    assert do(full) == "make room on the disk; then waltz storage sync-partitions"
    assert do(StorageFacts()) == "look at /health of the storage"
    assert admin_address(OFF, "b:1") == admin_address(OFF, "nonsense") == "HOST:ADMIN_PORT"


@pytest.mark.parametrize(
    ("survey", "evidence", "expected"),
    [
        (WELL._replace(metadata={0: None}), Told(), True),
        (WELL, Told(), False),
        (with_report(healthy={0: False})._replace(metadata={0: None}), Told(), False),
        (with_report(healthy={0: False})._replace(metadata={0: None}), Told(marks={0: -1}), False),
        (with_report(healthy={0: False})._replace(metadata={0: None}), Told(marks={0: 0}), True),
        (
            with_report(healthy="no")._replace(metadata={0: None}),
            Told({"b:1": StorageFacts(session_ids={0: 4}), "c:1": "no"}),
            True,
        ),
        (
            with_report(healthy="no")._replace(metadata={0: None}),
            Told({"b:1": StorageFacts(session_ids={0: -1}), "d:1": StorageFacts(session_ids={0: 4})}),
            False,
        ),
        (WELL._replace(metadata={0: metadata({})}), Told(marks={0: 5}), False),
    ],
)
def test_a_record_that_is_gone(survey: Survey, evidence: Told, expected: bool) -> None:
    assert lacks_record(survey, 0, evidence) is expected


@pytest.mark.parametrize(
    ("found", "status", "lag", "expected"),
    [
        (("current", None), ReplicaStatus.CURRENT, 3, ("current", 0)),
        (("behind", 812), ReplicaStatus.COPYING, 800, ("copying", 800)),
        (("current", 0), ReplicaStatus.AWAY, None, ("away", None)),
        (("away", None), ReplicaStatus.AWAY, 12, ("away", 12)),
        (("away", None), ReplicaStatus.CURRENT, 0, ("current", 0)),
        (("offline", None), ReplicaStatus.AWAY, None, ("offline", None)),
        (("lagging", 7), ReplicaStatus.CURRENT, 0, ("lagging", 7)),
    ],
)
def test_the_owner_knows_best_but_for_what_the_storage_shows(
    found: tuple[str, int | None], status: ReplicaStatus, lag: int | None, expected: tuple[str, int | None]
) -> None:
    replica = with_owner_view(SurveyedReplica("a:1", *found), status, lag)
    assert (replica.state, replica.lag) == expected
    if status not in (ReplicaStatus.CURRENT, ReplicaStatus(found[0])) and expected[0] != found[0]:
        assert (replica.do, replica.section) == REMEDIES[status]


def test_the_owner_tells_the_age_of_what_a_replica_lacks() -> None:
    lags = PartitionLags(0, 3, 250, [ReplicaLag("a:1", 2, 1500), ReplicaLag("b:1", 0, 0), ReplicaLag("c:1", -1, -1)])
    evidence = told(a=StorageFacts({0: 3}), b=StorageFacts({0: 3}), c=StorageFacts({0: 9}))
    survey = with_lags({0: lags})
    first, second, third = judge_replicas(survey, 0, evidence)
    assert (first.state, first.lag, first.lag_s) == ("lagging", 6, 1.5)
    assert (second.lag, second.lag_s) == (6, None), "its owner takes it for current"
    assert (third.state, third.lag_s) == ("current", 0.0)
    assert owner_lags(survey, 0) == lags
    for silent in (with_lags({}), with_lags("it does not tell"), with_lags({0: lags})._replace(owners={})):
        assert owner_lags(silent, 0) is None
        assert judge_replicas(silent, 0, evidence)[0].lag_s is None


def test_the_owners_age_counts_beside_its_view() -> None:
    found = SurveyedReplica("a:1", "behind", 812, lag_s=3.0)
    assert with_owner_view(found, ReplicaStatus.COPYING, 800, 4.5).lag_s == 4.5
    assert with_owner_view(found, ReplicaStatus.COPYING, 800).lag_s == 3.0
    assert with_owner_view(found, ReplicaStatus.CURRENT, 0, 0.0).lag_s == 0.0


def with_lags(lags: Mapping[int, PartitionLags] | str) -> Survey:
    """The well cluster whose servers tell these lags."""
    return WELL._replace(
        server_reports={each: report._replace(lags=lags) for each, report in WELL.server_reports.items()}
    )
