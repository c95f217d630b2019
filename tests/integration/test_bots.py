"""The bots over real clusters: one whose nodes are killed, one that knows no write sessions, and as commands."""

import asyncio
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

import waltz
from tests.integration.test_cluster_tools import OLD_SERVER
from tests.integration.test_tables import break_nodes
from waltz.bot.bank import Bank, BankOptions
from waltz.bot.coal_mine import CoalMine, CoalMineOptions
from waltz.bot.expected import Deviation, Expected
from waltz.bot.history import HistoryFile, read_history
from waltz.bot.journal import Journal
from waltz.bot.opening import Place, open_place
from waltz.bot.prover import Prover
from waltz.bot.random_operations import RandomOperations, RandomOptions
from waltz.bot.troubles import Troubles
from waltz.common.config.schemas import ClientConfig, load
from waltz.local.cluster import LocalCluster
from waltz.local.layout import Node

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

FAULTS = ("server", "storage", "server and storage")
OPERATIONS_BETWEEN_FAULTS = 100
RETRY_S = 0.2
TIMEOUT_S = 120.0
POLL_INTERVAL_S = 0.02


class OldCluster(LocalCluster):
    """A cluster whose servers speak only the protocol versions of the original."""

    def start_server(self, node: Node) -> None:
        self._start(node.name, [sys.executable, "-c", OLD_SERVER, str(self.layout.config_path(node.name))])


def place(cluster: LocalCluster, partition_id: int, *, sessions: bool = False) -> Place:
    config = load(cluster.layout.client_config_path, ClientConfig)
    return Place(config, partition_id, 3, "memory", None, sessions)


def journal(name: str, found: list[Deviation], history: HistoryFile | None = None) -> Journal:
    return Journal(name, "local", 0, history, found.append)


@pytest.mark.deep
async def test_killed_nodes_are_no_deviations(tmp_path: Path) -> None:
    """A bot of random operations and a bank, while servers and storages are killed and started again."""
    found: list[Deviation] = []
    path = tmp_path / "history"
    async with LocalCluster(tmp_path / "cluster", partitions=2, plaintext=True) as cluster, AsyncExitStack() as stack:
        opened = await stack.enter_async_context(open_place(place(cluster, 0)))
        history = HistoryFile(path, 1 << 30)
        stack.callback(history.close)
        prover = Prover("random", opened.tables, journal("random", found, history), Troubles(RETRY_S))
        options = RandomOptions(keys=200, batch_rows=50, round_operations=100)
        operations = RandomOperations(prover, options, None)

        opened = await stack.enter_async_context(open_place(place(cluster, 1, sessions=True)))
        money = BankOptions(accounts=20, audit_interval_s=0.5, fence_interval_s=0.5)
        bank = Bank(opened.clients, opened.tables, 1, journal("bank", found), Troubles(RETRY_S), money, None)

        bots = [asyncio.create_task(bot.work()) for bot in (operations, bank)]
        for fault in FAULTS:
            await progress(operations, bank, bots)
            await break_nodes(cluster, fault)
        await progress(operations, bank, bots)
        for bot in bots:
            bot.cancel()
        await asyncio.wait(bots)
        assert all(bot.cancelled() for bot in bots)
        async with asyncio.timeout(TIMEOUT_S):
            await operations.check()
            await bank.check()
        assert bank.session_rounds.rounds > 0
        assert bank.audit.transfers > 0
    assert found == []
    expected = Expected()
    assert [each for event in read_history(path) for each in expected.take(event)] == []
    assert expected.give_up() == []


async def progress(operations: RandomOperations, bank: Bank, bots: list[asyncio.Task[None]]) -> None:
    """Return when the bots have done the given numbers of further operations and transfers."""
    ends = operations.done + OPERATIONS_BETWEEN_FAULTS, bank.done + OPERATIONS_BETWEEN_FAULTS
    async with asyncio.timeout(TIMEOUT_S):
        while operations.done < ends[0] or bank.done < ends[1]:
            for bot in bots:
                if bot.done():
                    bot.result()
            await asyncio.sleep(POLL_INTERVAL_S)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with OldCluster(tmp_path_factory.mktemp("old"), servers=1, partitions=4, plaintext=True) as running:
        yield running


