"""The use of quotas: what is admitted within any time, at one server and at all of them together."""

import itertools
from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.common.acl.document import Quota
from waltz.common.acl.quotas import BURST_S, PRESSURE_S, Share, Taken, Usage, share_of

ALONE = Share(1, 1)
EXACT = 2.0**-10
"""Seconds that floating point counts exactly."""

STEPS = st.lists(st.tuples(st.integers(0, 2000), st.lists(st.integers(0, 500), min_size=1, max_size=20)), max_size=25)
"""Times since the step before, in units of :data:`EXACT`, and sizes of appends."""
LIMITS = st.sampled_from([None, 1, 7, 64, 1000])


class Model:
    """The same as a bucket with exact numbers, which fills up in time and may be overdrawn by one append."""

    def __init__(self, limits: Sequence[int | None]) -> None:
        self.limits = [None if limit is None else Fraction(limit) for limit in limits]
        self.levels = [Fraction(0) if limit is None else limit * Fraction(BURST_S) for limit in self.limits]
        self.now = Fraction(0)

    def take(self, sizes: Sequence[int], now_s: float) -> tuple[int, Fraction]:
        passed, self.now = Fraction(now_s) - self.now, Fraction(now_s)
        for place, limit in enumerate(self.limits):
            if limit is not None:
                self.levels[place] = min(self.levels[place] + passed * limit, limit * Fraction(BURST_S))
        admitted = 0
        for size in sizes:
            if any(limit is not None and level <= 0 for limit, level in zip(self.limits, self.levels, strict=True)):
                break
            self.levels[0] -= 1
            self.levels[1] -= size
            admitted += 1
        used = [
            Fraction(BURST_S) - level / limit
            for limit, level in zip(self.limits, self.levels, strict=True)
            if limit is not None
        ]
        return admitted, max(Fraction(0), max(used, default=Fraction(0)) - Fraction(PRESSURE_S))


@given(LIMITS, LIMITS, STEPS)
def test_it_is_a_bucket_that_one_append_may_overdraw(
    appends_per_s: int | None, bytes_per_s: int | None, steps: list[tuple[int, list[int]]]
) -> None:
    usage = Usage(Quota("svc-a", "*", appends_per_s, bytes_per_s), ALONE)
    model = Model((appends_per_s, bytes_per_s))
    now_s = 0.0
    for wait, sizes in steps:
        now_s += wait * EXACT
        before = list(model.levels)
        admitted, delay = model.take(sizes, now_s)
        found = usage.take(sizes, now_s)
        if found.admitted != admitted:  # an append at the very border, where floating point is not exact
            border = min(abs(level) for level in (*before, *model.levels))
            assert border < Fraction(1, 10**6)
            return
        assert found.delay_s == pytest.approx(float(delay), abs=1e-6)


@given(st.integers(1, 1000), STEPS, st.data())
def test_no_window_has_more_than_the_limit_and_a_burst(
    limit: int, steps: list[tuple[int, list[int]]], data: st.DataObject
) -> None:
    """Counted in seconds of the share, which may change at any time; the last append may overdraw."""
    by_bytes = data.draw(st.booleans())
    quota = Quota("svc-a", "*", None, limit) if by_bytes else Quota("svc-a", "*", limit, None)
    usage = Usage(quota, ALONE)
    now_s, taken = 0.0, list[tuple[float, float, float]]()
    for wait, sizes in steps:
        now_s += wait * EXACT
        share = Share(data.draw(st.integers(1, 4)), 4)
        usage.set_share(share)
        admitted = usage.take(sizes, now_s).admitted
        units = [size if by_bytes else 1 for size in sizes[:admitted]]
        costs = [unit * share.total / (limit * share.owned) for unit in units]
        if costs:
            taken.append((now_s, sum(costs), costs[-1]))
    for first, last in itertools.combinations_with_replacement(range(len(taken)), 2):
        window = taken[first : last + 1]
        used_s = sum(cost_s for _, cost_s, _ in window) - window[-1][2]
        assert used_s <= BURST_S + (window[-1][0] - window[0][0]) + 1e-6


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.data())
def test_the_shares_of_all_servers_are_the_limit(owners: list[int], data: st.DataObject) -> None:
    quota_places = data.draw(st.integers(1, (1 << len(owners)) - 1))
    shares = [
        share_of(quota_places, sum(1 << place for place, owner in enumerate(owners) if owner == server))
        for server in range(4)
    ]
    assert sum(Fraction(owned, total) for owned, total in shares) == 1


@given(st.integers(10, 1000), st.lists(st.lists(st.integers(0, 2), min_size=4, max_size=4), min_size=1, max_size=5))
def test_all_servers_together_keep_the_limit_while_partitions_move(limit: int, assignments: list[list[int]]) -> None:
    """Everybody sends all the time. A server that gets partitions has at once the burst of its larger share."""
    usages = [Usage(Quota("svc-a", "*", limit), Share(1, 4)) for _ in range(3)]
    largest, admitted, steps_per_s = [0] * 3, 0, 16
    for second, owners in enumerate(assignments):
        for server, usage in enumerate(usages):
            owned = owners.count(server)
            usage.set_share(Share(owned, 4))
            largest[server] = max(largest[server], owned)
        for step in range(steps_per_s):
            for server, usage in enumerate(usages):
                if server in owners:
                    admitted += usage.take([0] * 2 * limit, second + step / steps_per_s).admitted
    assert admitted <= sum(share * limit * (len(assignments) + BURST_S) / 4 + 1 for share in largest) + 1e-6
    if len(assignments) == 1:
        assert admitted >= limit * (BURST_S + 1 - 1 / steps_per_s) - 1e-6


def test_peers_are_asked_to_wait_before_anything_is_refused() -> None:
    usage = Usage(Quota("svc-a", "*", 100), ALONE)
    assert usage.take([1] * 50, 0) == Taken(50, 0)
    assert usage.take([1] * 25, 0) == Taken(25, 0.25)
    assert usage.take([1] * 26, 0) == Taken(25, 0.5)
    assert usage.take([1] * 51, 0.5) == Taken(50, 0.5)


def test_an_append_larger_than_the_limit_is_taken_and_paid_later() -> None:
    usage = Usage(Quota("svc-a", "*", None, 100), ALONE)
    assert usage.take([500, 1], 0) == Taken(1, 4.5)
    assert usage.take([1], 4) == Taken(0, 0.5)
    assert usage.take([1], 4.5).admitted == 1


def test_none_overtakes_another() -> None:
    usage = Usage(Quota("svc-a", "*", None, 100), ALONE)
    assert usage.take([60, 60, 60, 0], 0).admitted == 2


def test_a_server_without_a_partition_keeps_what_it_has_counted() -> None:
    usage = Usage(Quota("svc-a", "*", 10), Share(1, 2))
    assert usage.take([1] * 9, 0).admitted == 5
    usage.set_share(Share(0, 2))
    assert usage.share == Share(0, 2)
    usage.set_share(Share(2, 2))
    assert usage.take([1], 0).admitted == 0
    assert not usage.idle(0.9)
    assert usage.idle(1.0)
