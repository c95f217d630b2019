"""Which partitions are due."""

import pytest

from waltz.archive.object_format import Limit
from waltz.archive.process.due import Backlog, Policy, is_due, is_old

POLICY = Policy(Limit(100, 10_000), 5000)


@pytest.mark.parametrize(
    ("backlog", "due", "old"),
    [
        (Backlog(7, 0, 0, None), False, False),
        (Backlog(7, 0, 9000, 50.0), False, False),
        (Backlog(7, 1, 0, None), True, False),
        (Backlog(7, 99, 4999, 50.0), False, False),
        (Backlog(7, 100, 0, 50.0), True, False),
        (Backlog(7, 1, 5000, 50.0), True, True),
        (Backlog(7, 19, 0, 500.0), False, False),
        (Backlog(7, 20, 0, 500.0), True, False),
    ],
)
def test_full_or_old_or_unknown(backlog: Backlog, due: bool, old: bool) -> None:
    assert (is_due(backlog, POLICY), is_old(backlog, POLICY)) == (due, old)


def test_size_is_estimated_by_the_last_records() -> None:
    assert Backlog(0, 10, 0, 50.5).size_bytes == 505
    assert Backlog(0, 10, 0, None).size_bytes == 0
