"""What reads demand, by their arguments."""

import pytest

from waltz.table.face.levels import AsOf, AtLeast, Present, ReadConsistency
from waltz.table.served.demands import Demand, demand_of


@pytest.mark.parametrize(
    ("fresh", "consistency", "demand"),
    [
        (False, None, Present.OWN),
        (True, None, Present.FRESH),
        (False, "fresh", Present.FRESH),
        (False, "any", Present.ANY),
        (False, "leader_quorum", "leader_quorum"),
        (False, AtLeast(3, 1.0), AtLeast(3, 1.0)),
    ],
)
def test_demands(fresh: bool, consistency: ReadConsistency | None, demand: Demand) -> None:
    assert demand_of(fresh, consistency) == demand


def test_refused_arguments() -> None:
    for fresh, consistency in ((True, "any"), (False, AtLeast(-2)), (False, AsOf(0))):
        with pytest.raises(ValueError, match="not both|at least -1|present state"):
            demand_of(fresh, consistency)
    with pytest.raises(TypeError):
        demand_of(False, b"any")  # type: ignore[arg-type]
