"""Which checks fail for which fault, and what is said of it."""

from collections.abc import Mapping
from typing import Any

import pytest

from waltz.common.errors import WaltzError
from waltz.common.ids import Endpoint
from waltz.common.zk.znodes import UNRESOLVED, PartitionMetadata, ReplicaId, ReplicaState, ServerDescriptor
from waltz.operations.survey.checks import (
    Check,
    ReplicaReport,
    find_disabled_warnings,
    find_failures,
    find_session_warnings,
    find_stragglers,
)
from waltz.operations.survey.survey import ServerReport, Survey

STORAGES = ("a:1", "b:1", "c:1")
VALIDITY = Check.PARTITION_ASSIGNMENT_ZK_VALIDITY
SERVER = Check.PARTITION_ASSIGNMENT_ZK_SERVER_CONSISTENCY
CONNECTIVITY = Check.SERVER_STORAGE_CONNECTIVITY
STORAGE = Check.PARTITION_ASSIGNMENT_ZK_STORAGE_CONSISTENCY
QUORUM = Check.PARTITION_QUORUM_STATUS
RECOVERY = Check.REPLICA_RECOVERY_STATUS
HEALTH = Check.SERVER_PARTITION_HEALTH_CHECK


def server(server_id: int, *preferred: int) -> ServerDescriptor:
    return ServerDescriptor(server_id, Endpoint(f"host{server_id}", 5000), preferred)


def report(*partition_ids: int, version: int | None = 5) -> ServerReport:
    return ServerReport(
        version, frozenset(partition_ids), dict.fromkeys(STORAGES, True), dict.fromkeys(partition_ids, True)
    )


def metadata(states: Mapping[str, tuple[int, int]], session_id: int = 7) -> PartitionMetadata:
    replicas = {
        ReplicaId(0, storage): ReplicaState(ReplicaId(0, storage), session, mark)
        for storage, (session, mark) in states.items()
    }
    return PartitionMetadata(1, session_id, replicas)


MEMBER = (7, UNRESOLVED)

WELL = Survey(
    partition_count=1,
    servers={1: server(1), 2: server(2)},
    owners={0: (1,)},
    storages={0: frozenset(STORAGES)},
    metadata={0: metadata(dict.fromkeys(STORAGES, MEMBER))},
    server_reports={1: report(0), 2: report()},
    storage_reports={storage: {0: True} for storage in STORAGES},
)


def with_report(**fields: Any) -> Survey:
    return WELL._replace(server_reports={1: report(0)._replace(**fields), 2: report()})


def with_storage(**reports: Any) -> Survey:
    return WELL._replace(storage_reports={f"{name}:1": told for name, told in reports.items()})


def with_states(**states: tuple[int, int]) -> Survey:
    return WELL._replace(metadata={0: metadata({f"{name}:1": state for name, state in states.items()})})


def switched_off(name: str) -> str:
    return f"storage {name}:1 has it switched off (waltz storage availability)"


def test_nothing_fails_where_all_is_well() -> None:
    assert find_failures(WELL, 0) == {}


NOBODY = "there is not exactly one server to be asked"
ONLINE = {0: True}


@pytest.mark.parametrize(
    ("survey", "expected"),
    [
        (
            WELL._replace(owners={}, server_reports={1: report(), 2: report()}),
            {
                VALIDITY: ["the assignment gives it to no server"],
                SERVER: [NOBODY],
                CONNECTIVITY: [NOBODY],
                HEALTH: [NOBODY],
            },
        ),
        (
            WELL._replace(owners={0: (1, 2)}),
            {
                VALIDITY: ["the assignment gives it to servers 1, 2"],
                SERVER: [NOBODY],
                CONNECTIVITY: [NOBODY],
                HEALTH: [NOBODY],
            },
        ),
        (
            WELL._replace(owners={0: (3,)}, server_reports={1: report(), 2: report()}),
            {SERVER: ["server 3 is gone"], CONNECTIVITY: ["server 3 is gone"], HEALTH: ["server 3 is gone"]},
        ),
        (
            WELL._replace(server_reports={1: report(), 2: report(0)}),
            {
                SERVER: [
                    "server 1 (host1:5000) does not have it",
                    "server 2 (host2:5000) has it, without being its owner",
                ],
                HEALTH: ["server 1 (host1:5000) says nothing of its health"],
            },
        ),
        (with_report(partitions="no"), {SERVER: ["server 1 (host1:5000) did not tell its partitions: no"]}),
        (
            with_report(storages="no"),
            {CONNECTIVITY: ["server 1 (host1:5000) did not tell which storages it reaches: no"]},
        ),
        (
            with_report(storages={"b:1": False, "c:1": True}),
            {
                CONNECTIVITY: [
                    "server 1 (host1:5000) does not know storage a:1",
                    "server 1 (host1:5000) does not reach storage b:1",
                ]
            },
        ),
        (with_report(healthy="no"), {HEALTH: ["server 1 (host1:5000) did not tell the health of its partitions: no"]}),
        (with_report(healthy={0: False}), {HEALTH: ["server 1 (host1:5000) calls it unhealthy"]}),
        (
            with_storage(a="no", b={}, c=ONLINE, d=ONLINE, e="no", f={}),
            {
                STORAGE: [
                    "storage a:1 did not tell its partitions: no",
                    "storage b:1 is to hold it and does not (waltz storage sync-partitions)",
                    "storage d:1 holds it and is not to (waltz storage sync-partitions)",
                ],
                QUORUM: ["1 of 3 replicas are online: c:1"],
            },
        ),
        (with_storage(a={0: False}, b=ONLINE, c=ONLINE), {RECOVERY: [switched_off("a")]}),
        (
            with_storage(a={0: False}, b=ONLINE, c={0: False}),
            {QUORUM: ["1 of 3 replicas are online: b:1"], RECOVERY: [switched_off("a"), switched_off("c")]},
        ),
        (
            with_storage(a={0: False}, b={0: False}, c={0: False}),
            {
                QUORUM: ["0 of 3 replicas are online: none"],
                RECOVERY: [switched_off("a"), switched_off("b"), switched_off("c")],
            },
        ),
        (WELL._replace(metadata={0: None}), {RECOVERY: ["it never had a store session"]}),
        (
            with_states(a=MEMBER, b=MEMBER, d=MEMBER),
            {
                RECOVERY: [
                    "the metadata do not list storage c:1, which is to hold it",
                    "the metadata list storage d:1, which is not to hold it",
                ]
            },
        ),
        (
            with_states(a=MEMBER, b=(5, 99), c=(6, UNRESOLVED)),
            {
                RECOVERY: [
                    "storage b:1 was left in session 5, up to transaction 99; session 7 is the present one",
                    "storage c:1 was left in session 6; session 7 is the present one",
                ]
            },
        ),
    ],
)
def test_faults_are_found_by_the_checks_that_are_for_them(survey: Survey, expected: dict[Check, list[str]]) -> None:
    assert find_failures(survey, 0) == expected


