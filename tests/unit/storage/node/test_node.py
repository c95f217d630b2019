"""A whole node: start, what keeps it from starting, restart, HTTP, the daemon."""

import asyncio
import json
import os
import re
import signal
import tarfile
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.memory_zookeeper import MemoryZooKeeperServer
from tests.unit.storage.node_support import (
    DISABLED,
    KEY,
    OTHER_KEY,
    PARTITION_COUNT,
    ROOT,
    TIMEOUT_S,
    ObservedFiles,
    decoded,
    make_config,
    make_zookeeper,
    records,
    running_node,
)
from waltz.common.config.schemas import ClusterConfig, StorageConfig, TlsConfig
from waltz.common.errors import ConnectFailedError, WaltzError
from waltz.common.metrics.registry import Registry
from waltz.common.net.limits import RESERVED_FILES
from waltz.common.net.tls import client_context
from waltz.common.records import Record
from waltz.common.storage_health import StorageHealth
from waltz.common.zk.client import ConnectionLossError, SessionExpiredError, ZooKeeper
from waltz.storage.disk.control_file import ControlFile
from waltz.storage.disk.files.files import OsFiles
from waltz.storage.node import node as node_module
from waltz.storage.node.manager import StorageManager
from waltz.storage.node.node import StorageNode, run
from waltz.storage.node.replies import read_encoded
from waltz.storage.remote.admin_client import StorageAdminClient
from waltz.storage.remote.client import StorageClient
from waltz.storage.remote.errors import RemoteStorageError

DATA_DIRECTORY = Path(__file__).parents[3] / "data"


