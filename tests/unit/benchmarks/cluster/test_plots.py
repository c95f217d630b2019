"""What is drawn."""

from pathlib import Path

import pytest

from benchmarks.cluster.plots import append_panels, curve_panels, draw
from benchmarks.cluster.report import LEAN, WALTZ, Report, Result
from benchmarks.cluster.scenarios import Scenario, quick, readers
from benchmarks.cluster.summary import P50, RATE

APPENDS = Report(
    {}, {}, {}, [Result(each, {WALTZ: [{RATE: each.in_flight}], LEAN: [{RATE: 9}]}) for each in reversed(quick())]
)
CURVES = Report({}, {}, {}, [Result(each, {WALTZ: [{P50: 2 + each.readers}]}) for each in readers()])


def test_a_line_for_each_contestant_and_transport_in_ascending_order() -> None:
    (panel,) = append_panels(APPENDS)
    assert [series.name for series in panel.series] == ["waltz, plain", "waltz, TLS", "lean, plain", "lean, TLS"]
    for series in panel.series:
        assert [x for x, _ in series.points] == [1, 16, 64, 256, 2000]


def test_curves_begin_with_one() -> None:
    (panel,) = curve_panels(CURVES)
    assert panel.x == "readers at the tip"
    ((name, points),) = panel.series
    assert name == P50
    assert [(x, each.median) for x, each in points] == [(1, 1), (10, 4), (50, 52 / 3), (100, 34), (200, 202 / 3)]


def test_single_scenarios_are_not_drawn(tmp_path: Path) -> None:
    report = Report({}, {}, {}, [Result(Scenario(), {WALTZ: [{RATE: 1}]})])
    assert draw(report, tmp_path) == []


def test_pictures_are_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (path,) = draw(CURVES, tmp_path)
    assert path == tmp_path / "bench-curves.png"
    assert path.read_bytes().startswith(b"\x89PNG")
