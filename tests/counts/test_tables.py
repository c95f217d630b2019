"""Bounds and what is said of them."""

import pytest

from tests.counts.instrument import KINDS
from tests.counts.loads import LOADS, Cost, Counts
from tests.counts.tables import CHANCE_EVENTS, compared, grown, outdated, parse, text_of

NAME = "16 in flight"
CHANCE = CHANCE_EVENTS * 1000 / LOADS[NAME].appends


def counts(sends: float, tasks: float = 0.0) -> Counts:
    return {"client": dict.fromkeys(KINDS, 7.5) | {"sends": sends, "tasks": tasks}}


def test_the_table_is_read_as_it_was_written() -> None:
    bounds = {NAME: counts(1000.0) | {"server": dict.fromkeys(KINDS, 1234.5)}, "1 in flight": counts(0.0, 151060.5)}
    assert parse(text_of(bounds)) == bounds


@pytest.mark.parametrize("sends", [800 - CHANCE, 1000, 1020 + CHANCE])
def test_a_count_may_be_a_little_off(sends: float) -> None:
    assert not grown(NAME, counts(sends), counts(1000))
    assert not outdated(NAME, counts(sends), counts(1000))


def test_what_grows_is_named() -> None:
    assert grown(NAME, counts(1050, 10), counts(1000)) == ["client: sends 1000 -> 1050 (+5%)", "client: tasks 0 -> 10"]


def test_bounds_that_guard_nothing_are_named() -> None:
    assert outdated(NAME, counts(500), counts(1000, 10)) == [
        "client: sends 1000 -> 500 (-50%)",
        "client: tasks 10 -> 0 (-100%)",
    ]


def test_bounds_of_other_kinds_are_refused() -> None:
    with pytest.raises(AssertionError, match="--write` renews"):
        grown(NAME, counts(1), {"client": {"sends": 1.0}})
    with pytest.raises(AssertionError, match="--write` renews"):
        grown(NAME, counts(1), {"server": counts(1)["client"]})


def test_two_commits_are_compared_down_to_the_functions() -> None:
    before = Cost(counts(1000), {"client": {"a": 1000.0, "b": 10.0, "c": 5.0}})
    after = Cost(counts(2000), {"client": {"a": 1000.0, "b": 12.0, "d": 7.0}})
    assert compared(NAME, before, after).splitlines() == [
        NAME,
        "  client",
        "    sends 1000 -> 2000 (+100%)",
        "        d 0 -> 7",
        "        c 5 -> 0",
        "        b 10 -> 12",
    ]
    assert compared(NAME, before, before) == f"{NAME}: nothing has changed"
