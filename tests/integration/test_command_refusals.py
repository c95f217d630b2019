"""Every command that works on a cluster, where it cannot: another cluster, nodes that are dead, partitions that are not
there, no permission. Each ends with 1 and one line that says what is wrong."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from kazoo.client import KazooClient
from kazoo.security import make_acl, make_digest_acl

from tests.integration.test_storage_tools import done, waltz
from tests.unit.cli.test_grammar import COMMANDS
from waltz.local.cluster import LocalCluster
from waltz.local.layout import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

DEAD = "localhost:1"
RULES = Path(__file__).with_name("rules.json")
AUDIT_LOG = Path(__file__).with_name("audit.jsonl")

ARGUMENTS = {
    "zookeeper create": "-n other -p 1",
    "zookeeper delete": "-n other -y",
    "zookeeper list": "",
    "zookeeper show-cluster-key": "",
    "zookeeper add-storage-node": "-s {dead} -a 1 -g 1",
    "zookeeper remove-storage-node": "-s {dead}",
    "zookeeper assign-partition": "-s {data} -p {partition}",
    "zookeeper unassign-partition": "-s {data} -p {partition}",
    "zookeeper auto-assign": "-g 9",
    "zookeeper protect": "--open -y",
    "acl init": "--server CN=node --admin CN=ops",
    "acl list": "",
    "acl grant": "CN=svc-a append",
    "acl revoke": "CN=svc-a append",
    "acl mode": "audit",
    "acl name": "orders 0",
    "acl set-quota": "CN=svc-a --appends 100",
    "acl remove-quota": "CN=svc-a",
    "acl explain": "CN=svc-a append 0",
    "acl diff": f"{RULES}",
    "acl apply": f"{RULES}",
    "acl export": "",
    "acl suggest": f"{AUDIT_LOG}",
    "acl replay": f"{AUDIT_LOG} --rules {RULES}",
    "server add-preferred-partition": "-s {server} -p {partition}",
    "server remove-preferred-partition": "-s {server} -p {partition}",
    "server drain": "-s {server} --plan",
    "storage list": "-s {admin}",
    "storage add-partition": "-s {admin} -p {partition}",
    "storage remove-partition": "-s {admin} -p {partition}",
    "storage availability": "-s {admin} -p {partition} -o true",
    "storage sync-partitions": "",
    "storage label": "{data} rack=1",
    "storage ring": "ring {data}",
    "storage validate": "",
    "storage max-transaction-id": "-s {admin} -sp {port} -p {partition}",
    "storage recover-partition": "-s {admin} -d {admin} -dp {port} -p {partition}",
    "storage move": "-s {data} -d {other} -p {partition} --apply -y",
    "storage rebalance-disks": "-s {admin} --plan",
    "storage accept-loss": "-p {one} --lost {data} --plan",
    "storage repair": "-s {admin} -p {partition}",
    "cluster create": "-n other -p 1 -s {data}:1",
    "cluster check-connectivity": "",
    "cluster verify": "-p {one}",
    "cluster rebalance": "--plan",
    "cluster features": "",
    "session show": "-p {partition}",
    "session fence": "-p {one} --force",
    "partition show": "-p {partition}",
    "partition at": "-p {partition} 2026-01-01T00:00:00Z",
    "partition configure": "-p {partition} format=table",
    "partition trim": "-p {one} --before 1 --yes",
    "table get": "-p {one} key",
    "table scan": "-p {one}",
    "table take": "-p {one}",
    "table put": "-p {one} key value",
    "table delete": "-p {one} key",
    "table truncate": "-p {one} -y",
    "table sweep": "-p {partition}",
    "table export": "-p {one} -",
    "table import": "-p {one} /dev/null",
    "client validate": "-tpc 1 -nc 1 -i 0 -ap {one}",
    "client high-water-mark": "-p {one}",
    "client create-producer": "-tpc 1 -i 0 -ap {one}",
    "client create-consumer": "-tpc 1 -ap {one}",
    "performance test-producers": "-s 1 -p 1 -t 1 -i 0 -ap {one}",
    "performance test-consumers": "-s 1 -t 1 -ap {one}",
    "archive set-url": "file:///tmp --unasked",
    "archive show-url": "",
    "archive remove-url": "",
    "archive restore": "file:///tmp -p {partition}",
    "archive compare": "file:///tmp -p {partition}",
    "mirror status": "-p {partition}",
    "mirror verify": "-p {partition} --source /dev/null",
    "mirror promote": "-p {partition}",
    "mirror resume": "-p {partition}",
    "table snapshot": "-p {partition} --to file:///tmp",
    "status": "-p {partition}",
    "top": "-p {partition} --json",
    "append": "-p {one} text",
    "get": "-p {one} 0",
    "tail": "-p {partition}",
    "bot random": "-p {one}",
    "bot coalmine": "-p {one}",
    "bot bank": "-p {one}",
}

MAKES = {"zookeeper create", "cluster create"}
"""Commands that create a cluster: that there is none yet is no error for them."""

ASKING = {"storage repair"}
"""Commands that wait for an owner's committed mark, while no server runs."""

