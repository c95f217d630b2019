"""Lines to real nodes that go dead without a word, under those who only ask: tools, readers of marks, bulk readers.

Where a silence has to be waited for the limits are short; nothing asserts how long anything takes.
"""

import asyncio
import io
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from tests.smoke.line import Shape
from tests.smoke.lines import Lines
from tests.smoke.proxy import Connection, Proxy
from tests.smoke.trial import Trial
from tests.smoke.workload import Load
from waltz.cli.main import main
from waltz.common.cluster import marks
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.config.schemas import CliConfig, load
from waltz.common.net.tls import client_context
from waltz.local.layout import ROOT
from waltz.operations import storages as operations
from waltz.spark.options import parse_options
from waltz.spark.planning import plan_with
from waltz.spark.reading import SplitReader

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

LIMIT_S = 2.0
DEADLINE_S = 60.0
FETCH_SIZE = 30
POLL_INTERVAL_S = 0.01
HANDSHAKE_BYTES = 1000
"""Bytes sent by a node: fewer than hellos and the handshake of TLS take."""


@contextmanager
def short_limits() -> Iterator[None]:
    """While somebody waits for what never comes; what must come has the time that it has for every user."""
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(operations, "TIMEOUT_S", LIMIT_S)
        yield


async def waltz(*arguments: str) -> tuple[int, str]:
    """Run a command in a thread of this process; its exit status and all that it printed."""
    output = io.StringIO()

    def run() -> int:
        with redirect_stdout(output), redirect_stderr(output):
            return main(arguments)

    return await asyncio.to_thread(run), output.getvalue()


@asynccontextmanager
async def next_connection_dies(line: Proxy) -> AsyncIterator[None]:
    """The next one over that line goes dead in the middle of its opening."""

    async def lose() -> None:
        old = set(line.connections)
        while True:
            for connection in set(line.connections) - old:
                if connection.from_node.passed_bytes > HANDSHAKE_BYTES:
                    connection.blackhole()
                    return
            await asyncio.sleep(POLL_INTERVAL_S)

    losing = asyncio.create_task(lose())
    line.shape(Shape(delay_s=0.05))
    try:
        yield
        await losing
    finally:
        losing.cancel()
        line.shape(Shape())


@pytest.mark.deep
async def test_tools_and_readers_come_to_an_end(tmp_path: Path) -> None:
    async with Lines.running(tmp_path, servers=1) as lines:
        async with Trial.running(lines.cluster, clients=1, load=Load(in_flight=8, rate=200)) as trial:
            await trial.progress(200)
            await trial.finish()
        await tools_end(lines)
        mark = await marks_are_told(lines)
        await bulk_reads_go_on(lines, mark + 1)


async def tools_end(lines: Lines) -> None:
    """With an error that names the node; and do their work as soon as they can."""
    layout = lines.cluster.layout
    node = layout.storages[1]
    line = lines.to_admin(node)
    config, where = ("-c", str(layout.cli_config_path)), ("-s", f"localhost:{node.admin_port}")
    commands = {
        "list": (*config, *where),
        "repair": (*config, *where, "-p", "0"),
        "sync-partitions": config,
        "validate": config,
    }
    for verb, arguments in commands.items():
        with short_limits():
            async with next_connection_dies(line):
                status, output = await waltz("storage", verb, *arguments)
        assert status == 1, output
        assert f":{node.admin_port}: " in output
        assert "Traceback" not in output
    line.cut()
    with short_limits():
        status, output = await waltz("storage", "repair", *commands["repair"])
    assert status == 1, output
    assert f":{node.admin_port}: not ready within {LIMIT_S:g} s" in output
    line.mend()
    for verb, arguments in commands.items():
        status, output = await waltz("storage", verb, *arguments)
        assert status == 0, output


async def marks_are_told(lines: Lines) -> int:
    """Over another connection to the owner; the mark."""
    layout = lines.cluster.layout
    tls = client_context(load(layout.cli_config_path, CliConfig).tls)
    zookeeper = await lines.cluster.zookeeper()
    try:
        deadline_s = asyncio.get_running_loop().time() + DEADLINE_S
        async with next_connection_dies(lines.to(layout.servers[0])):
            told = await marks.read_committed_marks(ClusterHandle(zookeeper, ROOT, tls), [0], deadline_s=deadline_s)
        return told[0]
    finally:
        await zookeeper.close()


async def bulk_reads_go_on(lines: Lines, count: int) -> None:
    """Over another connection to the same replica, and when that is not to be had from another one."""
    layout = lines.cluster.layout
    tls = client_context(load(layout.cli_config_path, CliConfig).tls)
    zookeeper = await lines.cluster.zookeeper()
    options = parse_options({"zookeeper": layout.zookeeper_connect_string, "clusterRoot": ROOT})
    try:
        deadline_s = asyncio.get_running_loop().time() + DEADLINE_S
        (split,) = await plan_with(zookeeper, options, tls=tls, deadline_s=deadline_s)
    finally:
        await zookeeper.close()
    assert tuple(split.range) == (0, 0, count)
    admin_lines = [lines.to_admin(storage) for storage in layout.storages]
    reader = SplitReader(split, tls, fetch_size=FETCH_SIZE, request_timeout_s=2 * LIMIT_S)
    read = chunks = 0
    try:
        while (chunk := await reader.next_chunk()) is not None:
            assert chunk.first == read
            read += chunk.count
            chunks += 1
            if chunks == 2:
                (line,) = (line for line in admin_lines if open_connections(line))
                line.blackhole()
            elif chunks == 4:
                (line,) = (line for line in admin_lines if open_connections(line))
                line.cut()
    finally:
        await reader.close()
    assert read == count


def open_connections(line: Proxy) -> list[Connection]:
    """The connections that are not dead."""
    return [connection for connection in line.connections if not connection.dead]
