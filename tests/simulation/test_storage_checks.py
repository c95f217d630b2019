"""The checks of single storages."""

from typing import Any, cast

import pytest

from tests.simulation.storage_checks import StorageChecks
from waltz.common.records import Record
from waltz.storage.errors import CorruptionError
from waltz.storage.node.partition import StoragePartition


def record(transaction_id: int, data: bytes = b"x") -> Record:
    return Record(transaction_id, bytes(16), 0, data, 0)


class FakeLog:
    """A log that holds these records from the first id on."""

    first_transaction_id = 0

    def __init__(self, records: list[Record], damaged_at: int | None = None) -> None:
        self._records = records
        self._damaged_at = damaged_at
        self.max_transaction_id = len(records) - 1

    def read(self, first: int, count: int) -> list[Record]:
        if self._damaged_at is not None and first <= self._damaged_at < first + count:
            raise CorruptionError(0, self._damaged_at, "/data/0/0.seg", "damaged")
        return self._records[first : first + count]


class FakePartition:
    partition_id = 0

    def __init__(self, log: FakeLog) -> None:
        self.log = log


def opened(checks: StorageChecks, records: list[Record], damaged_at: int | None = None) -> None:
    partition: Any = FakePartition(FakeLog(records, damaged_at))
    checks.opened("storage-0", cast("StoragePartition", partition))


@pytest.fixture
def failures() -> list[str]:
    return []


@pytest.fixture
def checks(failures: list[str]) -> StorageChecks:
    made = StorageChecks(failures.append)
    made.acknowledged("storage-0", 0, [record(number) for number in range(5)])
    return made


def test_all_that_was_acknowledged_is_there(checks: StorageChecks, failures: list[str]) -> None:
    opened(checks, [record(number) for number in range(7)])
    checks.left("storage-0", 0, [record(number) for number in range(5)])
    assert not failures


def test_a_storage_that_has_less_than_it_acknowledged_fails(checks: StorageChecks, failures: list[str]) -> None:
    opened(checks, [record(number) for number in range(4)])
    checks.left("storage-0", 0, [record(number) for number in range(4)])
    assert [failure.partition(" of ")[0] for failure in failures] == ["storage-0 has acknowledged transaction 4"] * 2


def test_a_storage_that_holds_something_else_fails(checks: StorageChecks, failures: list[str]) -> None:
    opened(checks, [*(record(number) for number in range(4)), record(4, b"y")])
    assert "storage-0 holds something else at 4" in failures[0]


def test_what_was_cut_on_demand_may_be_gone(checks: StorageChecks, failures: list[str]) -> None:
    checks.cut("storage-0", 0, 2)
    opened(checks, [record(number) for number in range(3)])
    checks.acknowledged("storage-0", 0, [record(3, b"y")])
    opened(checks, [*(record(number) for number in range(3)), record(3, b"y")])
    assert not failures


def test_damage_has_to_come_from_a_fault_and_cuts_nothing_off(checks: StorageChecks, failures: list[str]) -> None:
    opened(checks, [record(number) for number in range(5)], damaged_at=2)
    checks.refused("storage-0", 0, CorruptionError(0, 2, "/data/0/0.seg", "damaged"))
    assert len(failures) == 2
    failures.clear()
    checks.damaged("storage-0", 0)
    opened(checks, [record(number) for number in range(5)], damaged_at=2)
    checks.refused("storage-0", 0, CorruptionError(0, 2, "/data/0/0.seg", "damaged"))
    assert not failures
    opened(checks, [record(number) for number in range(2)])
    assert len(failures) == 1
    checks.repaired("storage-0", 0)
    opened(checks, [record(number) for number in range(5)], damaged_at=2)
    assert len(failures) == 2


def test_disks_take_what_is_known_of_them_with_them(checks: StorageChecks, failures: list[str]) -> None:
    checks.disks_exchanged("storage-0", "storage-1")
    opened(checks, [])
    checks.left("storage-1", 0, [record(0)])
    assert len(failures) == 1
    checks.disk_replaced("storage-1")
    checks.left("storage-1", 0, [])
    assert len(failures) == 1
