"""How far the archive goes is read from it, or an error says why that is not known."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.memory_zookeeper import MemoryZooKeeperServer
from waltz.archive import chain
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.errors import WaltzError
from waltz.common.zk.archive_address import write_archive_url
from waltz.common.zk.store_admin import create_cluster
from waltz.operations import archived
from waltz.operations.archived import archived_end

ROOT = "/waltz"


@pytest.fixture
async def cluster() -> AsyncIterator[ClusterHandle]:
    zookeeper = await MemoryZooKeeperServer().connect()
    await create_cluster(zookeeper, ROOT, "fake", 3)
    yield ClusterHandle(zookeeper, ROOT, None)
    await zookeeper.close()


async def test_an_archive_begins_empty(cluster: ClusterHandle, tmp_path: Path) -> None:
    assert await archived_end(cluster, 1) is None
    await write_archive_url(cluster.zookeeper, ROOT, tmp_path.as_uri())
    assert await archived_end(cluster, 1) == 0


async def test_an_archive_that_cannot_be_read_is_an_error(
    cluster: ClusterHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write_archive_url(cluster.zookeeper, ROOT, tmp_path.as_uri())

    async def silent(_: object) -> None:
        await asyncio.Event().wait()

    with monkeypatch.context() as patched:
        patched.setattr(chain, "newest_page", silent)
        patched.setattr(archived, "_TIMEOUT_S", 0.0)
        with pytest.raises(WaltzError, match="did not answer within 0 s"):
            await archived_end(cluster, 1)
    monkeypatch.setitem(sys.modules, "waltz.archive.store", None)
    with pytest.raises(WaltzError, match=f"the archive at {tmp_path.as_uri()} cannot be read: .*archive"):
        await archived_end(cluster, 1)
