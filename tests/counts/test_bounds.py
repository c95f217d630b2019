"""No batch gets more expensive unnoticed: what appends cost is counted, and has bounds."""

import pytest

from tests.counts.loads import LOADS, cost_of, standard_cost
from tests.counts.tables import COMMAND, grown, load_bounds, outdated


@pytest.mark.parametrize("name", LOADS)
def test_appends_cost_what_they_may(name: str) -> None:
    counts, bounds = standard_cost(name).counts, load_bounds()[name]
    more, less = grown(name, counts, bounds), outdated(name, counts, bounds)
    assert not more, "\n".join(
        (
            f"\n\n{name}: for each 1,000 appends there is more than there may be of",
            *(f"  {line}" for line in more),
            f"`{COMMAND} --against COMMIT` shows which functions. If it is worth its price: `{COMMAND} --write`.",
        )
    )
    assert not less, "\n".join(
        (
            f"\n\n{name}: appends got cheaper, and nothing keeps them from getting as expensive again:",
            *(f"  {line}" for line in less),
            f"`{COMMAND} --write` lowers the bounds.",
        )
    )


def test_every_load_has_bounds_and_nothing_else() -> None:
    assert list(load_bounds()) == list(LOADS)


def test_counts_are_the_same_again() -> None:
    assert cost_of(LOADS["16 in flight"]) == standard_cost("16 in flight")
