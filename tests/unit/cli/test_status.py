"""The screen of `waltz status` and `waltz top`: what it shows, and that it fits."""

import argparse
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.operations.survey.nodes import OURS, running
from waltz.cli import status
from waltz.cli.main import parser
from waltz.common.errors import WaltzError
from waltz.common.replica_states import Remedy
from waltz.common.storage_health import Ailment
from waltz.operations.survey.cluster_state import (
    ClusterState,
    SurveyedPartition,
    SurveyedServer,
    SurveyedStorage,
)
from waltz.operations.survey.replica_judgement import SurveyedReplica

WELL = tuple(SurveyedReplica(f"storage-{each}:6000", "current", 0) for each in range(3))
BAD = (
    *WELL[:1],
    SurveyedReplica("storage-1:6000", "lagging", 7),
    SurveyedReplica("storage-2:6000", "behind", 900, lag_s=65.25),
)


FULL = Ailment("the disk is almost full", (), Remedy("make room", "disk-full"))


def partition(partition_id: int, *, well: bool = True) -> SurveyedPartition:
    problems = () if well else ("REPLICA_RECOVERY_STATUS",)
    return SurveyedPartition(partition_id, 1, "server-1:7000", 3, 9, 10, 41, 2.0, WELL if well else BAD, problems)


def cluster(partitions: list[SurveyedPartition]) -> ClusterState:
    servers = (SurveyedServer(1, "server-1:7000", 5, 2, ()), SurveyedServer(2, "server-2:7000", None, 0, (1, 2)))
    storages = (
        SurveyedStorage("storage-0:6000", True, 3, 4, ailments=(FULL,)),
        SurveyedStorage("storage-1:6000", False, 0, 0),
    )
    return ClusterState("c", "/c", 0.0, servers, storages, tuple(partitions))


def test_everything_is_on_it() -> None:
    nobody = SurveyedPartition(2, None, None, None, None, None, None, None, (), ("NO_REPLICA",))
    late = partition(1, well=False)._replace(feed_lag=12, feed_lag_s=1.5)
    lines = status.lines_of(cluster([partition(0)._replace(feed_lag=0, feed_lag_s=0.0), late, nobody]), None)
    assert lines[0] == "cluster c at /c: 3 partitions, 2 of them not well; 3 nodes not well, 4 transactions/s"
    assert lines[1:7] == [
        "critical: partition 2 is assigned to no storage",
        "  do: waltz zookeeper assign-partition, then waltz storage sync-partitions (docs/runbook.md#add-storage)",
        "warning: server server-2:7000 does not answer",
        "  do: start it; meanwhile the other servers take its partitions over (docs/runbook.md#server-down)",
        "warning: storage storage-0:6000: the disk is almost full",
        "  do: make room (docs/runbook.md#disk-full)",
    ]
    text = "\n".join(" ".join(line.split()) for line in lines)
    assert "server-2:7000 2 no answer 0 1-2" in text
    assert "storage-0:6000 3 of 4 partitions online; the disk is almost full" in text
    assert "storage-1:6000 no answer" in text
    assert "0 server-1:7000 3 9 10 41 2 0 3 of 3 current ok" in text
    lagging = "1 of 3 current, storage-1:6000 lagging -7, storage-2:6000 behind -900 (65.2 s) replica not current"
    assert f"1 server-1:7000 3 9 10 41 2 -12 (1.5 s) {lagging}" in text
    assert "2 - - - - - - - 0 of 0 current no replica" in text


def test_a_storage_of_the_original_tells_nothing_of_its_health() -> None:
    state = cluster([partition(0)])
    storages = (SurveyedStorage("a:1", True, 4, 4), SurveyedStorage("b:1", True, 4, 4, ailments=()))
    lines = status.lines_of(state._replace(storages=storages), None)
    assert [line for line in lines if "online" in line] == [
        "a:1      4 of 4 partitions online; health not told",
        "b:1      4 of 4 partitions online",
    ]


def test_partitions_in_trouble_come_before_others_that_are_not_well() -> None:
    trouble = partition(2)._replace(problems=("PARTITION_QUORUM_STATUS",))
    lines = status.lines_of(cluster([partition(0), partition(1, well=False), trouble]), None)
    begin = next(number for number, line in enumerate(lines) if line.startswith("PARTITION"))
    assert [line.split()[0] for line in lines[begin + 1 :]] == ["2", "1", "0"]


def test_a_narrow_terminal_leaves_out_what_is_needed_least() -> None:
    def names(width: int | None) -> list[str]:
        return next(line for line in status.lines_of(cluster([partition(0)]), width) if line.startswith("PART")).split()

    assert len(names(None)) == len(" ".join(status.COLUMNS).split())
    assert "GENERATION" not in names(90)
    assert names(90)[4:] == ["PER", "S", "CLIENT", "LAG", "REPLICAS", "HEALTH"]
    assert names(72) == ["PARTITION", "OWNER", "LAST", "ID", "PER", "S", "REPLICAS", "HEALTH"]


@given(st.lists(st.booleans(), min_size=1, max_size=60), st.integers(14, 40), st.integers(80, 200))
def test_it_fits_and_the_bad_ones_come_first(well: list[bool], height: int, width: int) -> None:
    partitions = [partition(number, well=each) for number, each in enumerate(well)]
    lines = status.lines_of(cluster(partitions), width, height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    begin = next(number for number, line in enumerate(lines) if line.startswith("PARTITION"))
    ids = [int(line.split()[0]) for line in lines[begin + 1 :] if not line.startswith("and ")]
    in_order = sorted(range(len(well)), key=lambda number: well[number])
    assert ids == in_order[: len(ids)]
    if len(ids) < len(well):
        assert lines[-1] == f"and {len(well) - len(ids)} more"


def options(*arguments: str) -> argparse.Namespace:
    return parser().parse_args([*arguments, "-c", "unused.yml"])


async def test_the_exit_code_says_whether_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    async with running(OURS, OURS) as nodes:
        await status._status(options("status", "--exit-code", "--interval", "0"), nodes.session)
        assert "2 partitions, all well" in capsys.readouterr().out
        nodes.storages[0].status[1] = nodes.storages[1].status[1] = False
        await status._status(options("status", "--interval", "0", "-p", "0"), nodes.session)
        await status._status(options("status", "--interval", "0"), nodes.session)
        with pytest.raises(WaltzError, match="^1 of 2 partitions not well$"):
            await status._status(options("status", "--exit-code", "--interval", "0"), nodes.session)
        with pytest.raises(WaltzError, match="there is no partition 2; the cluster has 2"):
            await status._status(options("status", "-p", "0-2"), nodes.session)


async def test_top_needs_a_terminal_and_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(OURS, OURS) as nodes:
        with pytest.raises(WaltzError, match="waltz top needs (a terminal|rich)"):
            await status._top(options("top"), nodes.session)
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
        monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
        with pytest.raises(WaltzError, match="waltz top needs rich: .*extra 'tools'"):
            await status._top(options("top"), nodes.session)
