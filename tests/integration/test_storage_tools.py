"""The storage tools as an operator uses them: on a running cluster, and on the files of a node that is stopped."""

import asyncio
import io
import json
import logging
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.callbacks import NothingApplied
from waltz.cli.main import main
from waltz.client.builder import TransactionBuilder
from waltz.client.callbacks import WaltzClient
from waltz.client.context import TransactionContext
from waltz.common.config.schemas import ClientConfig, load
from waltz.local.cluster import LocalCluster
from waltz.local.layout import Node

pytestmark = pytest.mark.integration

COUNT = 60
TIMEOUT_S = 120


class Context(TransactionContext):
    def __init__(self, number: int) -> None:
        self._number = number
        self.done = asyncio.get_running_loop().create_future()

    def partition_id(self, partition_count: int) -> int:
        return 0

    def execute(self, builder: TransactionBuilder) -> bool:
        builder.set_data(b"transaction %4d " % self._number * 5)
        return True

    def on_application(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


async def _append(cluster: LocalCluster, count: int) -> None:
    client = await WaltzClient.open(NothingApplied(), load(cluster.layout.client_config_path, ClientConfig))
    try:
        contexts = [Context(number) for number in range(count)]
        for context in contexts:
            await client.submit(context)
        async with asyncio.timeout(TIMEOUT_S):
            await asyncio.gather(*(context.done for context in contexts))
    finally:
        await client.close()


@pytest.fixture(scope="module")
def storage_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster that suffers: three storages with small segments, one server, one partition with transactions."""
    directory = tmp_path_factory.mktemp("suffering")
    overrides = {"storage.segment.size.threshold": 2000}
    with LocalCluster(directory, servers=1, plaintext=True, storage_overrides=overrides) as running:
        asyncio.run(_append(running, COUNT))
        yield running


class Result(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def waltz(*arguments: str) -> Result:
    """Run a command in this process, which is faster than in one of its own."""
    raw = io.BytesIO()
    output = io.TextIOWrapper(raw, "utf-8", write_through=True)
    with redirect_stdout(output), redirect_stderr(io.StringIO()) as errors:
        try:
            code = main(arguments)
        except SystemExit as ended:
            code = int(str(ended.code))
    return Result(code, raw.getvalue().decode(), errors.getvalue())


def done(*arguments: str) -> str:
    result = waltz(*arguments)
    assert result.returncode == 0, (result.stdout, result.stderr)
    return result.stdout


def failed(*arguments: str) -> str:
    result = waltz(*arguments)
    assert result.returncode == 1, (result.stdout, result.stderr)
    assert "Traceback" not in result.stderr
    return result.stderr.strip().splitlines()[-1]


def admin_of(node: Node) -> str:
    return f"localhost:{node.admin_port}"


def health(node: Node) -> tuple[int, dict[str, object]]:
    try:
        with urllib.request.urlopen(f"http://localhost:{node.http_port}/health") as response:
            status, body = response.status, response.read()
    except urllib.error.HTTPError as error:
        status, body = error.code, error.read()
        error.close()
    return status, json.loads(json.loads(body)["storage-health-check"]["message"])


def until_healthy(cluster: LocalCluster, node: Node, wanted: int) -> dict[str, object]:
    async def wait() -> dict[str, object]:
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                try:
                    status, message = await asyncio.to_thread(health, node)
                except urllib.error.URLError:
                    status, message = 0, {}
                if status == wanted:
                    return message
                cluster.check()
                await asyncio.sleep(0.1)

    return asyncio.run(wait())


def test_looking_at_a_running_cluster(storage_cluster: LocalCluster, caplog: pytest.LogCaptureFixture) -> None:
    config = ("-c", str(storage_cluster.layout.cli_config_path))
    node = storage_cluster.layout.storages[0]
    assert done("storage", "validate", *config) == "all storage nodes answer on both ports\n"
    ports = ("-s", admin_of(node), "-sp", str(node.port))
    # Under the persisted session, or refused because a server has opened a newer one meanwhile.
    assert done("storage", "max-transaction-id", *config, *ports, "-p", "0") == f"Max Transaction ID: {COUNT - 1}\n"
    assert failed("storage", "max-transaction-id", *config, *ports, "-p", "9").startswith(
        f"Error: Failed to read max transaction ID for storage {admin_of(node)}: "
    )
    with caplog.at_level(logging.INFO):
        assert done("storage", "list", *config, "-s", admin_of(node), "-l") == ""
    assert f"Partition Info for id: 0 at {admin_of(node)}" in caplog.text
    assert "no transaction is known to be damaged" in done(
        "storage", "repair", *config, "-s", admin_of(node), "-p", "0"
    )
    assert "was not repaired: " in failed("storage", "repair", *config, "-s", admin_of(node), "-p", "5")
    assert failed("disk", "dump-control-file", str(_control_file(storage_cluster, node))).startswith(
        "Error: failed to acquire the lock"
    )


def _control_file(cluster: LocalCluster, node: Node) -> Path:
    return cluster.layout.data_directory(node) / "waltz-storage.ctl"


def _segments(cluster: LocalCluster, node: Node) -> list[Path]:
    return sorted((cluster.layout.data_directory(node) / "0").glob("*.seg"))


def test_damage_found_shown_and_repaired(storage_cluster: LocalCluster) -> None:
    cluster = storage_cluster
    config = ("-c", str(cluster.layout.cli_config_path))
    node = cluster.layout.storages[2]
    cluster.terminate(node)
    segment = _segments(cluster, node)[1]
    whole = segment.read_bytes()
    assert done("disk", "verify-segment", str(segment)) == "INDEX VERIFICATION SUMMARY: all check pass!\n"
    damaged = bytearray(whole)
    damaged[128 + 2 * 125 + 50] ^= 1
    segment.write_bytes(damaged)
    result = waltz("disk", "verify-segment", str(segment))
    assert result.returncode == 1
    first = int(segment.stem)
    lines = result.stdout.splitlines()
    assert lines[2].split() == [str(first + 2), "pass", "fail"]
    assert lines[4] == f"VERIFICATION SUMMARY: 1 out of {int(_segments(cluster, node)[2].stem) - first} check failed"
    assert segment.read_bytes() == damaged
    cluster.start_storage(node)
    message = until_healthy(cluster, node, 500)
    assert message["damaged"] == {"0": f"transactions {first + 2} to {first + 2}"}
    output = done("storage", "repair", *config, "-s", admin_of(node), "-p", "0")
    assert "1 transaction restored" in output
    assert until_healthy(cluster, node, 200)["storage"] == "true"
    assert segment.read_bytes()[128:] == whole[128:]
    assert Path(f"{segment}.quarantined-1").read_bytes() == damaged


def test_recovery_of_a_partition_from_another_node(storage_cluster: LocalCluster) -> None:
    cluster = storage_cluster
    config = ("-c", str(cluster.layout.cli_config_path))
    source, destination = cluster.layout.storages[0], cluster.layout.storages[1]
    arguments = (
        *("storage", "recover-partition", *config, "-s", admin_of(source), "-d", admin_of(destination)),
        *("-dp", str(destination.port), "-p", "0", "-b", "7"),
    )
    line = failed(*arguments)
    assert line.startswith("Error: Partition 0 failed to recover.: it is online on the destination")
    where = (*config, "-s", admin_of(destination), "-p", "0")
    done("storage", "availability", *where, "-o", "false")
    assert "failed to recover.: the metadata list the destination as a member" in failed(*arguments, "--truncate")
    assert "the cluster lists" in failed("storage", "remove-partition", *where, "-d", "--unless-listed")
    done("storage", "remove-partition", *where, "-d")
    done("storage", "add-partition", *where)
    done("storage", "availability", *where, "-o", "false")
    ports = (*where, "-sp", str(destination.port))
    assert done("storage", "max-transaction-id", *ports, "-o") == "Max Transaction ID: -1\n"
    assert "have been disabled" in failed("storage", "max-transaction-id", *ports)
    assert "failed to recover.: a batch must have" in failed(*arguments[:-1], "0")
    # Up to the source's local low-water mark, which the first session has set before there was anything.
    assert "reaches up to transaction " in done(*arguments)
    done("storage", "availability", *where, "-o", "true")


def test_files_of_a_stopped_node(storage_cluster: LocalCluster) -> None:
    cluster = storage_cluster
    node = cluster.layout.storages[2]
    cluster.terminate(node)
    before = {path: path.read_bytes() for path in cluster.layout.data_directory(node).rglob("*") if path.is_file()}
    segments = _segments(cluster, node)
    assert len(segments) > 2
    first = int(segments[1].stem)

    control = str(_control_file(cluster, node))
    for arguments in (("-p", "0"), ("-a", "dummy"), ("-a",), ()):
        lines = done("disk", "dump-control-file", *arguments, control).splitlines()
        assert lines[0].startswith("Control File Key: ")
        assert [name for name in lines[1].split("  ") if name] == [
            *("PARTITION ID", "SESSION ID", "LOW-WATER MARK", "LOCAL LOW-WATER MARK", "IS-ASSIGNED", "IS-AVAILABLE")
        ]
        assert lines[3].split()[-2:] == ["true", "true"]
    assert waltz("disk", "dump-control-file", "-a", "x", "-p", "0", control).returncode == 2

    statistic = done("disk", "segment-statistic", str(segments[1])).splitlines()
    assert statistic[0].split()[:3] == ["number", "of", "rows"]
    assert statistic[2].split()[1:] == ["85", "85", "85.0", "85.0"]
    assert waltz("disk", "dump-segment", str(segments[1])).returncode == 2
    header = done("disk", "dump-segment", "-m", str(segments[1])).splitlines()
    assert header[2].split()[0] == "0"
    assert header[2].split()[-2:] == ["0", str(first)]
    dumped = done("disk", "dump-segment", "-r", "-t", str(first + 1), "-d", "builtins:len", str(segments[1]))
    assert f"{first + 1} " in dumped
    assert "ReqId(c:" in dumped
    assert "00000000: 7472 616e 7361 6374 696f 6e20" in dumped
    assert "transaction" in dumped
    assert "(85)" in dumped
    one = done("disk", "verify-segment", "-t", str(first), str(segments[1])).splitlines()
    assert one[2].split() == [str(first), "pass", "pass"]
    assert "out of range" in failed("disk", "verify-segment", "-t", "5000", str(segments[1]))
    assert "No such file" in failed("disk", "verify-segment", str(segments[1]) + "x")

    after = {path: path.read_bytes() for path in cluster.layout.data_directory(node).rglob("*") if path.is_file()}
    assert after == before
    cluster.start_storage(node)
    until_healthy(cluster, node, 200)
