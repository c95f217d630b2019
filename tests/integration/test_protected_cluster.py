"""A cluster of real processes in a protected tree: everything works, and nobody leaves an open node behind."""

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import waltz
import waltz.table
from tests.integration.spare import SpareCluster
from tests.integration.test_storage_tools import TIMEOUT_S, done, failed
from waltz.cli.session import CONFIG_VARIABLE
from waltz.common.config.schemas import ClientConfig, load
from waltz.local.cluster import LocalCluster
from waltz.local.layout import Node
from waltz.spark.options import parse_options
from waltz.spark.planning import plan

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

PASSWORDS = {role: f"{role}-password-of-the-test" for role in ("server", "storage", "client", "admin")}
USERS = {role: {f"{role}-user": password} for role, password in PASSWORDS.items()}
PARTITIONS = 3
"""The first one is a log, the second one a table, the third one is for a bot."""
BOTS = Path(__file__).parents[2] / "docs" / "bot.md"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the files of users and passwords."""
    found = tmp_path_factory.mktemp("protected")
    for role, password in PASSWORDS.items():
        (found / role).write_text(f"{password}\n")
    (found / "users.yml").write_text(yaml.safe_dump(USERS))
    (found / "users.yml").chmod(0o600)
    return found


def user(directory: Path, role: str) -> dict[str, object]:
    return {"zookeeper.user": f"{role}-user", "zookeeper.passwordFile": str(directory / role)}


@pytest.fixture(scope="module")
def cluster(directory: Path) -> Iterator[LocalCluster]:
    """Two storages and a spare one, a server; all have users, and the tree is protected while they run."""
    with (
        SpareCluster(
            directory / "cluster",
            storages=3,
            servers=1,
            partitions=PARTITIONS,
            plaintext=True,
            server_overrides={**user(directory, "server"), "server.retentionInterval": 200},
            storage_overrides=user(directory, "storage"),
        ) as running,
        pytest.MonkeyPatch.context() as patch,
    ):
        tools = yaml.safe_load(running.layout.cli_config_path.read_text())
        (directory / "tools.yml").write_text(yaml.safe_dump({**tools, **user(directory, "admin")}))
        patch.setenv(CONFIG_VARIABLE, str(directory / "tools.yml"))
        assert "is not protected: waltz zookeeper protect --users FILE" in failed("zookeeper", "protect", "--check")
        assert "the tree is protected" in done("zookeeper", "protect", "--users", str(directory / "users.yml"))
        yield running


@pytest.fixture
def config(cluster: LocalCluster, directory: Path) -> ClientConfig:
    """That of an application."""
    own = {"zookeeper_user": "client-user", "zookeeper_password_file": str(directory / "client")}
    return load(cluster.layout.client_config_path, ClientConfig).model_copy(update=own)


def storage_of(node: Node) -> str:
    return f"localhost:{node.admin_port}"


async def use(config: ClientConfig) -> None:
    """Everything that applications do in ZooKeeper."""
    async with waltz.connect(config) as client:
        appended = await client.append(0, b"hello", timeout_s=100)
        positions = waltz.ZooKeeperPositions(client, "mails")
        async with client.consume(positions, [0], share="mails") as consumer:
            async for record in consumer:
                if record.transaction_id == appended:
                    break
            await consumer.commit()
        async with client.table(1) as table:
            await table.put(b"alice", b"100")
            (alice,) = await table.get([b"alice"])
            assert alice is not None
            assert alice.value == b"100"
    async with waltz.connect(config, session_write=True) as client:
        election = client.election(0, "one")
        async with election.campaign() as leadership:
            assert leadership.term > 0
            await client.append(0, b"by the leader", timeout_s=100)
    options = {
        "zookeeper": config.zookeeper_connect_string,
        "clusterRoot": config.cluster_root,
        "tls.plaintext": "true",
        "zookeeperUser": config.zookeeper_user or "",
        "zookeeperPasswordFile": config.zookeeper_password_file or "",
    }
    assert [split.range.partition_id for split in await plan(parse_options(options))] == [0, 1]


def check_retention() -> None:
    """A server reads the positions of consumers, and trims up to the first one."""
    done("cluster", "features", "--enable", "trim")
    done("partition", "configure", "-p", "0", "retentionAgeInMillis=1")
    deadline_s = time.monotonic() + TIMEOUT_S
    while not json.loads(done("partition", "show", "-p", "0", "--json"))["trimPoint"]:
        assert time.monotonic() < deadline_s, done("status")
        time.sleep(0.05)


def test_a_protected_cluster_works_and_nothing_is_open(
    cluster: LocalCluster, config: ClientConfig, directory: Path
) -> None:
    done("partition", "configure", "-p", "1", "format=table")
    asyncio.run(use(config))
    source, _, spare = cluster.layout.storages
    done("storage", "label", source.connect_string, "rack=1")
    done("acl", "init", "--server", "CN=server", "--admin", "CN=ops")
    done("acl", "name", "orders", "0")
    done("storage", "move", "-s", source.connect_string, "-d", spare.connect_string, "-p", "0", "--apply", "--yes")
    for node in (*cluster.layout.servers, source):
        cluster.terminate(node)
    cluster.start_storage(source)
    cluster.start_server(cluster.layout.servers[0])
    asyncio.run(use(config))
    check_retention()
    assert '"name": "local"' in done("zookeeper", "list", "--json")
    assert json.loads(done("zookeeper", "protect", "--check", "--json")) == {"protected": True, "nodes": []}


def test_a_bot_is_a_client_once_its_partition_is_a_table(cluster: LocalCluster, directory: Path) -> None:
    tools = yaml.safe_load(cluster.layout.cli_config_path.read_text())
    path = directory / "bot.yml"
    path.write_text(yaml.safe_dump({**tools, **user(directory, "client")}))
    command = ("bot", "random", "-c", str(path), "-p", "2", "--operations", "20", "--keys", "5", "--pause", "0")
    assert "its role may not do this" in failed(*command)
    (prepared,) = re.findall(r"^waltz (partition configure -p 3 .*)$", BOTS.read_text(), re.MULTILINE)
    done(*prepared.replace("-p 3", "-p 2").split())
    assert done(*command).endswith("clean\n")


def test_who_has_no_user_or_a_wrong_password_hears_it(
    cluster: LocalCluster, config: ClientConfig, directory: Path
) -> None:
    async def connected(config: ClientConfig) -> None:
        async with waltz.connect(config):
            pass

    nobody = load(cluster.layout.client_config_path, ClientConfig)
    with pytest.raises(waltz.NotPermittedError, match="refuses this process, which has no zookeeper.user"):
        asyncio.run(connected(nobody))
    wrong = config.model_copy(update={"zookeeper_password_file": str(directory / "server")})
    with pytest.raises(waltz.NotPermittedError, match="zookeeper.user or its password is wrong"):
        asyncio.run(connected(wrong))
    path = str(cluster.layout.cli_config_path)
    assert "has no zookeeper.user" in failed("zookeeper", "list", "-c", path)


@pytest.mark.deep
def test_nodes_without_a_user_do_not_start(cluster: LocalCluster, directory: Path) -> None:
    for name, module in (("storage-1", "waltz.storage"), ("server-1", "waltz.serving")):
        node = yaml.safe_load(cluster.layout.config_path(name).read_text())
        del node["zookeeper.user"], node["zookeeper.passwordFile"]
        file = directory / f"{name}-without-user.yml"
        file.write_text(yaml.safe_dump(node))
        refused = subprocess.run(
            [sys.executable, "-m", module, str(file)], capture_output=True, text=True, timeout=300, check=False
        )
        assert refused.returncode == 1
        assert "has no zookeeper.user" in refused.stderr


@pytest.mark.deep
def test_no_password_is_in_a_log(cluster: LocalCluster, config: ClientConfig, directory: Path) -> None:
    code = "import logging, waltz.cli.main as cli; logging.basicConfig(level=1); cli.main(['zookeeper', 'list'])"
    told = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        env={**os.environ, CONFIG_VARIABLE: str(directory / "tools.yml")},
    )
    assert "Sending request" in told.stderr  # kazoo's own lines are there
    logs = [told.stdout, told.stderr, *(path.read_text() for path in (directory / "cluster").glob("*.log"))]
    assert not [password for password in PASSWORDS.values() for text in logs if password in text]
