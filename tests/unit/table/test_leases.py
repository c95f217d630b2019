"""Leases: their rows, and when one of another is over, against a naive model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.table.leases import MAX_SIGHTINGS, Lease, LeaseRow, Sightings, lease_row
from waltz.table.rows import TableRow, Version


def row_of(value: bytes | None, transaction_id: int = 5, key: bytes = b"k") -> TableRow:
    return TableRow(b"", key, value, 1, Version(transaction_id, 0), 1, tombstone=False)


def test_the_term_is_that_of_the_grant() -> None:
    granted = LeaseRow("a", 1000, None)
    assert lease_row(row_of(granted.encode())) == LeaseRow("a", 1000, 5)
    assert lease_row(row_of(LeaseRow("a", 1000, 5).encode(), 9)) == LeaseRow("a", 1000, 5)
    assert lease_row(None) is None


@pytest.mark.parametrize(
    "value",
    [None, b"", b"[]", b"{}", b"5", b"\xff", b'{"holder": 1, "duration_ms": 1}', b'{"holder": "a"}', b"[" * 9999],
)
def test_other_values_are_no_leases(value: bytes | None) -> None:
    with pytest.raises(ValueError, match="no lease"):
        lease_row(row_of(value))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 700)), min_size=1, max_size=20), st.integers(100, 2000))
def test_a_lease_is_over_when_one_clock_has_seen_it_unchanged_for_its_duration(
    looks: list[tuple[int, int]], duration_ms: int
) -> None:
    sightings, now_ms, seen = Sightings(), 0, []
    for version, pause_ms in looks:
        now_ms += pause_ms
        seen.append((version, now_ms))
        wait_s = sightings.wait_s(row_of(b"", version), duration_ms, now_ms / 1000)
        unchanged = next((index + 1 for index in range(len(seen) - 1, -1, -1) if seen[index][0] != version), 0)
        expected_ms = max(seen[unchanged][1] + duration_ms - now_ms, 0)
        assert wait_s == pytest.approx(expected_ms / 1000, abs=1e-9)


def test_what_is_forgotten_is_waited_for_from_the_beginning() -> None:
    sightings = Sightings()
    assert sightings.wait_s(row_of(b""), 1000, 0.0) == 1.0
    for number in range(MAX_SIGHTINGS):
        sightings.wait_s(row_of(b"", key=b"%d" % number), 1000, 0.0)
    assert sightings.wait_s(row_of(b""), 1000, 5.0) == 1.0
    assert sightings.wait_s(row_of(b"", key=b"9"), 1000, 5.0) == 0.0


def test_a_lease_that_is_over_has_no_time_left() -> None:
    assert Lease(b"k", b"", "a", 1, 1.0, float("-inf")).left_s == 0
    assert Lease(b"k", b"", "a", 1, 1.0, float("inf")).left_s > 1000
