"""``waltz storage label`` and ``waltz storage ring``: what they print and refuse."""

import argparse
import json

import pytest

from tests.memory_zookeeper import MemoryZooKeeperServer
from waltz.cli import labels
from waltz.cli.main import parser
from waltz.cli.session import Session
from waltz.common.errors import WaltzError
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.storage_labels import add_to_ring
from waltz.common.zk.store_admin import add_storage_node, create_cluster

ROOT = "/waltz"


@pytest.fixture
async def session() -> Session:
    zookeeper = await MemoryZooKeeperServer().connect()
    await create_cluster(zookeeper, ROOT, "demo", 4)
    for storage in ("a:1", "b:1"):
        await add_storage_node(zookeeper, ROOT, storage, 0, 2)
    return Session(zookeeper, ROOT, None)


def options(*arguments: str) -> argparse.Namespace:
    return parser().parse_args(["storage", *arguments, "-c", "unused.yml"])


async def test_labels_of_storages(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    await labels._label(options("label", "a:1", "rack=1", "datacenter=x"), session)
    assert capsys.readouterr().out == "a:1 datacenter=x,rack=1\n"
    await labels._label(options("label"), session)
    assert capsys.readouterr().out == "a:1 datacenter=x,rack=1\nb:1 has no labels\n"
    await labels._label(options("label", "a:1", "--json"), session)
    assert json.loads(capsys.readouterr().out) == {"a:1": {"datacenter": "x", "rack": "1"}}
    await labels._label(options("label", "a:1", "rack=", "datacenter="), session)
    assert capsys.readouterr().out == "a:1 has no labels\n"
    with pytest.raises(WaltzError, match="a label is given more than once"):
        await labels._label(options("label", "a:1", "rack=1", "rack=2"), session)
    with pytest.raises(WaltzError, match="there is no storage node c:1"):
        await labels._label(options("label", "c:1"), session)


async def test_labels_that_cannot_be_read_are_an_error_behind_the_others(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    path = ClusterPaths.of(ROOT).storage_labels("a:1")
    await session.zookeeper.create(path, b"nonsense", make_path=True)
    with pytest.raises(WaltzError, match=f"{path} does not hold a JSON object of labels"):
        await labels._label(options("label"), session)
    assert capsys.readouterr().out == "a:1 has no labels\nb:1 has no labels\n"


def test_a_label_without_a_value_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options("label", "a:1", "rack")
    assert "not of the form KEY=VALUE: 'rack'" in capsys.readouterr().err


async def test_rings(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    await labels._ring(options("ring", "gold", "b:1", "a:1"), session)
    assert capsys.readouterr().out == "gold: a:1, b:1; partitions none\n"
    await add_to_ring(session.zookeeper, ROOT, "gold", range(3))
    await labels._ring(options("ring", "--json"), session)
    assert json.loads(capsys.readouterr().out) == {"gold": {"storages": ["a:1", "b:1"], "partitions": [0, 1, 2]}}
    with pytest.raises(WaltzError, match="there is no ring 'iron'"):
        await labels._ring(options("ring", "iron"), session)
    with pytest.raises(WaltzError, match="--delete takes the name of a ring"):
        await labels._ring(options("ring", "--delete"), session)
    await labels._ring(options("ring", "gold", "--delete"), session)
    await labels._ring(options("ring"), session)
    assert capsys.readouterr().out == ""
