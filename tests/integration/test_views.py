"""View nodes as processes on a real cluster: killed, started again, and replaced by others while clients go on."""

import asyncio
import contextlib
import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

import waltz
from waltz.local.cluster import LocalCluster
from waltz.local.ports import free_ports
from waltz.table.served.nodes import view_nodes

pytest.importorskip("aiohttp")
pytest.importorskip("rocksdict")
pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

TIMEOUT_S = 120.0
TABLE = 1
DOCS = Path(__file__).parents[2] / "docs" / "served-tables.md"


class ViewProcess:
    """A view node with a port, a directory and a log of its own."""

    def __init__(self, cluster: LocalCluster, directory: Path, **more: object) -> None:
        self.port, self.http_port = free_ports(2)
        self.log = directory / "view.log"
        (directory / "stores").mkdir(parents=True)
        config = yaml.safe_load(cluster.layout.cli_config_path.read_text()) | {
            "view.port": self.port,
            "view.host": "127.0.0.1",
            "view.jetty.port": self.http_port,
            "view.directory": str(directory / "stores"),
            **{key.replace("_", "."): value for key, value in more.items()},
        }
        self._path = directory / "view.yml"
        self._path.write_text(yaml.safe_dump(config))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen([sys.executable, "-m", "waltz.view", str(self._path)], stderr=log)

    def end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        assert process is not None
        process.send_signal(number)
        return process.wait(TIMEOUT_S)

    def ended(self) -> int:
        """Wait for its end."""
        process, self._process = self._process, None
        assert process is not None
        return process.wait(TIMEOUT_S)

    def close(self) -> None:
        if self._process is not None:
            self.end(signal.SIGKILL)

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}{path}", timeout=TIMEOUT_S) as response:
            return str(response.read().decode())

    def began(self) -> list[int]:
        """What the view of the table had applied at each start."""
        found = re.findall(rf"partition {TABLE} is served from transaction (-?\d+) on", self.log.read_text())
        return [int(each) for each in found]

    @property
    def name(self) -> str:
        return f"127.0.0.1:{self.port}"


@pytest.fixture
def pair(cluster: LocalCluster, tmp_path: Path) -> Iterator[list[ViewProcess]]:
    processes = [ViewProcess(cluster, tmp_path / str(number)) for number in range(2)]
    try:
        yield processes
    finally:
        for each in processes:
            each.close()


@contextlib.asynccontextmanager
async def connected(cluster: LocalCluster) -> AsyncIterator[waltz.Client]:
    async with waltz.connect(cluster.layout.client_config_path) as client:
        await waltz.table.configure(client, TABLE, {"format": "table"})
        yield client


async def until_there(client: waltz.Client, *processes: ViewProcess) -> None:
    """Until just these view nodes are registered at the table."""
    wanted = {f"https://{each.name}" for each in processes}
    async with asyncio.timeout(TIMEOUT_S):
        while {node.endpoint for node in await view_nodes(client, TABLE)} != wanted:
            await asyncio.sleep(0.1)


async def test_clients_go_on_while_view_nodes_are_killed(cluster: LocalCluster, pair: list[ViewProcess]) -> None:
    first, second = pair
    first.start()
    async with connected(cluster) as client, client.table(TABLE, view="served", timeout_s=TIMEOUT_S) as table:
        await until_there(client, first)
        written = {}
        for number in range(50):
            written[b"%d" % number] = await table.put(b"%d" % number, b"%d" % number)
        follow = table.follow(-1)
        followed: list[int] = []

        async def follow_until(transaction_id: int) -> None:
            async with asyncio.timeout(TIMEOUT_S):
                while not followed or followed[-1] < transaction_id:
                    followed.extend(row.version.transaction_id for row in (await anext(follow)).rows)

        await follow_until(written[b"49"])
        second.start()
        await until_there(client, first, second)

        assert first.end(signal.SIGKILL) != 0
        rows = await table.get(list(written), fresh=True)
        assert {row.key: row.version.transaction_id for row in rows if row is not None} == written
        written[b"after"] = await table.put_if(b"after", b"v", None)
        await follow_until(written[b"after"])
        assert followed == sorted(set(followed))
        assert set(written.values()) <= set(followed)
        await follow.aclose()

        first.start()
        async with asyncio.timeout(TIMEOUT_S):
            while len(began := first.began()) < 2:
                await asyncio.sleep(0.1)
        assert began[1] >= written[b"49"], "the store has kept what was applied"
        assert second.end(signal.SIGTERM) == 0
        await until_there(client, first)
        assert [row.key async for row in table.scan()] == sorted(written)

        assert json.loads(first.get("/health"))["view-health-check"]["healthy"] is True
        metrics = first.get("/metrics/prometheus")
        assert f'waltz_view_applied_transaction{{partition="{TABLE}"}} {written[b"after"]}' in metrics
        assert 'waltz_view_requests_total{operation="scan",status="200"} 1' in metrics
        await table.batch([waltz.table.Row(b"", key, None, tombstone=True) for key in written])


def move_one(source: bytes, target: bytes, transaction: waltz.table.TableTransaction) -> None:
    """Move one unit."""
    for key, change in ((source, -1), (target, 1)):
        row = transaction.get(key, prefix=b"bank")
        assert row is not None
        transaction.put(key, b"%d" % (int(row.value or b"") + change), prefix=b"bank")


