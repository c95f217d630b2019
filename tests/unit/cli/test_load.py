"""A load in both loops: everything is appended, once, and measured."""

import random

import pytest

import waltz
from waltz.cli.load import Load, Read, consume, produce
from waltz.client.errors import ClientClosedError
from waltz.client.mock import MockDriver, MockServerPartition

CLOSED = Load(30, 16, 2, 4, 0.0, 0)
OPEN = CLOSED._replace(interval_s=0.0005)


@pytest.mark.parametrize("load", [CLOSED, OPEN, CLOSED._replace(lock_pool_size=2), OPEN._replace(lock_pool_size=1)])
async def test_all_is_appended_once_and_measured(load: Load) -> None:
    shared = MockServerPartition.create(2)
    told: list[int] = []
    async with waltz.connect(MockDriver(shared)) as one, waltz.connect(MockDriver(shared)) as other:
        measured = await produce([one, other], load, random.Random(1), told.append)
        records = [record for partition in shared for record in partition.transactions]
        assert len(records) == len(measured.latencies_s) == len(measured.committed_s) == sum(told) == 60
        assert {len(record.data) for record in records} == {16}
        assert min(measured.latencies_s) >= 0
        assert list(measured.committed_s) == sorted(measured.committed_s)
        assert measured.committed_s[-1] <= measured.duration_s
        assert measured.retries >= 0
        assert load.lock_pool_size or not measured.retries
        read = await consume(one, [-1, 4], [len(each.transactions) - 1 for each in shared], lambda _: None)
    assert read == Read(55, 55 * 16, read.duration_s)


@pytest.mark.parametrize("load", [CLOSED, OPEN])
async def test_a_failure_ends_the_run(load: Load) -> None:
    async with waltz.connect(MockDriver(2)) as client:
        pass
    with pytest.raises(ClientClosedError):
        await produce([client], load, random.Random(1), lambda _: None)
