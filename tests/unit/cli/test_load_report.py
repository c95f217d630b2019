"""Percentiles against their definition, and what is written of a load."""

import json
import xml.etree.ElementTree as ElementTree
from array import array
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.cli.load import Load, Measured
from waltz.cli.load_report import PERCENTS, check_report, lines_of, numbers, percentile, rates, write_report
from waltz.common.errors import WaltzError

LOAD = Load(4, 100, 2, 8, 0.0, 0)
MEASURED = Measured(array("d", [0.004, 0.001, 0.002, 0.003]), array("d", [0.1, 0.2, 1.5, 2.1]), 2.5, 2)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=3000), st.sampled_from(PERCENTS))
def test_a_percentile_is_the_smallest_value_that_enough_are_not_above(values: list[int], percent: float) -> None:
    found = percentile(sorted(values), percent)
    share = Fraction(str(percent)) / 100
    enough = [each for each in values if sum(other <= each for other in values) >= share * len(values)]
    assert found == min(enough)


@given(st.lists(st.floats(0, 9.99), max_size=50))
def test_every_transaction_is_in_one_second(committed_s: list[float]) -> None:
    counts = rates(committed_s, 9.99)
    assert len(counts) == 10
    assert counts == [sum(int(each) == second for each in committed_s) for second in range(10)]


def test_numbers_and_lines() -> None:
    found = numbers(LOAD, 1, MEASURED)
    assert found["transactions_per_s"] == 4 / 2.5
    assert found["megabytes"] == 0.0004
    assert found["retries_per_transaction"] == 0.5
    assert found["committed_per_s"] == [2, 1, 1]
    latencies = found["latency_ms"]
    assert isinstance(latencies, dict)
    assert (latencies["p50"], latencies["p75"], latencies["p99.9"], latencies["p100"]) == (2.0, 3.0, 4.0, 4.0)
    lines = lines_of(found)
    assert lines[0] == "1 producers, 2 partitions, 100 bytes, closed loop, 8 in flight"
    assert lines[1].startswith("Appended 4 transactions, 0.00 MB, in 2.50 s")
    assert "p50 2.000" in lines[-1]
    assert "5 ms apart" in lines_of(numbers(LOAD._replace(interval_s=0.005), 1, MEASURED))[0]


def test_a_report(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    directory = tmp_path / "new" / "report"
    check_report(directory)
    page, picture, document = write_report(directory, numbers(LOAD, 1, MEASURED), MEASURED)
    assert json.loads(document.read_text())["transactions"] == 4
    assert "p50 2.000" in page.read_text()
    assert picture.name in page.read_text()
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")


def test_a_report_that_could_not_be_drawn_is_refused_before_the_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    check_report(None)
    with pytest.raises(WaltzError, match="a report needs matplotlib"):
        check_report(tmp_path / "report")
    assert not (tmp_path / "report").exists()
