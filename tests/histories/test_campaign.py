"""A short campaign with real processes."""

import json
import sys
from pathlib import Path

import pytest

from tests.histories.__main__ import FAULTS as FAULTS_OF_LONG_ONES
from tests.histories.__main__ import LONG, least_faults, report
from tests.histories.campaign import FENCES, LEDGER, LISTS, REGISTERS, Campaign, Options, line_of
from tests.histories.events import read
from tests.histories.faults import DECK, Fault, Kind
from tests.histories.judge import collect, violations
from tests.histories.planted import BUGS, command
from waltz.common.records import Record
from waltz.table.envelope import Batch, Row, SweepMark, encode

SEED = 387
"""Of the first faults: a cut, a view node, a server and a client that are killed, and a move."""
FAULTS = 5
PAUSE_S = 1.0


@pytest.mark.integration
@pytest.mark.deep
@pytest.mark.timeout(300)
async def test_a_short_campaign_has_a_possible_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    campaign = Campaign(
        Options(operations=1_000, seed=SEED, clients=2, views=1, faults=FAULTS, pause_s=PAUSE_S), tmp_path
    )
    await campaign.run()
    history = collect(read(campaign.history))
    assert violations(history) == []
    assert len(history.operations) >= 1_000
    assert len(history.faults) >= FAULTS
    assert {line.partition for line in history.owners} == {REGISTERS, LISTS, FENCES, *LEDGER}
    assert all(history.records[partition_id] for partition_id in (REGISTERS, LISTS, FENCES, *LEDGER))
    report(campaign.history)  # on a fast machine there are so many operations that it misses rare states
    assert "no violation" in capsys.readouterr().out


@pytest.mark.integration
@pytest.mark.deep
@pytest.mark.timeout(300)
async def test_a_campaign_finds_planted_bugs(tmp_path: Path) -> None:
    """Views that answer fresh reads from the state that they have, and consumers that commit effects first."""
    cuts = [Fault(0.5, Kind.CUT, ("view-1", server), 2.0) for server in ("server-1", "server-2")]
    strikes = [Fault(0.5 + number, Kind.STRIKE, (f"client-{number}",), 0.0) for number in (1, 2)]
    plan = [*cuts, *strikes]
    options = Options(operations=500, seed=SEED, clients=2, views=1, faults=len(plan), planted=",".join(BUGS))
    campaign = Campaign(options, tmp_path, plan)
    await campaign.run()
    found = {each.split(":")[0] for each in violations(collect(read(campaign.history)))}
    assert found >= {"views", "ledger", "registers"}


def test_a_long_campaign_has_faults() -> None:
    assert least_faults(LONG - 1) == 0
    assert least_faults(LONG) == FAULTS_OF_LONG_ONES > 2 * len(DECK)


def test_bugs_are_planted_where_there_are_any() -> None:
    assert command("module", ["a"], "") == [sys.executable, "-m", "module", "a"]
    assert command("module", ["a"], "x,y") == [sys.executable, "-m", "tests.histories.planted", "x,y", "module", "a"]


def record(data: bytes) -> Record:
    return Record(7, bytes(16), 0, data, 0)


def rows(*values: bytes | None) -> bytes:
    return encode(Batch(1, [Row(b"", b"k%d" % number, value) for number, value in enumerate(values)]))


def test_records_name_their_operations() -> None:
    assert line_of(FENCES, record(b"12 3")).model_dump(exclude_defaults=True) == {
        "partition": FENCES,
        "transaction": 7,
        "op": 12,
        "session": 3,
    }
    assert line_of(LEDGER[1], record(b"12")).op == 12
    registers = line_of(REGISTERS, record(rows(b"12.0", None, b"12.1")))
    assert (registers.op, registers.rows) == (12, {"k0": ("12.0", 1), "k1": (None, 1), "k2": ("12.1", 1)})
    assert line_of(REGISTERS, record(rows(None))).op is None
    lists = line_of(LISTS, record(rows(json.dumps(["1.0", "12.0"]).encode(), b'["12.1"]')))
    assert (lists.op, lists.lists) == (12, {"k0": ["1.0", "12.0"], "k1": ["12.1"]})
    for partition_id, data in (
        (REGISTERS, rows(b"12.0", b"13.0")),
        (REGISTERS, encode(SweepMark(1))),
        (FENCES, b"12"),
        (LEDGER[0], b""),
    ):
        with pytest.raises(ValueError, match=r".+"):
            line_of(partition_id, record(data))
