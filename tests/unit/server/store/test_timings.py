"""How long storages take, as operators see it."""

import random

import pytest

from tests.unit.server.store.world import NAMES, World, wait_until
from waltz.common.metrics.exposition import prometheus_text
from waltz.common.metrics.registry import Histogram, Registry
from waltz.server.store.interface import StoreOptions
from waltz.server.store.timings import StoreTimings

A, B, C = NAMES


class Clock:
    """Seconds that pass whenever somebody looks."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        self.now_s += 0.001
        return self.now_s


def count(histogram: Histogram) -> int:
    return sum(histogram.counts)


async def test_every_commit_and_every_acknowledgement_is_observed_once() -> None:
    timings = StoreTimings(Registry(Clock()))
    acknowledged = {name: timings.acknowledgements.of(name) for name in NAMES}
    async with World(options=StoreOptions(random_source=random.Random(0), timings=timings)) as world:
        server = await world.server()
        for _ in range(10):
            await server.write(20)
        await wait_until(lambda: len({count(each) for each in acknowledged.values()}) == 1)
        batches = count(acknowledged[A])
        assert 10 <= batches <= 200, "observed by batch, and not by transaction"
        assert 10 <= count(timings.quorum) <= batches
        world.storages[C].stop()
        for _ in range(5):
            await server.write(1)
        assert count(acknowledged[A]) == batches + 5
        assert count(acknowledged[C]) == batches
    assert 0 < timings.quorum.total < 10


def test_storages_without_replicas_are_forgotten() -> None:
    registry = Registry()
    timings = StoreTimings(registry)
    timings.acknowledgements.of("a:1").observe(0.001)
    timings.acknowledgements.of("b:1").observe(0.001)
    timings.set_storages(["b:1", "c:1"])
    text = prometheus_text(registry)
    assert 'storage="b:1"' in text
    assert 'storage="a:1"' not in text


@pytest.mark.parametrize("times", [1, 3])
def test_timings_of_one_registry_are_the_same(times: int) -> None:
    registry = Registry()
    for _ in range(times):
        StoreTimings(registry).quorum.observe(1)
    assert f"waltz_server_quorum_seconds_count {times}\n" in prometheus_text(registry)
