"""The bots over real clusters: one whose nodes are killed, one that knows no write sessions, and as commands."""

import asyncio
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

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
from waltz.common.config import ClientConfig, load
from waltz.local.cluster import LocalCluster
from waltz.local.layout import Node

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

FAULTS = ("server", "storage", "server and storage")
OPERATIONS_BETWEEN_FAULTS = 100
RETRY_S = 0.2
TIMEOUT_S = 120.0
POLL_INTERVAL_S = 0.02


class OldCluster(LocalCluster):
    """Its servers speak the versions of the original only."""

    def start_server(self, node: Node) -> None:
        self._start(node.name, [sys.executable, "-c", OLD_SERVER, str(self.layout.config_path(node.name))])


def place(cluster: LocalCluster, partition_id: int, *, sessions: bool = False) -> Place:
    config = load(cluster.layout.client_config_path, ClientConfig)
    return Place(config, partition_id, 3, "memory", None, sessions)


def journal(name: str, found: list[Deviation], history: HistoryFile | None = None) -> Journal:
    return Journal(name, "local", 0, history, found.append)


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
        assert bank.fencing.rounds > 0
        assert bank.audit.transfers > 0
    assert found == []
    expected = Expected()
    assert [each for event in read_history(path) for each in expected.take(event)] == []
    assert expected.give_up() == []


async def progress(operations: RandomOperations, bank: Bank, bots: list[asyncio.Task[None]]) -> None:
    """Return after so many more operations and transfers."""
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


def test_the_command(old: LocalCluster, tmp_path: Path) -> None:
    """Begun in a shell, looked at over HTTP, begun anew, ended by Ctrl-C, its history checked."""
    history = tmp_path / "history"
    command = [sys.executable, "-m", "waltz.cli.main", "bot"]
    options = ["-c", str(old.layout.cli_config_path), "-p", "2", "--keys", "50", "--batch", "9", "--http", "0"]
    bot = subprocess.Popen([*command, "random", *options, "--history", str(history)], stdout=subprocess.PIPE, text=True)
    try:
        assert bot.stdout is not None
        assert re.fullmatch(r"bot random, run \w+, in partition 2 of local; Ctrl-C ends it\n", bot.stdout.readline())
        url = bot.stdout.readline().removeprefix("status: ").strip().removesuffix("/health")
        wait_for_operations(url)
        assert json.load(urlopen(f"{url}/valid-keys"))["count"] <= 50
        assert json.load(urlopen(f"{url}/invalid-keys")) == {"count": 0, "keys": {}}
        assert json.load(urlopen(Request(f"{url}/reset", method="POST"))) == {"reset": True}
        while not Path(f"{history}.1").exists():
            time.sleep(POLL_INTERVAL_S)
        wait_for_operations(url)
        bot.send_signal(signal.SIGINT)
        said, _ = bot.communicate(timeout=60)
    finally:
        bot.kill()
        bot.wait()
    assert (bot.returncode, said.splitlines()[-1]) == (0, "clean")
    for path in (history, tmp_path / "history.1"):
        checked = subprocess.run([*command, "check", str(path)], capture_output=True, text=True, timeout=60)
        assert (checked.returncode, checked.stderr) == (0, ""), checked
        assert checked.stdout.endswith("deviations 0\n")


def wait_for_operations(url: str) -> None:
    """Return when the bot, which may have begun anew, has done some."""
    while json.load(urlopen(f"{url}/health"))["operations"] < 10:
        time.sleep(POLL_INTERVAL_S)


def test_a_partition_of_somebody_else_is_refused(old: LocalCluster) -> None:
    command = [sys.executable, "-m", "waltz.cli.main", "bot", "bank", "-c", str(old.layout.cli_config_path)]
    refused = subprocess.run([*command, "-p", "9"], capture_output=True, text=True, timeout=60)
    assert refused.returncode == 1
    assert refused.stderr == "Error: there is no partition 9; the cluster has 4\n"
