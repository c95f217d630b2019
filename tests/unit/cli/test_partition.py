"""Properties of partitions as operators see and change them."""

import argparse
import json
from collections.abc import AsyncIterator
from functools import partial

import pytest

from tests.memory_zookeeper import MemoryZooKeeperServer
from tests.unit.server.fakes import FakeLog
from tests.unit.server.serving import serving
from waltz.cli import partition
from waltz.cli.main import parser
from waltz.cli.partition import Assignment, assignment
from waltz.cli.session import Session
from waltz.common.errors import WaltzError
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.store_admin import create_cluster
from waltz.server.process.property_setting import set_properties
from waltz.table.properties import read_properties

ROOT = "/waltz"


@pytest.fixture
async def session() -> AsyncIterator[Session]:
    zookeeper = await MemoryZooKeeperServer().connect()
    await create_cluster(zookeeper, ROOT, "fake", 3)
    yield Session(zookeeper, ROOT, None)
    await zookeeper.close()


async def show(session: Session, *arguments: str) -> None:
    await partition._show(parser().parse_args(["partition", "show", *arguments, "-c", "unused.yml"]), session)


async def configure(session: Session, *arguments: str) -> None:
    await partition._configure(parser().parse_args(["partition", "configure", "-c", "unused.yml", *arguments]), session)


@pytest.mark.parametrize(
    ("text", "value"),
    [("a=1", 1), ("a=true", True), ("a=", None), ("a=null", None), ("a=zlib", "zlib"), ("a=x=y", "x=y"), ("a={", "{")],
)
def test_assignments(text: str, value: object) -> None:
    assert assignment(text) == Assignment("a", value)


@pytest.mark.parametrize("text", ["", "a", "=1"])
def test_what_is_no_assignment(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="not of the form PROPERTY=VALUE"):
        assignment(text)


async def test_properties_are_set_shown_and_taken_back(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    await show(session)
    assert capsys.readouterr().out == "partition 0: format=raw\npartition 1: format=raw\npartition 2: format=raw\n"
    await configure(session, "-p", "0-1", "format=table", "rowType=zlib", "disabled=true")
    await configure(session, "-p", "0", "rowType=", "ttlVersionAgeInMillis=5")
    capsys.readouterr()
    await show(session, "-p", "0-1")
    assert capsys.readouterr().out.splitlines() == [
        "partition 0: format=table disabled=true ttlVersionAgeInMillis=5",
        "partition 1: format=table disabled=true rowType=zlib",
    ]
    await show(session, "--json", "-p", "0")
    shown = json.loads(capsys.readouterr().out)
    assert (shown["partition"], shown["change"], shown["rowType"], shown["view"]) == (0, 2, "primary", "client")
    await show(session, "--all", "-p", "1")
    assert "rowType=zlib" in (out := capsys.readouterr().out)
    assert "durability=fsync_always" in out


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("durability=fsync_never", "durability: only fsync_always is possible: storages know no other"),
        ("consistency=most", "consistency: Input should be 'leader', 'leader_plus_one',"),
        ("requireConsistency=0", "requireConsistency: "),
        ("refuseLegacyWriters=yes", "refuseLegacyWriters: "),
        ("replicated=false", "replicated: only True is possible"),
        ('indexProperties={"a":"b"}', "indexProperties: only None is possible"),
        ("maxValueSizeInIndex=8", "maxValueSizeInIndex: only -1 is possible"),
        ("forceCompactionOnStartup=true", "forceCompactionOnStartup: only False is possible"),
        ("view=server", "view: only client is possible"),
        ("rowType=brotli", "rowType: "),
        ("rowType=5", "rowType: "),
        ("colour=red", "no property 'colour'"),
        ("colour=", "no property 'colour'"),
        ("indexClassName=lmdb", "indexClassName lmdb holds keys of at most 499 bytes"),
        ("ttlTimestampAgeInMillis=1d", "ttlTimestampAgeInMillis: "),
    ],
)
async def test_what_is_refused_is_named_and_changes_nothing(change: str, text: str, session: Session) -> None:
    with pytest.raises(WaltzError, match="^partition 1 was not configured: ") as raised:
        await configure(session, "-p", "1", "format=table", change)
    assert text in str(raised.value)
    assert await session.zookeeper.exists(ClusterPaths.of(ROOT).partition_properties(1)) is None


async def test_a_server_changes_properties_for_users_that_may_not(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    setter = partial(set_properties, session.zookeeper, ROOT)
    async with serving(dict.fromkeys(range(3), FakeLog), version=6, set_properties=setter) as (endpoint, _):
        by_server = ("-s", str(endpoint), "-p", "0,2", "format=table")
        await configure(session, *by_server)
        out = capsys.readouterr().out
        assert out == "partition 0: format=table\npartition 2: format=table\n"
        await configure(session, *by_server)
        await show(session)
        assert capsys.readouterr().out == f"{out}partition 0: format=table\npartition 1: format=raw\n{out[-26:]}"
        for partition_id in (0, 2):
            assert (await read_properties(session.zookeeper, ROOT, partition_id)).change == 1
        with pytest.raises(WaltzError, match="partition 0 was not configured: there is no property 'x'"):
            await configure(session, "-s", str(endpoint), "-p", "0", "x=1")
    async with serving(dict.fromkeys(range(3), FakeLog), version=6) as (endpoint, _):
        with pytest.raises(WaltzError, match=rf"partition 1 was not .*: {endpoint} answers: there is no ZooKeeper"):
            await configure(session, "-s", str(endpoint), "-p", "1", "format=table")
    async with serving(dict.fromkeys(range(3), FakeLog), version=5) as (endpoint, _):
        with pytest.raises(WaltzError, match="version 5"):
            await configure(session, "-s", str(endpoint), "-p", "1", "format=table")


async def test_partitions_that_are_not_there_and_properties_given_twice(session: Session) -> None:
    with pytest.raises(WaltzError, match="there is no partition 3; the cluster has 3"):
        await configure(session, "-p", "2-4", "format=table")
    with pytest.raises(WaltzError, match="there is no partition 3; the cluster has 3"):
        await show(session, "-p", "3")
    with pytest.raises(WaltzError, match="more than once"):
        await configure(session, "-p", "0", "format=table", "format=raw")


async def test_a_node_of_something_else_does_not_hide_the_others(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    await session.zookeeper.create(ClusterPaths.of(ROOT).partition_properties(1), b"x", make_path=True)
    with pytest.raises(WaltzError, match="properties of 1 partitions cannot be read"):
        await show(session)
    first, second, third = capsys.readouterr().out.splitlines()
    assert (first, third) == ("partition 0: format=raw", "partition 2: format=raw")
    assert second.startswith("Error: /waltz/ext/partition/1 ")
