"""Whole runs: clean ones, over faults too, and ones in which something was planted."""

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

import pytest

from tests.unit.bot.places import Impatient, opened
from waltz.bot.expected import Deviation, Expected
from waltz.bot.history import read_history
from waltz.bot.prover import Prover
from waltz.bot.random_operations import RandomOperations, RandomOptions
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.common.ids import LONG_MIN
from waltz.table.envelope import Batch, SweepMark, decode, encode
from waltz.table.face.table import Table
from waltz.table.rows import is_tombstone
from waltz.table.stores.interface import Changes, Store
from waltz.table.stores.memory import MemoryEngine
from waltz.table.stores.ordered import OrderedStore
from waltz.table.stores.registry import open_store

pytestmark = pytest.mark.timeout(120)

SMALL = RandomOptions(keys=40, batch_rows=15, pause_s=0, round_operations=100)
OPERATIONS = 400


async def test_a_run_is_clean_and_its_history_too(tmp_path: Path) -> None:
    path = tmp_path / "h"
    async with opened(MockDriver(), history=path) as (place, journal, troubles, found):
        bot = RandomOperations(Prover("random", place.tables, journal, troubles), SMALL, OPERATIONS)
        await bot.work()
        await bot.check()
        assert found == []
        assert bot.done == OPERATIONS
        assert bot.counts == {"operations": OPERATIONS, "of unknown outcome": 0, "scans": 2 * OPERATIONS // 100 + 2}
        assert 0 < len(bot.valid) <= SMALL.keys
    assert checked(path) == []
    kinds = {event.call.f for event in read_history(path) if event.type == "invoke"}
    assert kinds == {"write", "swap", "read", "scan"}


def checked(path: Path) -> list[Deviation]:
    expected = Expected()
    found = [deviation for event in read_history(path) for deviation in expected.take(event)]
    return found + expected.give_up()


async def test_faults_and_unknown_outcomes_are_no_deviations(tmp_path: Path) -> None:
    """Appends get lost, connections break, and calls are given up in the middle."""
    path = tmp_path / "h"
    driver = MockDriver()
    async with opened(driver, clients=3, history=path) as (place, journal, troubles, found):
        driver.max_delay_s = 0.001
        driver.fault_rate = 0.01
        impatient = cast("Sequence[Table]", [Impatient(table, 0.1) for table in place.tables])
        bot = RandomOperations(Prover("random", impatient, journal, troubles), SMALL, OPERATIONS)
        await bot.work()
        assert found == []
        assert journal.unknown > 5
        assert troubles.retries >= journal.unknown
    assert checked(path) == []


async def test_it_begins_anew_when_the_history_is_large(tmp_path: Path) -> None:
    path = tmp_path / "h"
    async with opened(history=path) as (place, journal, troubles, found):
        journal._history._limit_bytes = 10_000  # type: ignore[union-attr] # there is one
        bot = RandomOperations(Prover("random", place.tables, journal, troubles), SMALL, OPERATIONS)
        await bot.work()
        assert found == []
    assert checked(path) == []
    assert checked(tmp_path / "h.1") == []


class LyingStore(OrderedStore):
    """Leaves out some of what it should do, from some time on."""

    def __init__(self, is_left_out: Callable[[bytes], bool]) -> None:
        super().__init__(MemoryEngine())
        self._is_left_out = is_left_out
        self._seen: set[bytes] = set()

    def apply(self, changes: Changes) -> None:
        rows = changes.rows
        if len(self._seen) > 30:
            rows = {key: row for key, row in rows.items() if not self._is_left_out(row)}
        self._seen.update(key for key, row in rows.items() if not is_tombstone(row))
        super().apply(changes._replace(rows=rows))


class OldStore(OrderedStore):
    """Answers with the row before the present one, from some time on."""

    def __init__(self) -> None:
        super().__init__(MemoryEngine())
        self._before: dict[bytes, bytes] = {}

    def apply(self, changes: Changes) -> None:
        for key, row in zip(changes.rows, super().get(list(changes.rows)), strict=True):
            if row is not None and not is_tombstone(row):
                self._before[key] = row
        super().apply(changes)

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        present = super().get(keys)
        if len(self._before) <= 30:
            return present
        return [self._before.get(key, row) for key, row in zip(keys, present, strict=True)]


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Callable[[], Store]]]:
    """Stores for the tables that are opened next, instead of theirs."""
    waiting: list[Callable[[], Store]] = []
    monkeypatch.setattr(
        "waltz.table.face.partition.open_store",
        lambda *arguments: waiting.pop()() if waiting else open_store(*arguments),
    )
    yield waiting
    assert not waiting


@pytest.mark.parametrize(
    "store",
    [
        pytest.param(lambda: LyingStore(lambda row: not is_tombstone(row)), id="a row is lost"),
        pytest.param(lambda: LyingStore(is_tombstone), id="a deleted row is back"),
        pytest.param(OldStore, id="a read is stale"),
    ],
)
async def test_what_one_view_has_wrong_is_found(
    store: Callable[[], Store], views: list[Callable[[], Store]], tmp_path: Path
) -> None:
    views.append(store)
    path = tmp_path / "h"
    async with opened(history=path) as (place, journal, troubles, found):
        bot = RandomOperations(Prover("random", place.tables, journal, troubles), SMALL, OPERATIONS)
        await bot.work()
        assert found
        assert len(journal.expected.quarantine) == journal.deviations == len(found)
    assert [f"{each.key}: {each.what}" for each in checked(path)] == found


async def test_a_tombstone_that_was_swept_too_early_lets_an_old_row_come_back() -> None:
    partitions = MockServerPartition.create(1)
    async with opened(MockDriver(partitions)) as (place, journal, troubles, found):
        prover = Prover("random", place.tables, journal, troubles)
        bot = RandomOperations(prover, SMALL, 100)
        await bot.work()
        await prover.write(0, {"00000": "to be deleted"})
        old = partitions[0].transactions[-1].data
        await prover.write(0, {"00000": None})
        assert isinstance(decode(old, 1 << 20), Batch)
        partitions[0].add(encode(SweepMark(0, 1 << 60, LONG_MIN, LONG_MIN, LONG_MIN)))
        partitions[0].add(old)
        await bot.check()
        assert len(found) == 1
        assert found[0].startswith("00000: scan ")
        assert "the row is 'to be deleted' of transaction" in found[0]
        assert found[0].endswith("it can have been no row")


async def test_what_former_runs_have_left_is_no_deviation_when_the_work_is_broken_off_at_its_beginning() -> None:
    async with opened() as (place, journal, troubles, found):
        await place.tables[0].put(b"random/00001", b"of a former run")
        bot = RandomOperations(Prover("random", place.tables, journal, troubles), SMALL, 10)
        await bot.check()
        assert found == []
        await bot.work()
        await bot.check()
        assert found == []
        assert bot.prover.scans == 4


async def test_keys_in_quarantine_are_left_alone_and_without_others_the_work_is_done() -> None:
    async with opened() as (place, journal, troubles, _):
        options = SMALL._replace(keys=3)
        bot = RandomOperations(Prover("random", place.tables, journal, troubles), options, None)
        for key in ("00000", "00002"):
            journal.deviate(key, "planted")
        assert {key for _ in range(50) for key in bot._choose(random.randint(1, 3))} == {"00001"}
        journal.deviate("00001", "planted")
        await bot.work()
        assert bot.done == 0
