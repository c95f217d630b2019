"""What a restore takes from the archive beside the records."""

from pathlib import Path

import pytest

from tests.unit.archive.logs import archive_log
from tests.unit.common.cluster.fakes import KEY, make_log
from waltz.archive.chain import read_ranges
from waltz.archive.process.restoring import ArchivedRecords

pytest.importorskip("obstore")


@pytest.mark.parametrize(
    ("times_ms", "expected"),
    [
        ([*range(100, 800, 100)], [(0, 100), (2, 300), (3, 400), (5, 600), (6, 700), (6, 700)]),
        ([None, None, 300, 400, None, None, 700], [(2, 300), (3, 400), (6, 700), (6, 700)]),
        (None, []),
    ],
)
async def test_times_are_those_of_the_ends_of_objects(
    tmp_path: Path, times_ms: list[int | None] | None, expected: list[tuple[int, int]]
) -> None:
    place = await archive_log(tmp_path, KEY, 0, make_log(0, 7), 3, None if times_ms is None else times_ms.__getitem__)
    assert [tuple(entry) for entry in ArchivedRecords(place, await read_ranges(place)).times()] == expected
