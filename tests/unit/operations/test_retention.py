"""Retention goes as far as the limits, and never beyond what somebody needs: against a naive model."""

import asyncio
from typing import NamedTuple
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.memory_zookeeper import MemoryZooKeeperServer
from tests.unit.operations.test_trimming import Setup
from tests.unit.operations.test_trimming import setup as setup  # the fixture
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.errors import WaltzError
from waltz.common.retention import Retention
from waltz.common.zk.trim_points import raise_trim_point, read_trim_point
from waltz.operations import retention, trimming
from waltz.operations.retention import Retained, retain
from waltz.operations.trimming import Need, last_committed_at, low_water_mark

ROOT = "/cluster"
NOW_MS = 1_000_000


class Case(NamedTuple):
    """A partition, and what its retention is to do."""

    before: int
    by_age: int
    by_size: int
    mark: int
    needs: list[int]


CASES = st.builds(
    Case, st.integers(0, 9), st.integers(-1, 20), st.integers(0, 20), st.integers(-1, 20), st.lists(st.integers(0, 20))
)


async def carry_out(case: Case, limits: Retention) -> tuple[Retained, int]:
    zookeeper = await MemoryZooKeeperServer().connect()
    await zookeeper.create(ROOT, None)
    cluster = ClusterHandle(zookeeper, ROOT, None)
    await raise_trim_point(zookeeper, ROOT, 0, case.before)

    async def last_committed_at(_cluster: ClusterHandle, _partition_id: int, time_ms: int) -> int:
        assert time_ms == NOW_MS - limits.age_ms
        return case.by_age

    async def first_within(_cluster: ClusterHandle, _partition_id: int, size_bytes: int) -> int:
        assert size_bytes == limits.size_bytes
        return case.by_size

    async def low_water_mark(*_: object) -> int:
        return case.mark

    async def needs_of(*_: object) -> list[Need]:
        return [Need(f"cursor {number}", first, "why") for number, first in enumerate(case.needs)]

    async def archived_end(_: int) -> int | None:
        raise AssertionError("the needs are made up")

    with (
        mock.patch.object(retention, "last_committed_at", last_committed_at),
        mock.patch.object(retention, "first_within", first_within),
        mock.patch.object(retention, "low_water_mark", low_water_mark),
        mock.patch.object(trimming, "low_water_mark", low_water_mark),
        mock.patch.object(retention, "needs_of", needs_of),
        mock.patch.object(trimming, "needs_of", needs_of),
        mock.patch.object(trimming, "sync_cluster", mock.AsyncMock()),
    ):
        found = await retain(cluster, 0, limits, NOW_MS, archived_end)
    point = await read_trim_point(zookeeper, ROOT, 0)
    await zookeeper.close()
    return found, point


@given(CASES, st.booleans(), st.booleans())
def test_what_is_beyond_all_limits_and_needed_by_nobody_is_trimmed(case: Case, has_age: bool, has_size: bool) -> None:
    limits = Retention(1000 if has_age else 0, 1 << 30 if has_size else 0)
    found, point = asyncio.run(carry_out(case, limits))
    due = max(case.by_age + 1 if has_age else 0, case.by_size if has_size else 0)
    kept = {each for each in range(50) if each >= due or each > case.mark or any(each >= need for need in case.needs)}
    assert point == max(case.before, min(kept)) == found.point
    assert found.before == case.before
    assert (found.held is None) == (point >= due)
    if found.held is not None:
        by_mark = all(need > case.mark + 1 for need in case.needs) and case.mark + 1 < due
        assert found.held_by_mark == by_mark
        first_need = min((need for need in case.needs if need < due), default=None)
        assert ("low-water mark" if by_mark else f"those from {first_need} on (why)") in found.held


async def test_a_partition_of_real_storages(setup: Setup) -> None:
    await setup.allow()
    mark = await low_water_mark(setup.cluster, 0)
    with pytest.raises(WaltzError, match="no replica"):
        await last_committed_at(setup.cluster, 7, NOW_MS)
    assert await last_committed_at(setup.cluster, 0, NOW_MS) == -1, "no time is known"
    await setup.cursor("a", {"transactionId": 2, "holder": "x"})
    with mock.patch.object(retention, "first_within", mock.AsyncMock(return_value=10)):
        found = await retain(setup.cluster, 0, Retention(0, 1), NOW_MS, setup.archived_end)
    assert (found.before, found.point, found.due, found.mark) == (0, 2, 10, mark)
    assert found.held == "cursor a needs those from 2 on (it stands at 2)"
