"""Rounds over a cluster in memory, and a canary that is missing or left behind."""

import pytest

from tests.unit.bot.places import opened
from waltz.bot.coal_mine import CoalMine, CoalMineOptions
from waltz.bot.prover import Prover
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.table.envelope import Batch, Row, encode

pytestmark = pytest.mark.timeout(60)

SMALL = CoalMineOptions(canaries=55, interval_s=0, batch_rows=10)


async def test_canaries_go_in_and_out() -> None:
    partitions = MockServerPartition.create(1)
    async with opened(MockDriver(partitions)) as (place, journal, troubles, found):
        mine = CoalMine(Prover("canary", place.tables, journal, troubles), SMALL, 3)
        await mine.work()
        await mine.check()
        assert found == []
        assert mine.valid == {}
        assert mine.counts == {"rounds": 3, "writes of unknown outcome": 0, "scans": 14}
        assert partitions[0].high_water_mark + 1 == 1 + 3 * 2 * 6


@pytest.mark.parametrize(
    ("alive", "what"), [(True, "there is a row that nobody wrote"), (False, "there is no row; it can have been '")]
)
async def test_what_others_do_to_canaries_is_found(alive: bool, what: str) -> None:
    partitions = MockServerPartition.create(1)
    async with opened(MockDriver(partitions)) as (place, journal, troubles, found):
        prover = Prover("canary", place.tables, journal, troubles)
        mine = CoalMine(prover, SMALL, 1)
        await mine.work()
        await mine._in_batches(["00007"], alive=True)
        key = b"canary/strange" if alive else b"canary/00007"
        partitions[0].add(encode(Batch(1, [Row(b"", key, b"x" if alive else None, 1 << 50, not alive)])))
        await prover.scan_all()
        assert len(found) == 1
        assert what in found[0]
