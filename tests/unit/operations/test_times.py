"""Times of commits for a replica that a tool has filled, from real nodes of which some know more than others."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.unit.operations.test_repair import Cluster, cluster, storage_name
from tests.unit.storage.node_support import ROOT
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.cluster.replicas import read_replicas
from waltz.common.wire.frames import STORAGE
from waltz.common.wire.storage_times import CommitTime
from waltz.operations.times import copy_times_of_members

KNOWN = [CommitTime(4, 400), CommitTime(11, 1100), CommitTime(39, 3900)]


async def copied(made: Cluster, first: int, last: int, *, except_from: int = 0) -> list[CommitTime]:
    """What is entered at the replica of a node."""
    entered: list[CommitTime] = []

    async def enter(times: Sequence[CommitTime]) -> None:
        entered.extend(times)

    zookeeper = await made.server.connect()
    try:
        replicas = await read_replicas(zookeeper, ROOT, [0])
        handle, name = ClusterHandle(zookeeper, ROOT, None), storage_name(made.nodes[except_from])
        report = made.lines.append
        await copy_times_of_members(handle, replicas, 0, enter, first, last, report, except_from=name)
    finally:
        await zookeeper.close()
    return entered


def enter_at(made: Cluster, number: int, times: Sequence[CommitTime]) -> None:
    made.nodes[number].node.manager.partitions[0].log.times.enter(times)


async def test_the_first_member_that_has_times_gives_them(tmp_path: Path) -> None:
    async with cluster(tmp_path, lambda _directory: None) as made:
        enter_at(made, 0, [CommitTime(7, 700)])
        assert await copied(made, 0, 39) == [], "the others know nothing, and it is not asked itself"
        enter_at(made, 2, KNOWN)
        assert await copied(made, 0, 39) == KNOWN
        assert await copied(made, 5, 20) == [CommitTime(11, 1100), CommitTime(20, 3900)]
        assert await copied(made, 21, 20) == []
        assert made.lines == []


async def test_only_members_of_the_session_are_asked_and_failures_are_reported(tmp_path: Path) -> None:
    async with cluster(tmp_path, lambda _directory: None) as made:
        enter_at(made, 1, KNOWN)
        await made.describe(members=(0, 2))
        assert await copied(made, 0, 39) == []
        await made.describe(members=(0, 1))
        await made.nodes[1].node.close()
        assert await copied(made, 0, 39) == []
        (line,) = made.lines
        assert line.startswith("partition 0: the times of its transactions were not copied: ")
        assert storage_name(made.nodes[1]) in line


async def test_storages_of_the_original_have_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster(tmp_path, lambda _directory: None) as made:
        enter_at(made, 1, KNOWN)
        monkeypatch.setattr("waltz.storage.remote.client._FAMILY", STORAGE._replace(versions=(0,)))
        assert await copied(made, 0, 39) == []
        assert made.lines == []
