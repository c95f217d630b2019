"""Timestamps over steps of the machine's clock."""

from hypothesis import given
from hypothesis import strategies as st

from waltz.bot.clock import Clock

MS = 1_000_000


class Machine:
    """Both of its clocks, by command."""

    wall_ns = 1_000_000 * MS
    monotonic_ns = 5 * MS

    def __init__(self) -> None:
        self.clock = Clock(lambda: self.wall_ns, lambda: self.monotonic_ns)

    def go_on(self, nanoseconds: int) -> None:
        self.wall_ns += nanoseconds
        self.monotonic_ns += nanoseconds


def test_it_never_goes_back() -> None:
    machine = Machine()
    first = machine.clock.now_ms()
    machine.wall_ns -= 500 * MS
    assert machine.clock.now_ms() == first
    machine.go_on(501 * MS)
    assert machine.clock.now_ms() == first + 1
    machine.clock.pass_by(first + 50)
    assert machine.clock.now_ms() == first + 51


@given(st.lists(st.integers(0, 20 * MS), min_size=1, max_size=5), st.integers(-100 * MS, 100 * MS), st.integers(0, 4))
def test_what_the_clock_said_meanwhile_is_within_the_bounds(steps: list[int], jump: int, at: int) -> None:
    machine = Machine()
    bounds = machine.clock.watch()
    said = [machine.wall_ns // MS]
    for number, step in enumerate(steps):
        machine.go_on(step)
        said.append(machine.wall_ns // MS)
        if number == at:
            machine.wall_ns += jump
            said.append(machine.wall_ns // MS)
    low_ms, high_ms = bounds()
    assert low_ms <= min(said)
    assert high_ms >= max(said)
    assert machine.clock.now_ms() >= high_ms
