"""What makes appends more expensive is noticed, and named."""

import pytest

from tests.counts.loads import LOADS, cost_of, standard_cost
from tests.counts.planted import PLANTED, planted
from tests.counts.tables import compared, grown


@pytest.mark.parametrize("name", PLANTED)
def test_what_makes_appends_more_expensive_is_named(name: str) -> None:
    load_name, *_, expected = PLANTED[name]
    before = standard_cost(load_name)
    after = cost_of(LOADS[load_name], planted(name))
    said = "\n".join(grown(load_name, after.counts, before.counts))
    for what in expected:
        assert f"{what} " in said
    assert "<locals>.planted" in compared(load_name, before, after)
