"""The tools that look at a whole cluster and at write sessions, on real nodes: one server of ours, one that knows no
version of the protocol but those of the original."""

import asyncio
import re
import sys
import time
from collections.abc import Iterator

import pytest

import waltz
from tests.integration.test_storage_tools import TIMEOUT_S, Result, done, failed
from tests.integration.test_storage_tools import waltz as run
from waltz.client.engine.rpc import RpcClient
from waltz.common.config.schemas import CliConfig, load
from waltz.common.ids import Endpoint
from waltz.common.net.tls import client_context
from waltz.local.cluster import LocalCluster
from waltz.local.layout import Node

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

OLD_SERVER = """
import runpy, sys
from waltz.common.wire import frames
frames.CLIENT_SERVER = frames.CLIENT_SERVER._replace(versions=(0, 1, 2, 3, 4))
sys.argv = ["waltz-server", sys.argv[1]]
runpy.run_module("waltz.serving", run_name="__main__")
"""


class MixedCluster(LocalCluster):
    """Two servers, of which the second speaks version 4 at most."""

    def start_server(self, node: Node) -> None:
        if node == self.layout.servers[0]:
            super().start_server(node)
        else:
            self._start(node.name, [sys.executable, "-c", OLD_SERVER, str(self.layout.config_path(node.name))])


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Each server owns one of the partitions. It suffers in the last test."""
    with MixedCluster(tmp_path_factory.mktemp("mixed"), servers=2, partitions=2) as running:
        while len(owners_shown(running)) < len(running.layout.servers):
            running.check()
            time.sleep(0.2)
        yield running


def config(cluster: LocalCluster) -> tuple[str, str]:
    return "-c", str(cluster.layout.cli_config_path)


def http(cluster: LocalCluster) -> list[str]:
    return [word for node in cluster.layout.servers for word in ("--http", f"127.0.0.1:{node.http_port}")]


def until(cluster: LocalCluster, *command: str, end: int) -> Result:
    """Repeat a command until it ends with that exit code."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while (result := run(*command, *config(cluster))).returncode != end:
        assert time.monotonic() < deadline_s, result
        cluster.check()
        time.sleep(0.2)
    return result


def owners_shown(cluster: LocalCluster, *arguments: str) -> dict[str, str]:
    """The lines of `session show`, by the connect strings of the partitions' owners."""
    lines = run("session", "show", *config(cluster), *arguments).stdout.splitlines()
    matches = ((re.search(r"owner: \d+ \((\S+)\)", line), line) for line in lines)
    return {match[1]: line for match, line in matches if match is not None}


def field(line: str, name: str) -> int:
    found = re.search(rf"{name}: (-?\d+)", line)
    assert found is not None, line
    return int(found[1])


def test_a_cluster_that_is_well(mixed: LocalCluster) -> None:
    assert until(mixed, "cluster", "verify", "--exit-code", end=0).stdout == "Passed: all 19 checks\n"
    reached = ", ".join(f"{node.connect_string}=true" for node in sorted(mixed.layout.storages, key=lambda n: n.port))
    expected = {f"Connectivity status of {node.connect_string} is: {{{reached}}}" for node in mixed.layout.servers}
    assert set(done("cluster", "check-connectivity", *config(mixed)).splitlines()) == expected


def test_write_sessions_are_shown_and_raised(mixed: LocalCluster) -> None:
    until(mixed, "session", "show", end=0)
    ours, old = (node.connect_string for node in mixed.layout.servers)
    lines = owners_shown(mixed, *http(mixed))
    at_ours, at_old = field(lines[ours], "partition"), field(lines[old], "partition")
    assert lines[ours].endswith("exclusive holder: none, fences: 0, refused appends: 0")
    assert lines[old].endswith("write session: none: the owner speaks version 4, which has no write sessions")
    before = field(lines[ours], "write session")
    assert before == field(lines[ours], "store session") + 1
    fence = ("session", "fence", *config(mixed), "-p", str(at_ours))
    assert done(*fence, "--if-session", str(before)).splitlines()[0] == (
        f"partition: {at_ours}, write session: {before + 1}, last transaction: -1"
    )
    assert failed(*fence, "--if-session", str(before)) == (
        f"Error: the write session of partition {at_ours} was not raised: the present one is {before + 1}, "
        f"not {before}; somebody else may have raised it"
    )
    assert "write session: " in done(*fence, "--force")
    line = owners_shown(mixed, *http(mixed))[ours]
    assert field(line, "write session") == before + 2
    assert line.endswith("exclusive holder: none, fences: 2, refused appends: 0")
    assert f"its owner {old} speaks version 4, which has no write sessions" in failed(
        "session", "fence", *config(mixed), "-p", str(at_old), "--force"
    )


