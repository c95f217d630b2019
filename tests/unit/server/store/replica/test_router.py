from collections import Counter
from itertools import pairwise

import pytest

from waltz.server.store.replica.router import LatencyWeightedRouter


def always(_route: str) -> bool:
    return True


def test_equal_routes_are_used_in_turn() -> None:
    router: LatencyWeightedRouter[str] = LatencyWeightedRouter()
    for route in "abc":
        router.add(route)
    picks = [router.pick(always) for _ in range(300)]
    assert Counter(picks) == {"a": 100, "b": 100, "c": 100}
    assert all(first != second for first, second in pairwise(picks))


def test_shares_are_inversely_proportional_to_latencies() -> None:
    latencies = {"a": 100, "b": 200, "c": 400}
    router: LatencyWeightedRouter[str] = LatencyWeightedRouter()
    for route in latencies:
        router.add(route)
    picks: Counter[str] = Counter()
    for number in range(2000):
        picked = router.pick(always)
        assert picked is not None
        router.update(picked, latencies[picked])
        if number >= 1000:
            picks[picked] += 1
    total = sum(1 / latency for latency in latencies.values())
    for route, latency in latencies.items():
        assert picks[route] / 1000 == pytest.approx(1 / latency / total, abs=0.01)


def test_unusable_routes_are_passed_over_and_not_flooded_afterwards() -> None:
    router: LatencyWeightedRouter[str] = LatencyWeightedRouter()
    router.add("a")
    router.add("b")
    assert {router.pick(lambda route: route == "a") for _ in range(100)} == {"a"}
    assert router.pick(lambda route: False) is None
    picks = Counter(router.pick(always) for _ in range(20))
    assert abs(picks["a"] - picks["b"]) <= 2


def test_routes_come() -> None:
    router: LatencyWeightedRouter[str] = LatencyWeightedRouter()
    assert router.pick(always) is None
    router.add("a")
    for _ in range(50):
        router.pick(always)
    router.add("b")
    router.add("b")
    picks = Counter(router.pick(always) for _ in range(20))
    assert picks["b"] <= 11
    router.update("c", 5)
    assert {router.pick(always) for _ in range(20)} == {"a", "b"}


def test_latencies_are_clipped() -> None:
    router: LatencyWeightedRouter[str] = LatencyWeightedRouter()
    router.add("a")
    router.add("b")
    for _ in range(20):
        router.update("a", 1e9)
        router.update("b", 0)
    picks = Counter(router.pick(always) for _ in range(301))
    assert picks["a"] == 1
