"""Features are refused while a node of the cluster cannot live with them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.operations.test_repair import Cluster, cluster, storage_name
from tests.unit.storage.node_support import ROOT
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.errors import WaltzError
from waltz.common.ids import Endpoint
from waltz.common.wire.versions import FIRST_WITH_TRIM
from waltz.common.zk.features import TRIM, read_features
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.trim_points import raise_trim_point
from waltz.common.zk.znodes import ServerDescriptor
from waltz.operations import features
from waltz.operations.features import disable_trim, enable_trim, obstacles, old_nodes
from waltz.operations.survey.survey import ServerReport
from waltz.operations.trimming import OldNodesError, check_trims
from waltz.storage.remote.client import StorageClient

SERVER = Endpoint("server.example", 7000)


class Setup:
    def __init__(self, made: Cluster, handle: ClusterHandle) -> None:
        self.made = made
        self.cluster = handle
        self.version: int | None = FIRST_WITH_TRIM

    async def enabled(self) -> bool:
        return TRIM in (await read_features(self.cluster.zookeeper, ROOT)).names


@pytest.fixture
async def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Setup]:
    async with cluster(tmp_path, lambda _directory: None) as made:
        await made.describe(members=(0, 1, 2))
        zookeeper = await made.server.connect()
        found = Setup(made, ClusterHandle(zookeeper, ROOT, None))

        async def ask(endpoint: Endpoint, *_: object) -> ServerReport:
            assert endpoint == SERVER
            return ServerReport(found.version, "it is away", "", "")

        async def descriptors(*_: object) -> list[ServerDescriptor]:
            return [ServerDescriptor(1, SERVER, ())]

        monkeypatch.setattr(features, "ask_server", ask)
        monkeypatch.setattr(features, "read_server_descriptors", descriptors)
        yield found
        await zookeeper.close()


async def test_our_nodes_are_no_obstacle(setup: Setup) -> None:
    assert await obstacles(setup.cluster) == []
    await enable_trim(setup.cluster)
    await enable_trim(setup.cluster)
    assert await setup.enabled()


@pytest.mark.parametrize("version", [None, 0, 4, FIRST_WITH_TRIM - 1])
async def test_other_and_silent_servers_are(setup: Setup, version: int | None) -> None:
    setup.version = version
    reason = "cannot be asked: it is away" if version is None else "is a node of the original, or of an older version"
    with pytest.raises(WaltzError, match=f"the feature trim needs other nodes: server server.example:7000 {reason}"):
        await enable_trim(setup.cluster)
    assert not await setup.enabled()


async def test_storages_that_do_not_know_trims_are(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StorageClient, "trims", False)
    with pytest.raises(WaltzError, match=r"storage .* is a node of the original, or of an older version; storage .*"):
        await enable_trim(setup.cluster)
    assert not await setup.enabled()


async def test_only_nodes_that_answer_are_known_to_be_old(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await old_nodes(setup.cluster) == []
    await enable_trim(setup.cluster)
    await check_trims(setup.cluster)
    setup.version = None
    assert len(await obstacles(setup.cluster)) == 1
    await check_trims(setup.cluster)
    setup.version = 4
    text = "server server.example:7000 is a node of the original, or of an older version"
    assert await old_nodes(setup.cluster) == [text]
    with pytest.raises(OldNodesError, match=f"nothing is trimmed while .*: {text}; take") as told:
        await check_trims(setup.cluster)
    assert told.value.nodes == (text,)
    monkeypatch.setattr(StorageClient, "trims", False)
    assert len(await old_nodes(setup.cluster)) == 1 + len(setup.made.nodes)


async def test_storages_that_are_away_are(setup: Setup) -> None:
    name = storage_name(setup.made.nodes[1])
    await setup.made.nodes[1].node.close()
    with pytest.raises(WaltzError, match=f"needs other nodes: storage {name} cannot be asked: "):
        await enable_trim(setup.cluster)
    assert not await setup.enabled()


async def test_it_stays_while_a_partition_is_trimmed(setup: Setup) -> None:
    await enable_trim(setup.cluster)
    await raise_trim_point(setup.cluster.zookeeper, ROOT, 1, 5)
    with pytest.raises(WaltzError, match="partition 1 trimmed: the feature trim stays"):
        await disable_trim(setup.cluster)
    assert await setup.enabled()
    await setup.cluster.zookeeper.delete(ClusterPaths.of(ROOT).partition_properties(1))
    await disable_trim(setup.cluster)
    assert not await setup.enabled()