async def test_an_operator_shuts_out_a_client(mixed: LocalCluster) -> None:
    ours, old = (node.connect_string for node in mixed.layout.servers)
    lines = await asyncio.to_thread(owners_shown, mixed)
    at_ours, at_old = field(lines[ours], "partition"), field(lines[old], "partition")

    async def fence(*safeguard: str) -> int:
        command = ("session", "fence", *config(mixed), "-p", str(at_ours), *safeguard)
        return field(await asyncio.to_thread(done, *command), "write session")

    async def shown() -> str:
        return (await asyncio.to_thread(owners_shown, mixed, *http(mixed)))[ours]

    async with waltz.connect(mixed.layout.client_config_path, session_write=True) as client:
        with pytest.raises(waltz.SessionNotSupportedError):
            await client.append(at_old, b"at a server without write sessions")
        transaction_id = await client.append(at_ours, b"within a session")
        number = client.write_session(at_ours)
        assert number is not None
        line = await shown()
        assert (field(line, "write session"), field(line, "last transaction")) == (number, transaction_id)
        verdict = await asyncio.to_thread(done, "cluster", "verify", *config(mixed), *http(mixed))
        assert f"Warning: partition {at_ours} has clients with write sessions" in verdict
        assert await fence("--if-session", str(number)) == number + 1
        with pytest.raises(waltz.SessionFencedError):
            await client.append(at_ours, b"too late")
        async with client.exclusive(at_ours) as session:
            assert re.search(r"exclusive holder: client \d+, ", await shown())
            assert await fence("--force") == session.number + 1
            with pytest.raises(waltz.SessionFencedError):
                await client.append(at_ours, b"too late again")
        line = await shown()
        assert "exclusive holder: none, " in line
        assert field(line, "refused appends") >= 1
        assert field(line, "last transaction") == transaction_id


def test_partitions_with_session_clients_are_warned_of_until_ours_prefer_them(mixed: LocalCluster) -> None:
    ours, old = (node.connect_string for node in mixed.layout.servers)
    lines = owners_shown(mixed)
    at_ours, at_old = field(lines[ours], "partition"), field(lines[old], "partition")
    verify = ("cluster", "verify", *config(mixed))
    declared = done(*verify, "--session-partitions", f"{at_old}")
    assert f"Warning: partition {at_old} has clients with write sessions, and its owner, server " in declared
    may_move = f"Warning: partition {at_ours} has clients with write sessions, and may move to servers that know none"
    seen = done(*verify, *http(mixed))
    assert may_move in seen
    assert f"partition {at_old} has" not in seen

    async def prefer() -> bool:
        tls = client_context(load(mixed.layout.cli_config_path, CliConfig).tls)
        async with RpcClient(tls=tls) as rpc:
            return await rpc.add_preferred_partitions(Endpoint.parse(ours), [at_ours])

    assert asyncio.run(prefer())
    assert "Warning" not in done(*verify, *http(mixed))


def test_disabled_partitions_take_no_appends_at_either_server(mixed: LocalCluster) -> None:
    done("partition", "configure", *config(mixed), "-p", "0-1", "format=table", "disabled=true")

    async def refusal(partition_id: int) -> str:
        """The refusal that a client gets once its server knows that the partition is disabled."""
        async with waltz.connect(mixed.layout.client_config_path) as client:
            while True:
                try:
                    await client.append(partition_id, b"no envelope", timeout_s=1)
                except waltz.AppendError as error:  # the one of version 4 does not say what becomes of it
                    return str(error)

    async def refusals() -> list[str]:
        async with asyncio.timeout(TIMEOUT_S):
            return list(await asyncio.gather(refusal(0), refusal(1)))

    told = asyncio.run(refusals())
    assert ["the partition is disabled by its properties" in text for text in told].count(True) == 1
    warnings = [line for line in done("cluster", "verify", *config(mixed)).splitlines() if "is disabled" in line]
    assert len(warnings) == 1
    assert "speaks version 4" in warnings[0]
    assert "is disabled" in failed("table", "put", *config(mixed), "-p", "0", "k", "v")
    done("partition", "configure", *config(mixed), "-p", "0-1", "disabled=")
    for partition_id in ("0", "1"):
        done("table", "put", *config(mixed), "-p", partition_id, "k", "v")
        assert done("table", "get", *config(mixed), "-p", partition_id, "k") == "\tk\tv\n"


def test_what_is_down_is_named(mixed: LocalCluster) -> None:
    ours, old = mixed.layout.servers
    storage = mixed.layout.storages[0]
    mixed.kill(storage)
    mixed.kill(old)
    result = until(mixed, "cluster", "verify", "--exit-code", end=1)
    assert "checks failed" in result.stderr
    named = done("cluster", "verify", *config(mixed))
    assert f"storage {storage.connect_string} did not report its partitions: " in named
    assert "PARTITION_ASSIGNMENT_ZK_STORAGE_CONSISTENCY failed" in named
    assert "PARTITION_QUORUM_STATUS" not in named
    connectivity = done("cluster", "check-connectivity", *config(mixed))
    assert f"{storage.connect_string}=false" in connectivity
    # The other server has taken over: the number is larger than what the partition had anywhere before.
    until(mixed, "session", "show", end=0)
    lines = done("session", "show", *config(mixed)).splitlines()
    assert len(lines) == 2
    for line in lines:
        assert f"({ours.connect_string})" in line
        assert field(line, "write session") >= 1
