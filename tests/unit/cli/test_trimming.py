"""Trims and features as operators ask for them."""

import argparse
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from tests.memory_zookeeper import MemoryZooKeeperServer
from waltz.cli import trimming
from waltz.cli.main import parser
from waltz.cli.session import Session
from waltz.cli.trimming import age, size
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.errors import WaltzError
from waltz.common.zk.archive_address import write_archive_url
from waltz.common.zk.store_admin import create_cluster
from waltz.operations.trimming import ArchivedEnd, Need, Plan

ROOT = "/waltz"


@pytest.fixture
async def session() -> AsyncIterator[Session]:
    zookeeper = await MemoryZooKeeperServer().connect()
    await create_cluster(zookeeper, ROOT, "fake", 3)
    yield Session(zookeeper, ROOT, None)
    await zookeeper.close()


class Operations:
    """What the command asks for, instead of a cluster."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.needs: tuple[Need, ...] = ()
        self.trimmed: list[tuple[Plan, list[str]]] = []
        self.wanted: list[int] = []
        self.ends: list[int | None] = []
        monkeypatch.setattr(trimming, "plan_trim", self.plan)
        monkeypatch.setattr(trimming, "trim", self.trim)

    async def plan(self, cluster: ClusterHandle, partition_id: int, first: int, archived_end: ArchivedEnd) -> Plan:
        self.wanted.append(first)
        self.ends.append(await archived_end(partition_id))
        return Plan(partition_id, 5, max(first, 5), self.needs)

    async def trim(self, cluster: ClusterHandle, plan: Plan, forced: list[str]) -> int:
        if {need.name for need in plan.needs} - set(forced):
            raise WaltzError("somebody needs it")
        self.trimmed.append((plan, forced))
        return plan.first


@pytest.fixture
def operations(monkeypatch: pytest.MonkeyPatch) -> Operations:
    return Operations(monkeypatch)


async def trim(session: Session, *arguments: str) -> None:
    words = ["partition", "trim", "-p", "1", *arguments, "-c", "unused.yml"]
    await trimming._trim(parser().parse_args(words), session)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30d", timedelta(days=30)),
        ("12h", timedelta(hours=12)),
        ("2w", timedelta(weeks=2)),
        ("0s", timedelta()),
        ("90m", timedelta(minutes=90)),
    ],
)
def test_ages(text: str, expected: timedelta) -> None:
    assert age(text) == expected


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1.5d", "1y", "1 d", "1d2h", "1234567890d"])
def test_what_is_no_age(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="not an age"):
        age(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1", 1), ("1000000", 1_000_000), ("3K", 3072), ("64M", 64 << 20), ("500G", 500 << 30), ("2T", 2 << 40)],
)
def test_sizes(text: str, expected: int) -> None:
    assert size(text) == expected


@pytest.mark.parametrize("text", ["", "0", "0G", "G", "-1G", "1.5G", "1k", "1 G", "1GB", "1" * 16])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="not a size"):
        size(text)


@pytest.mark.parametrize(("begin", "mark", "expected"), [(30, 40, 30), (30, 20, 21)])
async def test_a_size_is_turned_into_a_transaction_up_to_the_mark(
    session: Session, operations: Operations, monkeypatch: pytest.MonkeyPatch, begin: int, mark: int, expected: int
) -> None:
    asked: list[tuple[int, int]] = []

    async def first_within(_cluster: ClusterHandle, partition_id: int, size_bytes: int) -> int:
        asked.append((partition_id, size_bytes))
        return begin

    async def low_water_mark(_cluster: ClusterHandle, _partition_id: int) -> int:
        return mark

    monkeypatch.setattr(trimming, "first_within", first_within)
    monkeypatch.setattr(trimming, "low_water_mark", low_water_mark)
    await trim(session, "--keep-bytes", "2K", "--dry-run")
    assert (asked, operations.wanted) == ([(1, 2048)], [expected])


async def test_a_dry_run_only_says_what_it_would_do(
    session: Session, operations: Operations, capsys: pytest.CaptureFixture[str]
) -> None:
    operations.needs = (Need("cursor a", 7, "it stands at 7"),)
    await trim(session, "--before", "20", "--dry-run")
    assert capsys.readouterr().out.splitlines() == [
        "partition 1: transactions 5 to 19 would be trimmed",
        "  cursor a: it stands at 7",
    ]
    await trim(session, "--before", "20", "--dry-run", "--json")
    assert json.loads(capsys.readouterr().out) == {
        "partition": 1,
        "trim_point": 5,
        "wanted": 20,
        "needed": [{"name": "cursor a", "first": 7, "reason": "it stands at 7"}],
    }
    assert operations.trimmed == []


async def test_nothing_is_done_below_the_present_point(
    session: Session, operations: Operations, capsys: pytest.CaptureFixture[str]
) -> None:
    await trim(session, "--before", "3")
    assert capsys.readouterr().out == "partition 1 begins with transaction 5: nothing is to be trimmed\n"
    assert operations.trimmed == []


async def test_it_asks_unless_told_not_to(
    session: Session, operations: Operations, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    with pytest.raises(WaltzError, match="no terminal for a question; give --yes"):
        await trim(session, "--before", "20")
    assert operations.trimmed == []
    await trim(session, "--before", "20", "--yes")
    assert capsys.readouterr().out.startswith("partition 1 begins with transaction 20 now\n")
    await trim(session, "--before", "20", "--yes", "--json")
    assert json.loads(capsys.readouterr().out)["trim_point"] == 20
    assert len(operations.trimmed) == 2


async def test_a_refusal_needs_no_question(session: Session, operations: Operations) -> None:
    operations.needs = (Need("cursor a", 7, "it stands at 7"),)
    with pytest.raises(WaltzError, match="somebody needs it"):
        await trim(session, "--before", "20")
    await trim(session, "--before", "20", "--force", "cursor a", "--yes")
    assert operations.trimmed[0][1] == ["cursor a"]


async def test_an_age_is_turned_into_a_transaction(
    session: Session, operations: Operations, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[datetime] = []

    class Client:
        async def __aenter__(self) -> "Client":
            return self

        async def __aexit__(self, *_: object) -> None: ...

        async def offset_at(self, partition_id: int, at: datetime) -> int:
            asked.append(at)
            return 41

    monkeypatch.setattr(trimming, "client_of", lambda _session: Client())
    before = datetime.now(UTC)
    await trim(session, "--older-than", "30d", "--dry-run")
    assert operations.wanted == [42]
    assert before - timedelta(days=30) <= asked[0] <= datetime.now(UTC) - timedelta(days=30)


async def test_the_end_of_the_archive_is_read(
    session: Session, operations: Operations, tmp_path_factory: pytest.TempPathFactory
) -> None:
    await trim(session, "--before", "20", "--dry-run")
    await write_archive_url(session.zookeeper, ROOT, tmp_path_factory.mktemp("archive").as_uri())
    await trim(session, "--before", "20", "--dry-run")
    assert operations.ends == [None, 0]


async def test_features_are_shown_and_changed(
    session: Session, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def features(*arguments: str) -> None:
        words = ["cluster", "features", *arguments, "-c", "unused.yml"]
        await trimming._features(parser().parse_args(words), session)

    await features()
    await features("--enable", "trim")  # no node is registered
    await features("--json")
    await features("--disable", "trim")
    first, second, *rest = capsys.readouterr().out.splitlines()
    assert (first, second, rest[-1]) == ("features: none", "features: trim", "features: none")
    assert json.loads("".join(rest[:-1])) == {"features": ["trim"]}