async def test_servers_that_know_no_sessions_are_enough(old: LocalCluster) -> None:
    found: list[Deviation] = []
    troubles = Troubles(RETRY_S)
    async with asyncio.timeout(TIMEOUT_S), open_place(place(old, 0)) as opened:
        prover = Prover("canary", opened.tables, journal("coalmine", found), troubles)
        await CoalMine(prover, CoalMineOptions(canaries=500, interval_s=0, batch_rows=100), 2).work()
        prover = Prover("random", opened.tables, journal("random", found), troubles)
        await RandomOperations(prover, RandomOptions(keys=100, batch_rows=20, pause_s=0), 100).work()
    async with asyncio.timeout(TIMEOUT_S), open_place(place(old, 1, sessions=True)) as opened:
        money = BankOptions(accounts=20, pause_s=0, fence_interval_s=0.001)
        bank = Bank(opened.clients, opened.tables, 1, journal("bank", found), troubles, money, 100)
        await bank.work()
        assert bank.counts["write sessions"] == "not known to the owner"
        assert bank.audit.transfers > 50
    assert (found, troubles.retries) == ([], 0)


COMMAND = [sys.executable, "-m", "waltz.cli.main", "bot"]


@contextmanager
def random_bot(cluster: LocalCluster, partition_id: int, history: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command, and where it shows how it is."""
    options = ["-c", str(cluster.layout.cli_config_path), "-p", str(partition_id), "--keys", "50", "--batch", "9"]
    bot = subprocess.Popen(
        [*COMMAND, "random", *options, "--http", "0", "--history", str(history)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert bot.stdout is not None
        first = bot.stdout.readline()
        assert re.fullmatch(rf"bot random, run \w+, in partition {partition_id} of local; Ctrl-C ends it\n", first)
        url = bot.stdout.readline().removeprefix("status: ").strip().removesuffix("/health")
        wait_for(lambda: health(url)["operations"] >= 10)
        yield bot, url
    finally:
        bot.kill()
        bot.wait()


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(POLL_INTERVAL_S)


def health(url: str) -> dict[str, Any]:
    try:
        answer = urlopen(f"{url}/health")
    except HTTPError as error:
        answer = error
    with answer:
        body: dict[str, Any] = json.load(answer)
    assert answer.status == (200 if body["healthy"] else 500)
    return body


def show(url: str, resource: str, method: str = "GET") -> dict[str, Any]:
    with urlopen(Request(f"{url}/{resource}", method=method)) as answer:
        body: dict[str, Any] = json.load(answer)
        return body


def ended(bot: "subprocess.Popen[str]") -> tuple[int, list[str]]:
    """By Ctrl-C."""
    bot.send_signal(signal.SIGINT)
    said, _ = bot.communicate(timeout=60)
    return bot.returncode, said.splitlines()


def check(history: Path) -> tuple[int, str]:
    checked = subprocess.run([*COMMAND, "check", str(history)], capture_output=True, text=True, timeout=60)
    assert checked.stderr == ""
    return checked.returncode, checked.stdout.splitlines()[-1]


def test_the_command(old: LocalCluster, tmp_path: Path) -> None:
    """Begun in a shell, looked at over HTTP, begun anew, ended by Ctrl-C, its histories checked."""
    history, first = tmp_path / "history", tmp_path / "history.1"
    with random_bot(old, 2, history) as (bot, url):
        assert show(url, "valid-keys")["count"] <= 50
        assert show(url, "invalid-keys") == {"count": 0, "keys": {}}
        assert show(url, "reset", "POST") == {"reset": True}
        wait_for(first.exists)
        wait_for(lambda: health(url)["operations"] >= 10)
        code, said = ended(bot)
        assert (code, said[-1]) == (0, "clean")
    for path in (history, first):
        code, verdict = check(path)
        assert code == 0
        assert verdict.endswith("deviations 0")


def test_a_row_that_somebody_deletes_behind_its_back_is_found(old: LocalCluster, tmp_path: Path) -> None:
    """With a timestamp so late that only a transaction can replace it; there may have been no row."""
    with random_bot(old, 3, tmp_path / "history") as (bot, url):
        asyncio.run(delete(old, 3, b"random/00017"))
        wait_for(lambda: not health(url)["healthy"])
        quarantine = show(url, "invalid-keys")
        assert list(quarantine["keys"]) == ["00017"]
        assert "; it can have been " in quarantine["keys"]["00017"]["what"]
        assert "00017" not in show(url, "valid-keys")["keys"]
        code, said = ended(bot)
        assert (code, said[-1]) == (3, "1 DEVIATIONS")
        assert [line for line in said if line.startswith("DEVIATION at 00017: ")] != []
    assert check(tmp_path / "history")[0] == 3


async def delete(cluster: LocalCluster, partition_id: int, key: bytes) -> None:
    async with waltz.connect(cluster.layout.client_config_path) as client, client.table(partition_id) as table:
        await table.delete(key, timestamp_ms=time.time_ns() // 1_000_000 + 1_800_000)


def test_a_partition_of_somebody_else_is_refused(old: LocalCluster) -> None:
    command = [*COMMAND, "bank", "-c", str(old.layout.cli_config_path), "-p", "9"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 1
    assert refused.stderr == "Error: there is no partition 9; the cluster has 4 (0 to 3)\n"