async def http_get(port: int, path: str) -> tuple[int, str, str]:
    """Status, content type and body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    async with asyncio.timeout(TIMEOUT_S):
        response = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    head, _, body = response.partition("\r\n\r\n")
    content_type = re.search(r"^content-type: (.*?)\r?$", head, re.IGNORECASE | re.MULTILINE)
    assert content_type is not None
    return int(head.split()[1]), content_type[1], body


async def start_error(config_directory: Path, **settings: object) -> str:
    """The one line with which a node refuses to start."""
    files = ObservedFiles()
    zookeeper = await (await make_zookeeper()).connect()
    try:
        with pytest.raises(WaltzError) as caught:
            await StorageNode.start(
                make_config(config_directory, **settings), files=files, zookeeper=zookeeper, metrics=Registry()
            )
    finally:
        await zookeeper.close()
        files.close()
    assert "\n" not in str(caught.value)
    return str(caught.value)


async def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        client, admin = await node.client(), await node.admin()
        await client.append(3, 0, records(0, 10), timeout_s=TIMEOUT_S)
        await client.set_low_water_mark(3, 0, 9, timeout_s=TIMEOUT_S)
        await client.append(3, 0, records(10, 3), timeout_s=TIMEOUT_S)
        await client.last_session_info(8, 1, timeout_s=TIMEOUT_S)
        await admin.set_available([1], False)
    async with running_node(tmp_path, assign=()) as node:
        client, admin = await node.client(), await node.admin()
        assert await admin.assigned_partition_status() == {0: True, 1: False}
        assert await client.last_session_info(3, 0, timeout_s=TIMEOUT_S) == (3, 9, 9)
        assert await client.records(3, 0, 0, 100, timeout_s=TIMEOUT_S) == records(0, 13)
        await admin.set_available([1], True)
        with pytest.raises(RemoteStorageError, match="session id has changed to 8"):
            await client.max_transaction_id(7, 1, timeout_s=TIMEOUT_S)


@pytest.mark.parametrize("deleted", [False, True])
async def test_an_unassignment_by_the_original_ends_the_fence_with_the_files(tmp_path: Path, deleted: bool) -> None:
    async with running_node(tmp_path) as node:
        await (await node.client()).last_session_info(8, 0, timeout_s=TIMEOUT_S)
    files = ObservedFiles()
    control_file = ControlFile.open(files, str(tmp_path))
    control_file.reset(0)
    control_file.close()
    files.close()
    if deleted:
        for path in (tmp_path / "0").iterdir():
            path.unlink()
    async with running_node(tmp_path, assign=[0]) as node:
        client = await node.client()
        if deleted:
            assert await client.max_transaction_id(-1, 0, timeout_s=TIMEOUT_S) == -1
        else:
            with pytest.raises(RemoteStorageError, match="session id has changed to 8"):
                await client.max_transaction_id(-1, 0, timeout_s=TIMEOUT_S)


async def test_a_session_that_only_the_control_file_knows_is_kept_with_the_files(tmp_path: Path) -> None:
    """The original has used the directory meanwhile."""
    async with running_node(tmp_path) as node:
        await (await node.client()).set_low_water_mark(3, 0, -1, timeout_s=TIMEOUT_S)
    files = ObservedFiles()
    control_file = ControlFile.open(files, str(tmp_path))
    control_file.set_low_water_mark(0, 9, -1, -1)
    control_file.close()
    files.close()
    async with running_node(tmp_path, assign=()) as node:
        admin, client = await node.admin(), await node.client()
        await admin.set_assigned([0], False)
        await admin.set_assigned([0], True)
        with pytest.raises(RemoteStorageError, match="session id has changed to 9"):
            await client.max_transaction_id(8, 0, timeout_s=TIMEOUT_S)


async def test_a_damaged_fence_ends_with_the_files_that_it_guards(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        await (await node.client()).append(8, 0, records(0, 3), timeout_s=TIMEOUT_S)
    path = tmp_path / "waltz-storage.fence"
    content = bytearray(path.read_bytes())
    for slot in (0, 1):
        content[128 + 16 * slot + 3] ^= 1
    path.write_bytes(content)
    advice = "waltz storage remove-partition -d, then add-partition"
    async with running_node(tmp_path, assign=()) as node:
        admin = await node.admin()
        assert advice in node.node.manager.out_of_service()[0]
        with pytest.raises(WaltzError, match=advice):
            await admin.set_assigned([0], True)
        await admin.set_assigned([0], False, delete_files=True)
        await admin.set_assigned([0], True)
        assert await (await node.client()).max_transaction_id(-1, 0, timeout_s=TIMEOUT_S) == -1
        assert node.node.health()[0]


async def test_files_that_were_kept_with_a_damaged_fence_have_to_go_by_hand(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        await (await node.client()).append(8, 0, records(0, 3), timeout_s=TIMEOUT_S)
    path = tmp_path / "waltz-storage.fence"
    path.write_bytes(path.read_bytes()[:128] + bytes(32) + path.read_bytes()[160:])
    async with running_node(tmp_path, assign=()) as node:
        admin = await node.admin()
        await admin.set_assigned([0], False)
        with pytest.raises(WaltzError, match="delete the segments in .*/0, or move them away, and repeat"):
            await admin.set_assigned([0], True)
        for each in (tmp_path / "0").iterdir():
            each.unlink()
        await admin.set_assigned([0], True)
        assert await (await node.client()).max_transaction_id(-1, 0, timeout_s=TIMEOUT_S) == -1


async def test_tls_with_a_self_signed_certificate_is_the_default(tmp_path: Path) -> None:
    async with running_node(tmp_path, tls=TlsConfig()) as node:
        for client_type, endpoint in (
            (StorageClient, node.endpoint),
            (StorageAdminClient, node.admin_endpoint),
        ):
            tls = client_context(TlsConfig())
            client = await client_type.connect(
                endpoint, cluster_key=KEY, partition_count=PARTITION_COUNT, tls=tls, timeout_s=TIMEOUT_S
            )
            await client.close()
            with pytest.raises(ConnectFailedError):
                await client_type.connect(endpoint, cluster_key=KEY, partition_count=1, tls=None, timeout_s=TIMEOUT_S)


async def test_segments_roll_at_the_configured_size(tmp_path: Path) -> None:
    async with running_node(tmp_path, segment_size_threshold_bytes=400, segment_cache_capacity=1) as node:
        client = await node.client()
        for first in range(0, 100, 5):
            await client.append(1, 0, records(first, 5), timeout_s=TIMEOUT_S)
        assert len(list((tmp_path / "0").glob("*.seg"))) > 5
        assert await client.records(1, 0, 0, 1000, timeout_s=TIMEOUT_S) == records(0, 100)
        assert await client.truncate(1, 0, 50, timeout_s=TIMEOUT_S) == 50
        assert await client.truncate(1, 0, -1, timeout_s=TIMEOUT_S) == -1
        assert len(list((tmp_path / "0").glob("*.seg"))) == 1


async def test_a_directory_of_the_original_is_served(tmp_path: Path) -> None:
    description = json.loads((DATA_DIRECTORY / "storage-dir.json").read_text())
    with tarfile.open(DATA_DIRECTORY / "storage-dir.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    (control_path,) = tmp_path.rglob("waltz-storage.ctl")
    key, count = UUID(description["clusterKey"]), description["numPartitions"]
    async with running_node(control_path.parent, assign=(), key=key, partition_count=count) as node:
        for partition in description["partitions"]:
            partition_id, info = partition["partitionId"], partition["lastSessionInfo"]
            marks = info["sessionId"], info["lowWaterMark"], info["localLowWaterMark"]
            assert node.node.manager.last_session_info(partition_id) == marks
            stored: list[Record] = []
            while more := decoded(
                await node.node.manager.read_log(partition_id, partial(read_encoded, first=len(stored), max_count=1000))
            ):
                stored += more
            expected = [(each["transactionId"], each["data_hex"], each["checksum"]) for each in partition["records"]]
            assert [(each.transaction_id, each.data.hex(), each.checksum) for each in stored] == expected


# What keeps a node from starting


async def test_no_cluster_in_zookeeper(tmp_path: Path) -> None:
    text = await start_error(tmp_path, cluster_root="/other")
    assert text == "there is no cluster at /other in ZooKeeper memory: correct cluster.root or create the cluster"


async def test_the_directory_of_another_cluster(tmp_path: Path) -> None:
    async with running_node(tmp_path, key=OTHER_KEY, assign=()):
        pass
    text = await start_error(tmp_path)
    assert text.startswith(f"cannot use storage directory {tmp_path}: the cluster key does not match")
    assert ROOT in text


async def test_a_missing_directory(tmp_path: Path) -> None:
    assert str(tmp_path / "missing") in await start_error(tmp_path / "missing")


async def test_a_directory_in_use(tmp_path: Path) -> None:
    async with running_node(tmp_path):
        assert "failed to acquire the lock" in await start_error(tmp_path)


async def test_a_path_that_is_no_directory(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    text = await start_error(path)
    assert text.startswith(f"cannot use storage directory {path}: Not a directory")


@pytest.mark.parametrize("key", ["storage_port", "storage_admin_port", "storage_jetty_port"])
async def test_a_port_in_use(tmp_path: Path, key: str) -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    text = await start_error(tmp_path, **{key: port})
    assert text.startswith(f"cannot listen on 127.0.0.1:{port}")
    server.close()
    await server.wait_closed()
    async with running_node(tmp_path):  # nothing holds the directory
        pass


async def test_a_bad_partition_does_not_keep_the_node_down(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running_node(tmp_path) as node:
        client = await node.client()
        for partition_id in (0, 1):
            await client.append(1, partition_id, records(0, 2), timeout_s=TIMEOUT_S)
            await client.set_low_water_mark(1, partition_id, 1, timeout_s=TIMEOUT_S)
    segment = tmp_path / "0" / "0000000000000000000.seg"
    damaged = bytearray(segment.read_bytes())
    damaged[12:28] = OTHER_KEY.bytes
    segment.write_bytes(damaged)
    async with running_node(tmp_path, assign=(), storage_jetty_port=0) as node:
        client, admin = await node.client(), await node.admin()
        assert "partition 0 cannot be opened" in caplog.text
        assert await client.records(1, 1, 0, 9, timeout_s=TIMEOUT_S) == records(0, 2)
        with pytest.raises(RemoteStorageError, check=lambda error: error.wire_text == DISABLED.format(0)):
            await client.last_session_info(2, 0, timeout_s=TIMEOUT_S)
        assert await admin.assigned_partition_status() == {0: False, 1: True}
        assert await admin.last_session_info(0) == (1, 1, 1)
        with pytest.raises(RemoteStorageError, match="partition 0 could not be opened"):
            await admin.records(0, 0, 1)
        assert node.node.http_port is not None
        status, _, body = await http_get(node.node.http_port, "/health")
        assert status == 500
        assert '"outOfService"' in json.loads(body)["storage-health-check"]["message"]
        (problem,) = json.loads(body)["storage"]["problems"]
        assert problem["partitions"] == [0]
        assert problem["do"].endswith("waltz storage sync-partitions")
        told = json.loads(await admin.metrics())["gauges"]["waltz-storage.waltz-storage-health"]["value"]
        assert StorageHealth.parse(told) == node.node.manager.health()
        assert list(node.node.manager.health().out_of_service) == [0]
        text = (await http_get(node.node.http_port, "/metrics/prometheus"))[2]
        assert "waltz_storage_num_out_of_service_partitions 1\n" in text
        assert "waltz_storage_num_damaged_partitions 0\n" in text
        await admin.set_assigned([0], False, delete_files=True)
        await admin.set_assigned([0], True)
        assert await admin.assigned_partition_status() == {0: True, 1: True}
        assert (await http_get(node.node.http_port, "/health"))[0] == 200


# HTTP


async def test_http_endpoints(tmp_path: Path) -> None:
    async with running_node(tmp_path, storage_jetty_port=0) as node:
        client = await node.client()
        await client.append(1, 0, records(0, 3), timeout_s=TIMEOUT_S)
        await client.records(1, 0, 0, 9, timeout_s=TIMEOUT_S)
        await client.set_low_water_mark(1, 0, 2, timeout_s=TIMEOUT_S)
        port = node.node.http_port
        assert port is not None
        assert (await http_get(port, "/ping"))[2] == "pong\n"
        status, content_type, body = await http_get(port, "/health")
        assert (status, content_type) == (200, "application/json")
        assert body == (
            '{"storage-health-check":{"healthy":true,"message":"{\\"storage\\":\\"true\\"}"},'
            '"storage":{"healthy":true,"problems":[],"notes":{}}}'
        )
        document = json.loads((await http_get(port, "/metrics"))[2])
        gauges = {name: entry.get("value", entry.get("error")) for name, entry in document["gauges"].items()}
        prefix = "waltz-storage.partition-0."
        assert {name.removeprefix(prefix): value for name, value in gauges.items() if name.startswith(prefix)} == {
            "session-id": 1,
            "commit-time-seconds": None,
            "low-water-mark": 2,
            "local-low-water-mark": 2,
            "flags": 5,
            "sequence-number": 2,
            "process-queue-size": 0,
            "max-transaction-id": 2,
            "damaged-transactions": 0,
            "mended-index-entries": 0,
            "torn-bytes-cut": 0,
        }
        assert gauges["waltz-storage.waltz-storage-num-partitions"] == 2
        assert gauges["waltz-storage.waltz-storage-partition-ids"] == [0, 1]
        assert isinstance(gauges["waltz-storage.waltz-version-id"], str)
        assert document["meters"][prefix + "append"]["count"] == 1
        assert document["timers"][prefix + "append-latency"]["count"] == 1
        counters = {name: entry["count"] for name, entry in document["counters"].items() if name.startswith(prefix)}
        assert {name.removeprefix(prefix): count for name, count in counters.items()} == {
            "last-session-info-request": 0,
            "set-low-water-mark-request": 1,
            "truncate-request": 0,
            "record-header-request": 0,
            "record-request": 0,
            "max-transaction-request": 0,
            "record-header-list-request": 0,
            "record-list-request": 1,
        }
        assert "waltz_storage_partition_append_total" in (await http_get(port, "/metrics/prometheus"))[2]


async def test_without_a_port_there_is_no_http(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running_node(tmp_path) as node:
        assert node.node.http_port is None
        assert "storage.jetty.port is not set" in caplog.text


# The daemon


class Ensemble:
    """Stands for ``connect_configured``: gives out clients of a tree in memory, once it is let go."""

    def __init__(self, server: MemoryZooKeeperServer) -> None:
        self._server = server
        self.clients: list[ZooKeeper] = []
        self.asked = asyncio.Event()
        self.let_go = asyncio.Event()

    async def connect(self, config: ClusterConfig, *, connect_timeout_s: float) -> ZooKeeper:
        self.asked.set()
        await self.let_go.wait()
        client = await self._server.connect()
        self.clients.append(client)
        return client


@pytest.fixture
async def ensemble(monkeypatch: pytest.MonkeyPatch) -> Ensemble:
    ensemble = Ensemble(await make_zookeeper(KEY, PARTITION_COUNT))
    monkeypatch.setattr(node_module, "connect_configured", ensemble.connect)
    return ensemble


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_daemon_ends_in_order_on_a_signal(
    tmp_path: Path, ensemble: Ensemble, number: signal.Signals, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    ensemble.let_go.set()
    daemon = asyncio.create_task(run(make_config(tmp_path)))
    async with asyncio.timeout(TIMEOUT_S):
        while "storage node is up" not in caplog.text:
            await asyncio.sleep(0)
        os.kill(os.getpid(), number)
        await daemon
    assert "storage node is closed" in caplog.text
    async with running_node(tmp_path):  # the lock is free
        pass


async def test_the_daemon_can_be_ended_while_it_waits_for_zookeeper(tmp_path: Path, ensemble: Ensemble) -> None:
    daemon = asyncio.create_task(run(make_config(tmp_path)))
    async with asyncio.timeout(TIMEOUT_S):
        await ensemble.asked.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        await daemon


@pytest.mark.parametrize("patience_s", [60.0, 0.0])
async def test_the_daemon_outlasts_a_short_absence_of_zookeeper(
    tmp_path: Path,
    ensemble: Ensemble,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    patience_s: float,
) -> None:
    """It was there for the connection, and is gone when it is asked."""
    start, absences = StorageNode.start, iter([ConnectionLossError("gone"), SessionExpiredError("gone")])

    async def start_when_present(config: StorageConfig, **options: Any) -> StorageNode:
        for absence in absences:
            raise absence
        return await start(config, **options)

    monkeypatch.setattr(StorageNode, "start", start_when_present)
    monkeypatch.setattr(node_module, "ZOOKEEPER_CONNECT_TIMEOUT_S", patience_s)
    monkeypatch.setattr(node_module, "ZOOKEEPER_PAUSE_S", 0.0)
    caplog.set_level("INFO")
    ensemble.let_go.set()
    daemon = asyncio.create_task(run(make_config(tmp_path)))
    async with asyncio.timeout(TIMEOUT_S):
        if not patience_s:
            with pytest.raises(ConnectionLossError, match="gone"):
                await daemon
            return
        while "storage node is up" not in caplog.text:
            await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGTERM)
        await daemon
    assert caplog.text.count("gone; trying again") == 2


async def test_the_daemon_fails_with_one_line(tmp_path: Path, ensemble: Ensemble) -> None:
    ensemble.let_go.set()
    with pytest.raises(WaltzError, match="^there is no cluster at /other"):
        await run(make_config(tmp_path, cluster_root="/other"))
    assert [client.session_id for client in ensemble.clients] == [None]  # closed


class ExitError(BaseException):
    """Stands for the end of the process."""


async def test_the_daemon_exits_when_closing_hangs(
    tmp_path: Path, ensemble: Ensemble, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    hanging = asyncio.Event()
    close = StorageNode.close

    async def hang(node: StorageNode) -> None:
        await close(node)
        await hanging.wait()

    def exit_process(status: int) -> None:
        hanging.set()
        raise ExitError(status)

    monkeypatch.setattr(StorageNode, "close", hang)
    monkeypatch.setattr(node_module, "CLOSE_TIMEOUT_S", 0.01)
    monkeypatch.setattr(os, "_exit", exit_process)
    close_files, used = OsFiles.close, list[OsFiles]()
    monkeypatch.setattr(OsFiles, "close", lambda files: used.append(files))  # a process that exits does not come to it
    ensemble.let_go.set()
    daemon = asyncio.create_task(run(make_config(tmp_path)))
    async with asyncio.timeout(TIMEOUT_S):
        while "storage node is up" not in caplog.text:
            await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(ExitError):
            await daemon
        assert "did not let the node close" in caplog.text
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others)
    for files in used:
        close_files(files)


async def test_a_full_disk_is_unhealthy(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        assert node.node.health()[0]
        node.files.free = 10 << 20
        healthy, body = node.node.health()
        assert not healthy
        assert "the disk is almost full: 10 MiB are free, less than 64 MiB" in str(body)
        node.files.free = None
        assert node.node.health()[0]


async def test_a_disk_that_hangs_is_unhealthy(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        client = await node.client()
        gate = node.files.gate("0/0000000000000000000.seg")
        append = asyncio.create_task(client.append(0, 0, records(0, 1), timeout_s=TIMEOUT_S))
        await gate.reached()
        assert node.node.health()[0]
        partition = node.node.manager.partitions[0]
        clock = partition._metrics.clock
        partition._metrics.clock = lambda: clock() + 25
        healthy, body = node.node.health()
        assert not healthy
        assert '"stalled":{"0":"a read or write has not ended for 25 s"}' in str(body)
        assert list(node.node.manager.findings.stalled()) == [0]
        gate.open()
        await append
        async with asyncio.timeout(TIMEOUT_S):
            while partition.waiting_for_disk_s:
                await asyncio.sleep(0.001)  # a step of the scan for damage, which began with the clock as it was
        assert node.node.health()[0]


async def test_one_failed_sync_of_a_shared_file_costs_one_partition(tmp_path: Path) -> None:
    """The others go on in a file that takes its place."""
    async with running_node(tmp_path) as node:
        client = await node.client()
        for path_end in ("waltz-storage.fence", "waltz-storage.ctl"):
            node.files.failing.add(path_end)
            with pytest.raises(RemoteStorageError):
                await client.last_session_info(5, 0, timeout_s=TIMEOUT_S)
                await client.set_low_water_mark(5, 0, -1, timeout_s=TIMEOUT_S)
            assert not node.node.health()[0]
            node.files.failing.clear()
            await client.set_low_water_mark(5 if path_end.endswith("fence") else 6, 1, 9, timeout_s=TIMEOUT_S)
            assert list(node.node.manager.out_of_service()) == [0]
            await node.node.manager.assign([0])
            assert node.node.health()[0]
            await client.last_session_info(5, 0, timeout_s=TIMEOUT_S)
    async with running_node(tmp_path) as node:
        info = node.node.manager.partitions[1].info
        assert (info.session_id, info.low_water_mark) == (6, 9)
        assert node.node.manager.partitions[0].info.session_id == -1


async def test_the_limit_of_open_files_is_raised_before_partitions_are_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand partitions need thousands of files, and the usual soft limit is 1,024."""
    calls: list[object] = []
    open_manager = StorageManager.open

    async def opened(*args: Any, **settings: Any) -> Any:
        calls.append("open")
        return await open_manager(*args, **settings)

    monkeypatch.setattr(node_module, "raise_open_files", calls.append)
    monkeypatch.setattr(StorageManager, "open", opened)
    async with running_node(tmp_path):
        pass
    needed = 2 * (1 + 5) * PARTITION_COUNT + RESERVED_FILES + 2000
    assert calls == [needed, "open"]