def test_half_of_the_replicas_of_the_partition_are_no_quorum_and_those_of_others_do_not_count() -> None:
    two = WELL._replace(
        storages={0: frozenset(STORAGES[:2])},
        metadata={0: metadata(dict.fromkeys(STORAGES[:2], MEMBER))},
        storage_reports={"a:1": ONLINE, "b:1": {0: False}, "c:1": {1: True}, "d:1": {1: True}},
    )
    assert find_failures(two, 0) == {QUORUM: ["1 of 2 replicas are online: a:1"], RECOVERY: [switched_off("b")]}
    one = two._replace(storages={0: frozenset(["a:1"])}, storage_reports={"a:1": ONLINE, "b:1": {}, "c:1": {}})
    assert QUORUM not in find_failures(one, 0)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"a": (7, True), "b": (7, True), "c": (7, True)}, []),
        ({"a": (8, True), "b": (7, None), "d": (1, False)}, []),
        ({"a": (7, False), "b": (7, False), "c": (7, True)}, ["a:1 lacks", "b:1 lacks"]),
        ({"a": (-1, True), "c": (6, None)}, ["a:1 knows of session -1 only", "c:1 knows of session 6 only"]),
        ({"b": (6, False)}, ["b:1 knows of session 6 only", "b:1 lacks"]),
    ],
)
def test_replicas_that_hold_less_than_the_metadata_say(
    told: dict[str, tuple[int, bool | None]], expected: list[str]
) -> None:
    reports = {f"{name}:1": {0: ReplicaReport(*report), 1: ReplicaReport(0, False)} for name, report in told.items()}
    found = find_stragglers(WELL, 0, reports)
    assert [text.removesuffix(" committed transactions") for text in found] == [f"storage {each}" for each in expected]
    assert find_stragglers(WELL._replace(metadata={0: None}, storages={}), 0, reports) == []


def test_a_partition_without_replicas_ends_the_run() -> None:
    with pytest.raises(WaltzError, match="partition 0 has no replica: assign it to storage nodes"):
        find_failures(WELL._replace(storages={}), 0)


def mixed(owner: int, *preferred: int, other_version: int | None = 4) -> Survey:
    """Server 1 is ours, and prefers these partitions; server 2 is of the original."""
    return WELL._replace(
        servers={1: server(1, *preferred), 2: server(2, 0)},
        owners={0: (owner,)},
        server_reports={1: report(), 2: report(version=other_version)},
    )


def test_write_sessions_at_a_server_that_knows_none() -> None:
    (warning,) = find_session_warnings(mixed(owner=2), [0])
    assert warning.startswith(
        "partition 0 has clients with write sessions, and its owner, server 2 (host2:5000), knows none"
    )
    assert warning.endswith("Make the partition a preferred one of a server with version 5")
    assert find_session_warnings(mixed(2, 0), [0]) == [warning]
    assert find_session_warnings(mixed(owner=2), []) == []


def test_write_sessions_that_may_get_to_a_server_that_knows_none() -> None:
    """The other server prefers the partition, which makes it no better."""
    (warning,) = find_session_warnings(mixed(owner=1), [0])
    assert "may move to servers that know none: 2 (host2:5000). Make it a preferred partition" in warning
    assert find_session_warnings(mixed(1, 0), [0]) == []


@pytest.mark.parametrize("owner", [1, 2])
@pytest.mark.parametrize("version", [5, None])
def test_servers_that_know_write_sessions_or_cannot_be_asked_are_no_cause_for_a_warning(
    owner: int, version: int | None
) -> None:
    assert find_session_warnings(mixed(owner, other_version=version), [0]) == []


def test_a_partition_without_an_owner_may_get_one() -> None:
    assert len(find_session_warnings(mixed(1)._replace(owners={}), [0])) == 1
    assert find_session_warnings(WELL._replace(owners={}), [0]) == []


def test_disabled_partitions_at_a_server_that_knows_no_properties() -> None:
    (warning,) = find_disabled_warnings(mixed(owner=2), [0])
    assert warning.startswith(
        "partition 0 is disabled, and its owner, server 2 (host2:5000), takes appends all the same"
    )
    assert find_disabled_warnings(mixed(owner=2), []) == []
    for survey in (mixed(owner=1), mixed(2, other_version=None), mixed(2)._replace(owners={}), mixed(owner=9)):
        assert find_disabled_warnings(survey, [0]) == []