READING = ("list", "show-cluster-key")
"""Commands for ZooKeeper that change nothing, with the arguments above."""

WITHOUT_CLUSTER = {"server list"}
"""Commands that need a configuration for TLS only: they ask a node's HTTP port."""


def test_no_command_is_left_out() -> None:
    assert {name for name, (_, found) in COMMANDS.items() if "-c" in found._option_string_actions} == (
        set(ARGUMENTS) | WITHOUT_CLUSTER
    )


def command(cluster: LocalCluster, name: str, *, partition: str = "0", one: str = "1", node: str = "") -> list[str]:
    """With nodes of the cluster, or ``node`` in the place of all; with partitions, or a number of them."""
    storage, other, *_ = cluster.layout.storages
    words = ARGUMENTS[name].format(
        dead=DEAD,
        data=node or storage.connect_string,
        other=other.connect_string,
        admin=node or f"localhost:{storage.admin_port}",
        port=storage.port,
        server=node or cluster.layout.servers[0].connect_string,
        partition=partition,
        one=one,
    )
    return [*name.split(), *words.split()]


def config_of(cluster: LocalCluster, directory: Path, root: str = ROOT) -> list[str]:
    """The cluster's configuration with another root."""
    config = yaml.safe_load(cluster.layout.cli_config_path.read_text())
    path = directory / "cli.yml"
    path.write_text(yaml.safe_dump(config | {"cluster.root": root}))
    return ["-c", str(path)]


def said(*arguments: str) -> str:
    """All that a command prints which fails in order."""
    result = waltz(*arguments)
    assert result.returncode == 1, result
    assert "Traceback" not in result.stderr
    assert result.stderr.strip().splitlines()[-1].startswith("Error: ")
    return result.stdout + result.stderr


def using(*fields: str) -> list[str]:
    """The commands that have one of these to be filled in."""
    return sorted(name for name, words in ARGUMENTS.items() if any(f"{{{field}}}" in words for field in fields))


@pytest.mark.parametrize("name", sorted(ARGUMENTS.keys() - MAKES))
def test_there_is_no_cluster(cluster: LocalCluster, name: str, tmp_path: Path) -> None:
    config = config_of(cluster, tmp_path, "/elsewhere")
    assert "there is no cluster at /elsewhere" in said(*command(cluster, name), *config)


@pytest.mark.parametrize("name", ["status", "append", "bot bank", "table get", "partition show", "storage move"])
def test_there_is_no_configuration(cluster: LocalCluster, name: str, tmp_path: Path) -> None:
    assert f"{tmp_path}/missing.yml" in said(*command(cluster, name), "-c", f"{tmp_path}/missing.yml")
    assert "Is a directory" in said(*command(cluster, name), "-c", str(tmp_path))


