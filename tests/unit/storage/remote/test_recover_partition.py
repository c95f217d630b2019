"""A partition is copied from one node to another, unless that could take away what was acknowledged."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.unit.common.zk.lagging import LaggingZooKeeper
from tests.unit.operations.test_repair import LOG, Cluster, cluster
from tests.unit.storage.log_testing import KEY
from tests.unit.storage.node_support import PARTITION_COUNT, ROOT, TIMEOUT_S
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.errors import WaltzError
from waltz.common.ids import Endpoint
from waltz.common.zk.client import ZooKeeper
from waltz.common.zk.trim_points import raise_trim_point
from waltz.operations.storages import PartitionCopy
from waltz.storage.remote.admin_client import StorageAdminClient
from waltz.storage.remote.client import StorageClient

MARK = 19
"""The low-water mark of all nodes; they hold 40 transactions."""


@asynccontextmanager
async def whole_cluster(directory: Path, *, members: tuple[int, ...]) -> AsyncIterator[Cluster]:
    """The first node is the destination, and switched off."""
    async with cluster(directory, lambda _directory: None) as made:
        await made.describe(members=members)
        await (await made.nodes[0].admin()).set_available([0], False)
        yield made


async def recover(
    made: Cluster, *, truncate: bool = False, host: str = "127.0.0.1", zookeeper: ZooKeeper | None = None
) -> int:
    connected = zookeeper or await made.server.connect()
    destination = await StorageAdminClient.connect(
        Endpoint(host, made.nodes[0].node.admin_port),
        cluster_key=KEY,
        partition_count=PARTITION_COUNT,
        tls=None,
        timeout_s=TIMEOUT_S,
    )
    try:
        source, data = await made.nodes[1].admin(), await made.nodes[0].client()
        recovery = PartitionCopy(ClusterHandle(connected, ROOT, None), source, destination, data, 0, made.lines.append)
        return await recovery.run(7, truncate=truncate)
    finally:
        await destination.close()
        await connected.close()


async def assert_untouched(made: Cluster) -> None:
    assert await (await made.nodes[0].admin()).records(0, 0, 100) == LOG


async def test_a_member_is_refused(tmp_path: Path) -> None:
    async with whole_cluster(tmp_path, members=(0, 1, 2)) as made:
        for truncate in (False, True):
            with pytest.raises(WaltzError, match="as a member: .*waltz storage repair.*remove-partition -d"):
                await recover(made, truncate=truncate)
        await assert_untouched(made)


async def test_a_member_that_a_lagging_ensemble_does_not_know_yet_is_refused(tmp_path: Path) -> None:
    async with whole_cluster(tmp_path, members=(1, 2)) as made:
        zookeeper = LaggingZooKeeper(made.server, await made.server.connect())
        zookeeper.fall_behind()
        await made.describe(members=(0, 1, 2))
        with pytest.raises(WaltzError, match="as a member"):
            await recover(made, truncate=True, zookeeper=zookeeper)
        await assert_untouched(made)


async def test_a_node_that_the_cluster_knows_by_another_name_is_refused(tmp_path: Path) -> None:
    async with whole_cluster(tmp_path, members=(1, 2)) as made:
        with pytest.raises(WaltzError, match="knows no storage node whose admin port is localhost:"):
            await recover(made, truncate=True, host="localhost")
        await assert_untouched(made)


async def test_what_would_be_cut_is_said_and_stays(tmp_path: Path) -> None:
    async with whole_cluster(tmp_path, members=(1, 2)) as made:
        with pytest.raises(WaltzError, match=rf"transactions 20 to 39 .* up to {MARK} copied .* with --truncate"):
            await recover(made)
        await assert_untouched(made)
        assert await recover(made, truncate=True) == MARK
        assert "removing transactions 20 to 39 from the destination" in made.lines
        assert await (await made.nodes[0].admin()).records(0, 0, 100) == LOG[: MARK + 1]


@pytest.mark.parametrize("members", [(1, 2), (0, 1, 2)])
async def test_a_node_that_has_nothing_is_filled(tmp_path: Path, members: tuple[int, ...]) -> None:
    """Even a member: nothing can be taken from it, and what is copied is certain."""
    async with whole_cluster(tmp_path, members=members) as made:
        admin = await made.nodes[0].admin()
        await admin.set_assigned([0], False, delete_files=True)
        await admin.set_assigned([0], True)
        await admin.set_available([0], False)
        await (await made.nodes[1].client()).set_low_water_mark(1, 0, 39, timeout_s=TIMEOUT_S)
        assert await recover(made) == 39
        await assert_untouched(made)


@pytest.mark.parametrize("trim_point", [10, MARK, MARK + 1])
async def test_a_trimmed_partition_is_filled_from_its_trim_point_on(tmp_path: Path, trim_point: int) -> None:
    """The source still has transactions before it, which another source may not have."""
    async with whole_cluster(tmp_path, members=(1, 2)) as made:
        admin = await made.nodes[0].admin()
        await admin.set_assigned([0], False, delete_files=True)
        await admin.set_assigned([0], True)
        await admin.set_available([0], False)
        zookeeper = await made.server.connect()
        await raise_trim_point(zookeeper, ROOT, 0, trim_point)
        assert await recover(made) == MARK
        assert await recover(made) == MARK, "what is there is kept"
        assert await admin.records(0, 0, 100) == []
        assert await admin.records(0, trim_point, 100) == LOG[trim_point : MARK + 1]
        await zookeeper.close()


async def test_a_destination_that_has_some_of_what_is_not_trimmed_keeps_it(tmp_path: Path) -> None:
    async with whole_cluster(tmp_path, members=(1, 2)) as made:
        zookeeper = await made.server.connect()
        await raise_trim_point(zookeeper, ROOT, 0, 10)
        assert await recover(made, truncate=True) == MARK
        assert await (await made.nodes[0].admin()).records(0, 0, 100) == LOG[: MARK + 1]
        await zookeeper.close()


async def test_a_node_of_the_original_cannot_begin_at_the_trim_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with whole_cluster(tmp_path, members=(1, 2)) as made:
        admin = await made.nodes[0].admin()
        await admin.set_assigned([0], False, delete_files=True)
        await admin.set_assigned([0], True)
        await admin.set_available([0], False)
        zookeeper = await made.server.connect()
        await raise_trim_point(zookeeper, ROOT, 0, 10)
        monkeypatch.setattr(StorageClient, "trims", False)
        with pytest.raises(WaltzError, match=r"is trimmed before 10, and 127.0.0.1:\d+ cannot begin there"):
            await recover(made)
        await zookeeper.close()


async def test_an_online_destination_and_an_empty_batch_are_refused(tmp_path: Path) -> None:
    async with whole_cluster(tmp_path, members=(1, 2)) as made:
        await (await made.nodes[0].admin()).set_available([0], True)
        with pytest.raises(WaltzError, match="it is online on the destination"):
            await recover(made)
        with pytest.raises(WaltzError, match="at least 1 record"):
            await PartitionCopy(
                ClusterHandle(await made.server.connect(), ROOT, None),
                await made.nodes[1].admin(),
                await made.nodes[0].admin(),
                await made.nodes[0].client(),
                0,
                made.lines.append,
            ).run(0)
