"""What an engine knows of its cluster."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.unit.client.application import QUICK, config
from waltz.client.engine.engine import Engine
from waltz.client.engine.environment import Environment
from waltz.client.errors import ClientClosedError, InvalidOperationError, PartitionNotFoundError
from waltz.client.mock.cluster import FixedCluster


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[Engine]:
    made = Engine(Environment(config(), FixedCluster("cluster", 3, {}, client_ids=[5]), options=QUICK), None)
    yield made
    await made.close()


async def test_who_it_is_is_not_known_before_it_has_joined(engine: Engine) -> None:
    with pytest.raises(InvalidOperationError):
        _ = engine.client_id
    with pytest.raises(InvalidOperationError):
        _ = engine.cluster_name
    engine.cluster_joined("cluster", 5, 3)
    assert (engine.client_id, engine.cluster_name, len(engine.partitions)) == (5, "cluster", 3)
    assert engine.active == frozenset()


async def test_the_number_of_partitions_does_not_change(engine: Engine) -> None:
    engine.cluster_joined("cluster", 5, 3)
    engine.cluster_joined("cluster", 5, 3)
    with pytest.raises(InvalidOperationError, match="number of partitions"):
        engine.cluster_joined("cluster", 5, 4)


async def test_partitions_are_found_while_it_is_open(engine: Engine) -> None:
    engine.cluster_joined("cluster", 5, 3)
    assert engine.partition(2).partition_id == 2
    for unknown in (-1, 3):
        with pytest.raises(PartitionNotFoundError):
            engine.partition(unknown)
    await engine.close()
    with pytest.raises(ClientClosedError):
        engine.partition(2)


async def test_a_cluster_that_cannot_be_joined_leaves_nothing_behind() -> None:
    class Gone(FixedCluster):
        left = 0

        async def join(self, member: object) -> None:
            raise OSError("no cluster")

        async def leave(self, member: object) -> None:
            self.left += 1

    cluster = Gone("cluster", 1, {})
    with pytest.raises(OSError, match="no cluster"):
        await Engine.open(Environment(config(), cluster, options=QUICK))
    assert cluster.left == 1


async def test_what_every_append_looks_at_has_few_attributes(engine: Engine) -> None:
    """CPython finds the attributes of an object at once as long as there are at most 30 of them."""
    engine.cluster_joined("cluster", 5, 3)
    partition = engine.partitions[0]
    for each in (partition, partition.appends, partition.feed, partition.mount, engine):
        assert len(vars(each)) <= 30, type(each)
