"""What is done to the table, and what of it the journal is told."""

import asyncio
from pathlib import Path

import pytest

from tests.unit.bot.places import opened
from waltz.bot.history import Invoked, Returned, read_history
from waltz.bot.prover import Prover
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.common.wire.client_server import LockFailure
from waltz.table.envelope import Batch, Row, encode

pytestmark = pytest.mark.timeout(60)


async def test_every_operation_is_told_of_before_and_after(tmp_path: Path) -> None:
    path = tmp_path / "h"
    async with opened(history=path) as (place, journal, troubles, found):
        prover = Prover("random", place.tables, journal, troubles)
        value = prover.new_value(30)
        assert len(value) == 30
        assert value.startswith(journal.run)
        assert len(prover.new_value(0)) > len(journal.run)
        await prover.write(0, {"a": value, "b": "2"})
        read, version = await prover.read(1, "a")
        assert read == value
        assert await prover.swap(1, "a", value, version, "3")
        assert not await prover.swap(0, "a", value, version, "4")
        await prover.write(0, {"b": None})
        assert await prover.read(1, "b") == (None, None)
        await prover.scan_all()
        assert prover.scans == 2
        await prover.sweep()
        assert found == []
        assert journal.expected.valid == {"a": ["3"]}
        assert (journal.operations, journal.unknown) == (8, 0)
    events = list(read_history(path))[1:]
    assert [event.type for event in events] == ["invoke", "ok"] * 8
    assert [event.call.f for event in events if isinstance(event, Invoked)] == [
        *("write", "read", "swap", "swap", "write", "read", "scan", "scan")
    ]
    swapped = events[5]
    assert isinstance(swapped, Returned)
    assert swapped.stamp_ms is not None
    assert swapped.stamp_ms[0] <= swapped.stamp_ms[1]
    assert [event.conflict for event in events if isinstance(event, Returned)].index(True) == 3


async def test_outcomes_that_are_not_known_and_those_that_are() -> None:
    driver = MockDriver()
    async with opened(driver) as (place, journal, troubles, _):
        prover = Prover("random", place.tables, journal, troubles)
        await prover.write(0, {"a": "1"})
        driver.suspend_feed()
        writing = asyncio.create_task(prover.write(0, {"a": "2"}))
        while driver.partitions[0].high_water_mark < 1:
            await asyncio.sleep(0)
        writing.cancel()
        await asyncio.wait([writing])
        driver.resume_feed()
        assert journal.unknown == 1
        assert journal.expected.valid == {"a": ["1", "2"]}
        assert (await prover.read(1, "a"))[0] == "2"
        assert journal.expected.valid == {"a": ["2"]}


async def test_rows_of_former_runs_are_deleted_and_may_not_come_back() -> None:
    partitions = MockServerPartition.create(1)
    async with opened(MockDriver(partitions)) as (place, journal, troubles, found):
        prover = Prover("random", place.tables, journal, troubles)
        ahead_ms = 5_000_000_000_000
        partitions[0].add(encode(Batch(1, [Row(b"", b"random/old", b"x", ahead_ms), Row(b"", b"random/a", b"y")])))
        await prover.delete_all(["a", "b"])
        await prover.scan_all()
        assert journal.expected.valid == {}
        await prover.write(1, {"old": "1"})
        assert (await prover.read(0, "old"))[0] == "1"
        assert found == []


class LaggingPartition(MockServerPartition):
    """What a server shows that was deposed: it says that the log ends where it did."""

    def __init__(self, partition: MockServerPartition) -> None:
        super().__init__(partition.partition_id, partition.nodes)
        self._records = partition._records
        self.shown: int | None = None

    @property
    def high_water_mark(self) -> int:
        return len(self._records) - 1 if self.shown is None else self.shown


async def test_a_stale_read_is_found() -> None:
    partitions = MockServerPartition.create(1)
    lagging = LaggingPartition(partitions[0])
    async with (
        opened(MockDriver(partitions)) as (place, journal, troubles, found),
        opened(MockDriver([lagging])) as (
            other,
            *_,
        ),
    ):
        prover = Prover("random", [place.tables[0], other.tables[0]], journal, troubles)
        await prover.write(0, {"a": "1"})
        lagging._tell()
        assert (await prover.read(1, "a"))[0] == "1"
        lagging.shown = lagging.high_water_mark
        await prover.write(0, {"a": "2"})
        assert (await prover.read(1, "a"))[0] == "1"
        assert len(found) == 1
        assert found[0].startswith("a: read 4: the row is '1' of transaction 0")
        assert found[0].endswith("it can have been '2'")


class ForgetfulPartition(MockServerPartition):
    """Acknowledges every transaction, and keeps nothing of some."""

    loses = False

    def append(self, request):  # type: ignore[no-untyped-def] # as the class that is lied about has it
        refusal = super().append(request)
        if refusal is None and self.loses:
            self._records[-1] = self._records[-1]._replace(data=b"", checksum=0)
        assert not isinstance(refusal, LockFailure)
        return refusal


async def test_a_row_that_was_acknowledged_and_is_lost_is_found_by_the_next_scan() -> None:
    partition = ForgetfulPartition(0)
    async with opened(MockDriver([partition])) as (place, journal, troubles, found):
        prover = Prover("random", place.tables, journal, troubles)
        await prover.write(0, {"a": "1", "b": "1"})
        partition.loses = True
        await prover.write(0, {"a": "2"})
        partition.loses = False
        await prover.scan_all()
        assert len(found) == 1
        assert found[0].startswith("a: scan 3: the row is '1' of transaction 0")
