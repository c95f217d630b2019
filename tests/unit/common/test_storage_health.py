"""What is said of a storage that is not well, wherever it is said."""

import json

import pytest

from tests.unit.common.test_replica_states import sections
from waltz.common.storage_health import JOURNAL_PROBLEM, StorageHealth, find_ailments

FULL = "[Errno 28] No space left on device"
WELL = StorageHealth()
UNWELL = StorageHealth(
    {0: FULL, 1: FULL, 3: "fsync failed"},
    {2: "transactions 30 to 30"},
    {4: "a read or write has not ended for 12 s"},
    "the disk is almost full: 62 MiB are free, less than 64 MiB",
)


def test_a_storage_that_is_well() -> None:
    assert WELL.problems() == {}
    assert find_ailments(WELL, "a:6100") == []


def test_health_survives_its_way_through_json() -> None:
    for health in (WELL, UNWELL):
        assert StorageHealth.parse(json.loads(json.dumps(health.problems()))) == health


@pytest.mark.parametrize("document", [None, [], 7, {"damaged": []}, {"damaged": {"x": ""}}])
def test_something_else_is_no_health(document: object) -> None:
    with pytest.raises(ValueError, match="not the health of a storage"):
        StorageHealth.parse(document)


def test_every_ailment_names_its_partitions_and_the_command_that_mends_it() -> None:
    ailments = find_ailments(UNWELL, "a:6100")
    assert [(each.text, list(each.partition_ids), each.remedy.do, each.remedy.section) for each in ailments] == [
        (
            f"partitions 0-1 out of service: {FULL}",
            [0, 1],
            "make room on the disk; then waltz storage sync-partitions",
            "disk-full",
        ),
        (
            "partition 3 out of service: fsync failed",
            [3],
            "look at the disk and at the node's log; then waltz storage sync-partitions",
            "out-of-service",
        ),
        (
            "the disk hangs: a read or write has not ended for 12 s (partition 4)",
            [4],
            "look at the disk, or stop the node",
            "out-of-service",
        ),
        (
            "the disk is almost full: 62 MiB are free, less than 64 MiB",
            [],
            "make room on the disk, or move replicas away",
            "disk-full",
        ),
        (
            "damaged records in partition 2: transactions 30 to 30",
            [2],
            "waltz storage repair -s a:6100 -p 2",
            "damaged-data",
        ),
    ]
    assert {each.remedy.section for each in ailments} <= sections()


def test_a_journal_that_fails_is_not_mended_by_room() -> None:
    (ailment,) = find_ailments(StorageHealth(disk=f"{JOURNAL_PROBLEM}full"), "a:6100")
    assert "restart the storage node" in ailment.remedy.do
    assert ailment.remedy.section in sections()
