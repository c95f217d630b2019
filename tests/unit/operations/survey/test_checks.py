"""The checks that fail for each fault, and their reasons."""

from collections.abc import Mapping
from typing import Any

import pytest

from waltz.common.consistency import Consistency
from waltz.common.errors import WaltzError
from waltz.common.ids import Endpoint
from waltz.common.storage_health import StorageHealth
from waltz.common.zk.znodes import UNRESOLVED, PartitionMetadata, ReplicaId, ReplicaState, ServerDescriptor
from waltz.operations.survey.checks import (
    Check,
    find_consistency_warnings,
    find_disabled_warnings,
    find_failures,
    find_preference_warnings,
    find_session_warnings,
    find_storage_ailments,
)
from waltz.operations.survey.replica_judgement import StorageFacts
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


def off(name: str) -> str:
    return f"storage {name}:1 has it offline: switched off, or out of service (look at /health of the storage)"


def test_nothing_fails_where_all_is_well() -> None:
    assert find_failures(WELL, 0) == {}


LOST = (
    "though it has had store sessions: the next session finds no record to begin from; restore it from a backup before "
    "a node restarts (docs/runbook.md#restore-zookeeper)"
)
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
                    "server host1:5000 does not have it",
                    "server host2:5000 has it, without being its owner",
                ],
                HEALTH: ["server host1:5000 does not report its health"],
            },
        ),
        (with_report(partitions="no"), {SERVER: ["server host1:5000 did not report its partitions: no"]}),
        (
            with_report(storages="no"),
            {CONNECTIVITY: ["server host1:5000 did not report which storages it reaches: no"]},
        ),
        (
            with_report(storages={"b:1": False, "c:1": True}),
            {
                CONNECTIVITY: [
                    "server host1:5000 does not know storage a:1",
                    "server host1:5000 does not reach storage b:1",
                ]
            },
        ),
        (with_report(healthy="no"), {HEALTH: ["server host1:5000 did not report the health of its partitions: no"]}),
        (with_report(healthy={0: False}), {HEALTH: ["server host1:5000 calls it unhealthy"]}),
        (
            with_storage(a="no", b={}, c=ONLINE, d=ONLINE, e="no", f={}),
            {
                STORAGE: [
                    "storage a:1 did not report its partitions: no",
                    "storage b:1 is to hold it and does not (waltz storage sync-partitions)",
                    "storage d:1 holds it and is not to (waltz storage sync-partitions)",
                ],
                QUORUM: ["1 of 3 replicas are online: c:1"],
            },
        ),
        (with_storage(a={0: False}, b=ONLINE, c=ONLINE), {RECOVERY: [off("a")]}),
        (
            with_storage(a={0: False}, b=ONLINE, c={0: False}),
            {QUORUM: ["1 of 3 replicas are online: b:1"], RECOVERY: [off("a"), off("c")]},
        ),
        (
            with_storage(a={0: False}, b={0: False}, c={0: False}),
            {
                QUORUM: ["0 of 3 replicas are online: none"],
                RECOVERY: [off("a"), off("b"), off("c")],
            },
        ),
        (
            with_report(healthy={})._replace(metadata={0: None}),
            {RECOVERY: ["it has had no store session yet"], HEALTH: ["server host1:5000 does not report its health"]},
        ),
        (
            WELL._replace(metadata={0: None}),
            {RECOVERY: [f"its record in ZooKeeper (store/partition/0) is missing, {LOST}"]},
        ),
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
    assert find_failures(two, 0) == {QUORUM: ["1 of 2 replicas are online: a:1"], RECOVERY: [off("b")]}
    one = two._replace(storages={0: frozenset(["a:1"])}, storage_reports={"a:1": ONLINE, "b:1": {}, "c:1": {}})
    assert QUORUM not in find_failures(one, 0)


def test_preferences_of_several_servers() -> None:
    servers = {1: server(1, 0, 1, 3), 2: server(2, 1, 3, 4), 3: server(3, 4)}
    first, second = find_preference_warnings(servers.values(), range(5))
    assert first.startswith("several servers prefer partitions 1, 3: host1:5000, host2:5000; ")
    assert first.endswith("waltz server remove-preferred-partition -s host1:5000 -p 1,3")
    assert second.startswith("several servers prefer partition 4: host2:5000, host3:5000; ")
    assert find_preference_warnings(servers.values(), [0, 2]) == []


def test_storages_that_say_what_is_wrong_with_them() -> None:
    survey = WELL._replace(admin_ports={"a:1": 2})
    unwell = StorageHealth(damaged={0: "transactions 30 to 30"})
    facts: dict[str, StorageFacts | str] = {
        "a:1": StorageFacts(health=unwell),
        "b:1": StorageFacts(health=StorageHealth()),
        "c:1": "no",
        "d:1": StorageFacts(),
    }
    found = find_storage_ailments(survey, facts)
    assert {storage: [each.remedy.do for each in ailments] for storage, ailments in found.items()} == {
        "a:1": ["waltz storage repair -s a:2 -p 0"]
    }


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
        "partition 0 has clients with write sessions, and its owner, server host2:5000, knows none"
    )
    assert warning.endswith("Make the partition a preferred one of a server with version 5")
    assert find_session_warnings(mixed(2, 0), [0]) == [warning]
    assert find_session_warnings(mixed(owner=2), []) == []


def test_write_sessions_that_may_get_to_a_server_that_knows_none() -> None:
    """The other server prefers the partition, which makes it no better."""
    (warning,) = find_session_warnings(mixed(owner=1), [0])
    assert "may move to servers that know none: host2:5000. Make it a preferred partition" in warning
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
    assert warning.startswith("partition 0 is disabled, and its owner, server host2:5000, takes appends all the same")
    assert find_disabled_warnings(mixed(owner=2), []) == []
    for survey in (mixed(owner=1), mixed(2, other_version=None), mixed(2)._replace(owners={}), mixed(owner=9)):
        assert find_disabled_warnings(survey, [0]) == []


def test_partitions_that_demand_more_than_the_commit() -> None:
    quorum, everyone = Consistency.LEADER_QUORUM, Consistency.LEADER_ALL
    (warning,) = find_consistency_warnings(mixed(owner=2), {0: (everyone, True)})
    assert warning.startswith(
        "partition 0 demands the consistency leader_all, and its owner, server host2:5000, speaks version "
    )
    for survey in (mixed(2, other_version=None), mixed(2)._replace(owners={}), mixed(owner=9)):
        assert find_consistency_warnings(survey, {0: (everyone, True)}) == []
        (warning,) = find_consistency_warnings(survey, {0: (everyone, False)})
        assert "lets in writers whose protocol has no levels" in warning
        assert find_consistency_warnings(survey, {0: (quorum, False), 1: (Consistency.NONE, False)}) == []