@pytest.mark.parametrize("name", using("partition"))
def test_there_is_no_such_partition(cluster: LocalCluster, name: str, tmp_path: Path) -> None:
    """The cluster has two."""
    ranges = "2" if name in using("admin") else "1-2"
    if name in ("table sweep", "table snapshot"):
        ranges = "2"  # they take one after the other, and the others are no tables
    assert re.search(r"\b2\b", said(*command(cluster, name, partition=ranges), *config_of(cluster, tmp_path)))


@pytest.mark.parametrize("name", sorted({*using("data", "admin", "server")} - MAKES))
def test_there_is_no_such_node(cluster: LocalCluster, name: str, tmp_path: Path) -> None:
    """Nor anything else that answers there."""
    assert DEAD in said(*command(cluster, name, node=DEAD), *config_of(cluster, tmp_path))


@pytest.fixture(scope="module")
def foreign(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Another cluster that says of the nodes of this one that they are its own."""
    config = config_of(cluster, tmp_path_factory.mktemp("foreign"), "/foreign")
    nodes = [f"-s={node.connect_string}:{node.admin_port}" for node in cluster.layout.storages]
    done("cluster", "create", "-n", "foreign", "-p", "2", *nodes, *config)
    yield config
    done("zookeeper", "delete", "-n", "foreign", "-y", *config)


@pytest.mark.parametrize("name", sorted({*using("admin"), "storage sync-partitions", "storage validate"} - ASKING))
def test_storages_of_another_cluster_refuse(cluster: LocalCluster, name: str, foreign: list[str]) -> None:
    assert "cluster key" in said(*command(cluster, name), *foreign)


def test_storages_of_another_cluster_are_named_by_who_looks(foreign: list[str]) -> None:
    assert "cluster key" in done("cluster", "verify", *foreign)
    assert done("status", "--interval", "0", *foreign).count("no answer") == 3


@pytest.fixture(scope="module")
def guarded(
    cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[list[str], Callable[[bool], None]]]:
    """A cluster in ZooKeeper whose nodes others may read, or not even that."""
    config = config_of(cluster, tmp_path_factory.mktemp("guarded"), "/guarded")
    done("zookeeper", "create", "-n", "guarded", "-p", "2", *config)
    zookeeper = KazooClient(cluster.layout.zookeeper_connect_string, auth_data=[("digest", "admin:secret")])
    zookeeper.start()

    def guard(path: str, readable: bool) -> None:
        own = [make_digest_acl("admin", "secret", all=True)]
        zookeeper.set_acls(path, [*own, make_acl("world", "anyone", read=True)] if readable else own)
        for name in zookeeper.get_children(path):
            guard(f"{path}/{name}", readable)

    yield config, lambda readable: guard("/guarded", readable)
    zookeeper.delete("/guarded", recursive=True)
    zookeeper.stop()
    zookeeper.close()


def test_who_may_read_nothing_is_told_so_by_every_command(
    cluster: LocalCluster, guarded: tuple[list[str], Callable[[bool], None]]
) -> None:
    config, guard = guarded
    guard(False)
    for name in ARGUMENTS:
        assert "no permission: the access control list" in said(*command(cluster, name), *config), name


def test_who_may_only_read_changes_nothing(
    cluster: LocalCluster, guarded: tuple[list[str], Callable[[bool], None]]
) -> None:
    config, guard = guarded
    guard(True)
    before = done("zookeeper", "list", *config)
    changing = [name for name in ARGUMENTS if name.startswith("zookeeper ") and name.split()[1] not in READING]
    for name in [*changing, "partition configure", "storage move"]:
        words = command(cluster, name)
        if name == "zookeeper delete":
            words[words.index("other")] = "guarded"
        if name in MAKES:
            continue
        assert "no permission: the access control list" in said(*words, *config), name
    assert done("zookeeper", "list", *config) == before