async def test_no_update_of_a_transaction_is_lost_or_made_twice_while_view_nodes_are_killed(
    cluster: LocalCluster, pair: list[ViewProcess]
) -> None:
    """Each writer moves one unit from an account to another; what is not known counts as either."""
    first, second = pair
    first.start()
    second.start()
    async with connected(cluster) as client:
        await until_there(client, first, second)
        async with client.table(TABLE) as table:
            await table.truncate()
            accounts = [b"%d" % number for number in range(4)]
            began = await table.batch([waltz.table.Row(b"bank", key, b"1000") for key in accounts])
        moved: dict[bool, int] = {True: 0, False: 0}
        """Moves that are in the log, and those that may be."""

        async def move(writer: int) -> None:
            async with client.table(TABLE, view="served", timeout_s=TIMEOUT_S) as served:
                for number in range(25):
                    source, target = accounts[(writer + number) % 4], accounts[(writer + number + 1) % 4]
                    try:
                        await served.transaction(partial(move_one, source, target))
                    except waltz.OutcomeUnknownError:
                        moved[False] += 1
                    else:
                        moved[True] += 1

        async with asyncio.TaskGroup() as group:
            for writer in range(4):
                group.create_task(move(writer))
            for victim in (first, second):
                goal = moved[True] + 20
                while moved[True] < goal:
                    await asyncio.sleep(0.01)
                victim.end(signal.SIGKILL)
                victim.start()
        async with client.table(TABLE) as table:
            rows = await table.get(accounts, prefix=b"bank", fresh=True)
            taken = await table.take(began, 1 << 20, prefix=b"bank")
        assert sum(int((row and row.value) or b"") for row in rows) == 4000
        there = {row.version.transaction_id for row in taken.rows}
        assert moved[True] <= len(there) <= moved[True] + moved[False]
        assert moved[True] + moved[False] == 100


async def test_a_new_view_node_begins_with_the_snapshot_of_the_command(cluster: LocalCluster, tmp_path: Path) -> None:
    pytest.importorskip("obstore")
    pytest.importorskip("pyarrow")
    url = f"file://{tmp_path / 'objects'}"
    (tmp_path / "objects").mkdir()
    wrong = ViewProcess(cluster, tmp_path / "wrong", view_snapshots="ftp://nowhere")
    wrong.start()
    assert wrong.ended() == 1
    assert "begins with one of" in wrong.log.read_text()
    view = ViewProcess(cluster, tmp_path / "view", view_snapshots=url)
    async with connected(cluster) as client, client.table(TABLE, view="served", timeout_s=TIMEOUT_S) as table:
        async with client.table(TABLE) as writer:
            written = [await writer.put(b"%d" % number, b"v", prefix=b"saved") for number in range(20)]
        config = str(cluster.layout.cli_config_path)
        command = [
            sys.executable,
            "-m",
            "waltz.cli.main",
            "table",
            "snapshot",
            "-c",
            config,
            "-p",
            str(TABLE),
            "--to",
            url,
        ]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert done.returncode == 0, done
        view.start()
        try:
            await until_there(client, view)
            assert f"begins with the snapshot of transaction {written[-1]}" in view.log.read_text()
            assert len([key async for key in table.scan_keys(prefix=b"saved", fresh=True)]) == 20
            assert (
                await table.transaction(lambda transaction: transaction.delete(b"0", prefix=b"saved"))
                == written[-1] + 1
            )
            assert [row.key for row in (await table.take(written[-1])).rows] == [b"0"]
        finally:
            view.close()


async def test_the_examples_with_curl(cluster: LocalCluster, pair: list[ViewProcess]) -> None:
    """Each command of the page gives what the page shows."""
    view = pair[0]
    view.start()
    async with connected(cluster) as client:
        await until_there(client, view)
        async with client.table(TABLE) as table:
            await table.truncate()
    shown = re.findall(r"```console\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert shown
    first = -1
    """The transaction that is 12 on the page."""
    for block in shown:
        commands = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
        for each in commands:
            command, _, wanted = each.partition("\n")
            for shown_text, meant in (
                ("https://view-1.example.com:7100", f"https://{view.name}"),
                ("tables/0", f"tables/{TABLE}"),
                ("--cacert ca.pem", "-k"),
                ("=12&", f"={first}&"),
                ("at_least=12", f"at_least={first}"),
                ('"term": 14', f'"term": {first + 2}'),
            ):
                command = command.replace(shown_text, meant)
            done = await asyncio.to_thread(
                subprocess.run, ["sh", "-c", command], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
            )
            assert done.returncode in (0, 28), done  # 28: a watch ends by curl's own time limit
            if first < 0:
                first = json.loads(done.stdout)["transaction"]
            assert re.fullmatch(pattern_of(wanted), done.stdout.strip()), (command, wanted, done.stdout)


def pattern_of(shown: str) -> str:
    """Numbers that differ from run to run, and what is left out."""
    text = re.escape(shown.strip())
    text = re.sub(r"\d+", r"-?\\d+", text)
    return text.replace(r"\.\.\.", ".*").replace("…", ".*")
