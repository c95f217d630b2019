"""Plots of a report. What is drawn is chosen here without drawing; matplotlib comes with the extra ``demo``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.cluster.comparison import measured_by
from benchmarks.cluster.curves import AXES, Curve, curves_of
from benchmarks.cluster.report import LEAN, OTHER, WALTZ, Report
from benchmarks.cluster.scenarios import Scenario
from benchmarks.cluster.summary import P50, P99, RATE, Rounds

Point = tuple[float, Rounds]


class Series(NamedTuple):
    """A line with the spread of the rounds around it."""

    name: str
    points: list[Point]


class Panel(NamedTuple):
    """One diagram."""

    title: str
    x: str
    series: list[Series]
    logarithmic: bool


def append_panels(report: Report) -> list[Panel]:
    """Rate, latency and processor time over what is in flight: plain and TLS, and the lean pipeline beside."""
    panels = []
    for metric, title in (
        (RATE, "transactions/s"),
        (P50, "p50, ms"),
        (P99, "p99, ms"),
        ("cpu_us.client", "client CPU per transaction, µs"),
        ("cpu_us.server", "server CPU per transaction, µs"),
        ("cpu_us.storage", "CPU of each storage per transaction, µs"),
    ):
        series = []
        for contestant in (WALTZ, OTHER, LEAN):
            measured = measured_by(report, contestant)
            for tls in (False, True):
                points: list[Point] = [
                    (scenario.in_flight, metrics[metric])
                    for scenario, metrics in sorted(measured.items())
                    if scenario == Scenario(in_flight=scenario.in_flight, tls=tls) and metric in metrics
                ]
                if len(points) > 1:
                    series.append(Series(f"{contestant}, {'TLS' if tls else 'plain'}", points))
        if series:
            panels.append(Panel(title, "in flight", series, logarithmic=True))
    return panels


def curve_panels(report: Report) -> list[Panel]:
    """Over each axis latency and processor time, as a multiple of the first point."""
    curves: dict[str, list[Curve]] = {}
    for curve in curves_of(measured_by(report, WALTZ)):
        curves.setdefault(curve.axis, []).append(curve)
    return [
        Panel(f"over {AXES[axis]}, first point = 1", AXES[axis], [_relative(each) for each in those], logarithmic=False)
        for axis, those in curves.items()
    ]


def _relative(curve: Curve) -> Series:
    first = curve.points[0][1].median or 1.0
    points: list[Point] = [
        (x, Rounds(each.median / first, each.low / first, each.high / first, each.rounds)) for x, each in curve.points
    ]
    return Series(curve.metric, points)


def draw(report: Report, directory: Path) -> list[Path]:
    """Draw what there is into PNG files; returns them."""
    pictures: Mapping[str, list[Panel]] = {"bench-appends": append_panels(report), "bench-curves": curve_panels(report)}
    paths = []
    for name, panels in pictures.items():
        if panels:
            paths.append(directory / f"{name}.png")
            _draw(panels, paths[-1])
    return paths


def _draw(panels: Sequence[Panel], path: Path) -> None:
    from matplotlib.figure import Figure  # takes a second to import, and is not needed to measure

    columns = 2 if len(panels) == 4 else min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(5 * columns, 3.6 * rows), layout="constrained")
    for number, panel in enumerate(panels, 1):
        axes = figure.add_subplot(rows, columns, number)
        for series in panel.series:
            places = [x for x, _ in series.points]
            (line,) = axes.plot(places, [each.median for _, each in series.points], marker="o", label=series.name)
            lows, highs = [each.low for _, each in series.points], [each.high for _, each in series.points]
            axes.fill_between(places, lows, highs, alpha=0.15, color=line.get_color())
        if panel.logarithmic:
            axes.set_xscale("log")
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.set_title(panel.title)
        axes.set_xlabel(panel.x)
        axes.grid(visible=True, alpha=0.3)
        if number == 1 or not panel.logarithmic:
            axes.legend(fontsize="small", framealpha=0.6)
    figure.savefig(path, dpi=110)
