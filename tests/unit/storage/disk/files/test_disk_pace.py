"""When the event loop waits for the disk itself."""

import random
from collections.abc import Iterable

import pytest

from waltz.storage.disk.files.disk_pace import BRIEF_S, DISTRUST_S, HANG_S, MAX_DISTRUST_S, DiskPace


class Disk:
    """Syncs one after the other, with pauses between them."""

    def __init__(self) -> None:
        self.pace = DiskPace()
        self.now_s = 0.0
        self.held_up = 0
        """Hangs for which the event loop waited."""

    def sync(self, duration_s: float = 0.0002) -> bool:
        """Whether the loop waited for it."""
        brief = self.pace.brief(self.now_s)
        self.held_up += brief and duration_s >= HANG_S
        self.now_s += duration_s
        self.pace.took(duration_s, self.now_s)
        return brief

    def syncs_until(self, duration_s: float, *, brief: bool) -> int:
        count = 0
        while self.pace.brief(self.now_s) is not brief:
            self.sync(duration_s)
            count += 1
        return count

    def hang_after(self, pauses_s: Iterable[float], duration_s: float = 1.0) -> None:
        """Hang once after each of these times, in which it is as fast as ever, ten syncs a second."""
        for pause_s in pauses_s:
            until_s = self.now_s + pause_s
            while self.now_s < until_s:
                self.sync()
                self.now_s += 0.1
            self.sync(duration_s)


@pytest.fixture
def fast() -> Disk:
    disk = Disk()
    disk.syncs_until(0.0002, brief=True)
    return disk


def test_an_unknown_disk_is_slow_until_it_has_shown_otherwise() -> None:
    disk = Disk()
    assert not disk.sync(BRIEF_S / 20)
    assert 1 < disk.syncs_until(BRIEF_S / 20, brief=True) < 20


@pytest.mark.parametrize("duration_s", [BRIEF_S, 1.0])
def test_a_slow_disk_is_never_waited_for(duration_s: float) -> None:
    disk = Disk()
    assert not any(disk.sync(duration_s) for _ in range(1000))


def test_a_disk_that_gets_slow_is_soon_left_to_threads(fast: Disk) -> None:
    assert fast.syncs_until(4 * BRIEF_S, brief=False) <= 5


@pytest.mark.parametrize("duration_s", [HANG_S, 10.0, 600.0])
def test_a_disk_that_has_hung_once_is_left_to_threads_for_a_minute(fast: Disk, duration_s: float) -> None:
    assert fast.sync(duration_s)
    hung_s = fast.now_s
    while not fast.sync():
        fast.now_s += 0.1
    assert fast.now_s - hung_s == pytest.approx(DISTRUST_S, abs=0.2)


@pytest.mark.parametrize("pause_s", [5.0, 70.0, 600.0, 7200.0])
def test_a_disk_that_hangs_now_and_then_holds_up_the_loop_no_more_than_twice(fast: Disk, pause_s: float) -> None:
    fast.hang_after([pause_s] * 5)
    assert fast.held_up == (1 if pause_s < DISTRUST_S else 2)


@pytest.mark.parametrize("seed", range(5))
def test_hangs_at_random_times_hold_up_the_loop_hardly_ever(fast: Disk, seed: int) -> None:
    """Several in a row, which are one for the disk, teach nothing wrong."""
    chance = random.Random(seed)
    pauses_s = [chance.choice([0.0, 0.1, chance.expovariate(1 / 300)]) for _ in range(300)]
    fast.hang_after(pauses_s)
    assert 1 <= fast.held_up <= 6


def test_a_disk_is_trusted_again_one_day(fast: Disk) -> None:
    for _ in range(3):
        fast.now_s += 10 * MAX_DISTRUST_S
        fast.sync(1.0)
    fast.now_s += MAX_DISTRUST_S - 1.0
    assert not any(fast.sync() for _ in range(100))
    fast.now_s += 1.0
    assert fast.sync()
