"""Storage nodes in processes of their own that start fast, to be killed and started again many times."""

import asyncio
import multiprocessing
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from uuid import UUID

from tests.memory_zookeeper import MemoryZooKeeperServer
from waltz.common.config.schemas import StorageConfig, TlsConfig
from waltz.common.ids import Endpoint
from waltz.common.metrics.registry import Registry
from waltz.common.zk.znodes import StoreParams
from waltz.storage.disk.files.files import OsFiles
from waltz.storage.node.node import StorageNode
from waltz.storage.remote.admin_client import StorageAdminClient
from waltz.storage.remote.client import StorageClient

KEY = UUID("00010203-0405-0607-0809-0a0b0c0d0e0f")
ROOT = "/cluster"
TIMEOUT_S = 60.0

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["waltz.storage.node.node", "tests.integration.storage_processes"])


def serve(
    directories: Sequence[str], partitions: int, threshold_bytes: int, journal: bool, connection: Connection
) -> None:
    """Body of the process: a node without TLS, which tells its ports and ends in order on a word."""

    async def run() -> None:
        server = MemoryZooKeeperServer()
        zookeeper = await server.connect()
        await zookeeper.create(f"{ROOT}/store", StoreParams(KEY, partitions).encode(), make_path=True)
        config = StorageConfig.model_validate(
            {
                "zookeeper_connect_string": "memory",
                "zookeeper_session_timeout_ms": 10_000,
                "cluster_root": ROOT,
                "storage_port": 0,
                "storage_admin_port": 0,
                "storage_directory": directories[0],
                "storage_directories": ", ".join(directories),
                "storage_bind_address": "127.0.0.1",
                "segment_size_threshold_bytes": threshold_bytes,
                "journal_enabled": journal,
                "tls": TlsConfig(plaintext=True),
            }
        )
        files = OsFiles()
        node = await StorageNode.start(config, files=files, zookeeper=zookeeper, metrics=Registry())
        connection.send((node.port, node.admin_port))
        await asyncio.to_thread(connection.recv)
        await node.close()
        await zookeeper.close()
        files.close()
        connection.send("closed")

    asyncio.run(run())


class StorageProcess:
    """A running node."""

    def __init__(
        self,
        directory: Path,
        *,
        partitions: int,
        threshold_bytes: int = 1_000_000_000,
        journal: bool = False,
        further: Sequence[Path] = (),
    ) -> None:
        self._partitions = partitions
        self._connection, theirs = _context.Pipe()
        self._process: BaseProcess = _context.Process(
            target=serve,
            args=([str(directory), *map(str, further)], partitions, threshold_bytes, journal, theirs),
            daemon=True,
        )
        self._process.start()
        theirs.close()
        assert self._connection.poll(TIMEOUT_S), "the node did not start"
        self.port, self.admin_port = self._connection.recv()

    async def client(self) -> StorageClient:
        return await StorageClient.connect(
            Endpoint("127.0.0.1", self.port),
            cluster_key=KEY,
            partition_count=self._partitions,
            tls=None,
            timeout_s=TIMEOUT_S,
        )

    async def admin(self) -> StorageAdminClient:
        return await StorageAdminClient.connect(
            Endpoint("127.0.0.1", self.admin_port),
            cluster_key=KEY,
            partition_count=self._partitions,
            tls=None,
            timeout_s=TIMEOUT_S,
        )

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._end()

    def stop(self) -> None:
        """End it in order."""
        self._connection.send("stop")
        assert self._connection.poll(TIMEOUT_S), "the node did not end"
        assert self._connection.recv() == "closed"
        self._end()

    def _end(self) -> None:
        self._process.join(TIMEOUT_S)
        self._process.close()
        self._connection.close()
