"""What a sweep finds, beside a look at every row."""

import random
from collections.abc import Sequence
from pathlib import Path

from tests.unit.table.stores.cases import opened
from waltz.table.ages import NO_AGES, Ages
from waltz.table.envelope import Batch, Row, encode
from waltz.table.face.sweeping import SKEW_MARGIN_MS, SweepCheck, check_sweep, present_mark
from waltz.table.rows import TableRow
from waltz.table.stores.interface import Changes
from waltz.table.view import Reading, steps

NOW_MS = 1_000_000


def count_old(rows: Sequence[TableRow], ages: Ages, extra: Ages) -> int:
    clock_ms, count = NOW_MS - SKEW_MARGIN_MS, 0
    for row in rows:
        sinces = (row.timestamp_ms, row.written_at_ms) * 2
        past = [age and clock_ms - since >= age + more for age, more, since in zip(ages, extra, sinces, strict=True)]
        count += bool(past[2] or past[3] or (row.tombstone and (past[0] or past[1])))
    return count


async def test_rows_that_have_reached_their_age_are_counted(tmp_path: Path) -> None:
    chance = random.Random(3)
    store = opened("memory", tmp_path)
    records = [
        (
            number,
            encode(
                Batch(
                    chance.randrange(NOW_MS),
                    [Row(b"", b"%d" % number, None, chance.randrange(1, NOW_MS), chance.random() < 0.5)],
                )
            ),
        )
        for number in range(600)
    ]
    for step in steps(records, -1):
        assert isinstance(step, Changes)
        store.apply(step)
    rows = list(Reading(store, NOW_MS, raw=True).scan())
    for _ in range(40):
        ages = Ages(*(chance.choice((0, chance.randrange(1, NOW_MS))) for _ in range(4)))
        intervals = Ages(*(chance.choice((0, chance.randrange(1, NOW_MS))) for _ in range(4)))
        expected = SweepCheck(count_old(rows, ages, NO_AGES), due=count_old(rows, ages, intervals) > 0)
        assert await check_sweep(store, NOW_MS, ages, intervals) == expected
        assert (await check_sweep(store, NOW_MS, ages, intervals, only_due=True)).due == expected.due
    assert present_mark(NOW_MS, NO_AGES) is None
    store.close()
