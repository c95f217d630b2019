"""The address of the archive in ZooKeeper: beside the locks of archivers, whatever else stands there."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.memory_zookeeper import MemoryZooKeeper, MemoryZooKeeperServer
from waltz.common.zk.archive_address import ArchiveAddressError, read_archive_url, write_archive_url
from waltz.common.zk.mutex import mutex
from waltz.common.zk.paths import ClusterPaths

ROOT = "/waltz"
PATHS = ClusterPaths.of(ROOT)
URL = "s3://bucket/waltz?region=eu-central-1"


@pytest.fixture
async def zk() -> MemoryZooKeeper:
    client = await MemoryZooKeeperServer().connect()
    await client.create(ROOT, None)
    return client


async def test_it_is_set_changed_and_removed(zk: MemoryZooKeeper) -> None:
    assert await read_archive_url(zk, ROOT) is None
    await write_archive_url(zk, ROOT, None)
    assert await zk.exists(PATHS.archive) is None
    await write_archive_url(zk, ROOT, URL)
    assert (await zk.get(PATHS.archive))[0] == b'{"url": "%s"}' % URL.encode()
    assert await read_archive_url(zk, ROOT) == URL
    await write_archive_url(zk, ROOT, "file:///archive")
    assert await read_archive_url(zk, ROOT) == "file:///archive"
    await write_archive_url(zk, ROOT, None)
    assert await read_archive_url(zk, ROOT) is None


async def test_it_stands_beside_the_locks_of_archivers(zk: MemoryZooKeeper) -> None:
    await zk.create(PATHS.archive, None, make_path=True)
    async with mutex(zk, PATHS.archive_lock(0), timeout_s=1.0):
        assert await read_archive_url(zk, ROOT) is None
        await write_archive_url(zk, ROOT, URL)
        await write_archive_url(zk, ROOT, None)
        await write_archive_url(zk, ROOT, URL)
    assert await read_archive_url(zk, ROOT) == URL


async def test_the_parent_of_the_locks_may_come_meanwhile(zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    create = zk.create

    async def late(path: str, data: bytes | None, *, make_path: bool = False) -> str:
        monkeypatch.undo()
        await create(path, None, make_path=True)
        return await create(path, data, make_path=make_path)

    monkeypatch.setattr(zk, "create", late)
    await write_archive_url(zk, ROOT, URL)
    assert await read_archive_url(zk, ROOT) == URL


@given(st.binary(min_size=1) | st.sampled_from([b"{}", b"[]", b'{"url": 7}', b'{"url": ""}', b"[" * 100_000]))
def test_anything_else_there_is_an_error(data: bytes) -> None:
    async def look() -> None:
        zookeeper = await MemoryZooKeeperServer().connect()
        await zookeeper.create(PATHS.archive, data, make_path=True)
        with pytest.raises(ArchiveAddressError, match="does not hold the address of an archive: waltz archive set-url"):
            await read_archive_url(zookeeper, ROOT)

    asyncio.run(look())


async def test_what_is_far_too_long_is_not_written(zk: MemoryZooKeeper) -> None:
    with pytest.raises(ArchiveAddressError, match="at most 4096 bytes"):
        await write_archive_url(zk, ROOT, "s3://" + 5000 * "x")
    assert await read_archive_url(zk, ROOT) is None
