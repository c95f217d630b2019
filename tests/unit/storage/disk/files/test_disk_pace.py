"""When the event loop waits for the disk itself."""

import pytest

from waltz.storage.disk.files.disk_pace import BRIEF_S, DiskPace


def syncs_until(pace: DiskPace, duration_s: float, *, brief: bool) -> int:
    count = 0
    while pace.brief is not brief:
        pace.took(duration_s)
        count += 1
    return count


def test_an_unknown_disk_is_slow_until_it_has_shown_otherwise() -> None:
    assert not DiskPace().brief
    assert 1 < syncs_until(DiskPace(), BRIEF_S / 20, brief=True) < 20


@pytest.mark.parametrize("duration_s", [BRIEF_S, 1.0])
def test_a_slow_disk_is_never_waited_for(duration_s: float) -> None:
    pace = DiskPace()
    for _ in range(1000):
        pace.took(duration_s)
        assert not pace.brief


def test_a_disk_that_gets_slow_is_soon_left_to_threads() -> None:
    pace = DiskPace()
    syncs_until(pace, 0.0, brief=True)
    assert syncs_until(pace, 4 * BRIEF_S, brief=False) <= 5


def test_one_long_sync_is_remembered_the_longer_the_longer_it_was() -> None:
    counts = []
    for duration_s in (0.2, 10.0, 600.0):
        pace = DiskPace()
        syncs_until(pace, 0.0002, brief=True)
        pace.took(duration_s)
        counts.append(syncs_until(pace, 0.0002, brief=True))
    assert 0 < counts[0] < counts[1] < counts[2] < 200
