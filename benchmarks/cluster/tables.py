"""Tables of a report, in Markdown. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from benchmarks.cluster.comparison import Measured, measured_by, number
from benchmarks.cluster.curves import AXES, Curve, curves_of
from benchmarks.cluster.report import LEAN, OTHER, WALTZ, Report
from benchmarks.cluster.scenarios import Scenario
from benchmarks.cluster.summary import P50, P50_RATIO, P99, P999, RATE, SHARE, Rounds, more_is_better

ROLES = ("client", "server", "storage")
NONE = "-"


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the first column is text, the others are numbers."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def tables(report: Report) -> dict[str, str]:
    """All tables that the report has something for, by title."""
    found: dict[str, str] = {}
    for name in (WALTZ, OTHER):
        measured = measured_by(report, name)
        suffix = f" ({name})" if OTHER in report.contestants else ""
        parts = {
            "Appends": appends(_where(measured, lambda each: not each.reads and not _on_a_curve(each)), report),
            "Cost of a batch": batches(_where(measured, lambda each: not each.reads and not _on_a_curve(each))),
            "Readers": reading(_where(measured, lambda each: bool(each.reads or each.readers or each.behind))),
            "Curves": curve_table(curves_of(measured)),
            "System calls per batch": calls(measured),
        }
        found |= {title + suffix: table for title, table in parts.items() if table}
    return found


def appends(measured: Measured, report: Report) -> str:
    """Rate, latency, shares, processor time, and whether the replicas were in step."""
    lean = measured_by(report, LEAN)
    header = ["", "transactions/s", "lean", "share", "of one partition", "p50 ms", "p99", "p99.9", "p50 by lean"]
    header += [*(f"{role} µs" for role in ROLES), "lag", "growth MiB"]
    rows = []
    for scenario, metrics in measured.items():
        cells = [both(metrics, RATE), median(lean.get(scenario, {}), RATE), percent(metrics, SHARE)]
        cells.append(of_one_partition(measured, scenario))
        cells += [both(metrics, P50), median(metrics, P99), median(metrics, P999), median(metrics, P50_RATIO)]
        cells += [both(metrics, f"cpu_us.{role}") for role in ROLES]
        cells += [highest(metrics, "lag"), "/".join(median(metrics, f"growth_mib.{role}") for role in ROLES)]
        rows.append([scenario.label, *cells])
    return markdown(header, rows) if rows else ""


def of_one_partition(measured: Measured, scenario: Scenario) -> str:
    """The median rate of several partitions as a part of the rate of one partition with as many in flight, which is
    the rate without a journal where no other was measured."""
    like_it = scenario._replace(partitions=1)
    one = measured.get(like_it) or measured.get(like_it._replace(journal=False), {})
    if scenario.partitions == 1 or scenario.rate or RATE not in one:
        return NONE
    return f"{measured[scenario][RATE].median / one[RATE].median * 100:.0f} %"


def batches(measured: Measured) -> str:
    """What is done how often, and what one time costs."""
    header = ["", "batches/s", "transactions per batch", *(f"{role} switches" for role in ROLES)]
    header += [f"{role} µs" for role in ROLES]
    rows = []
    for scenario, metrics in measured.items():
        if "batches_per_s" not in metrics:
            continue
        size = metrics["transactions_per_batch"].median
        cells = [median(metrics, "batches_per_s"), median(metrics, "transactions_per_batch")]
        cells += [median(metrics, f"switches_per_batch.{role}") for role in ROLES]
        cells += [
            number(metrics[name].median * size) if (name := f"cpu_us.{role}") in metrics else NONE for role in ROLES
        ]
        rows.append([scenario.label, *cells])
    return markdown(header, rows) if rows else ""


def reading(measured: Measured) -> str:
    """What readers get, and what it costs the others."""
    header = ["", "read or fed/s", "tip p50 ms", "tip p99", "appends/s", "append p50 ms", *(f"{r} µs" for r in ROLES)]
    header.append("readers, % of a core")
    rows = []
    for scenario, metrics in measured.items():
        reads = scenario.reads
        cells = [median(metrics, RATE if reads else "fed_per_s"), median(metrics, "tip_p50_ms")]
        cells += [median(metrics, "tip_p99_ms"), NONE if reads else median(metrics, RATE), median(metrics, P50)]
        cells += [both(metrics, f"cpu_us.{role}") for role in ROLES]
        rows.append([scenario.label, *cells, median(metrics, "cpu_percent.audience")])
    return markdown(header, rows) if rows else ""


def curve_table(curves: Sequence[Curve]) -> str:
    """Each curve's ends, and whether it is flat."""
    header = ["", "from", "to", "first", "last", "last/first", "flat"]
    rows = [
        [
            f"{curve.metric} over {AXES[curve.axis]}",
            f"{curve.points[0][0]:,}",
            f"{curve.points[-1][0]:,}",
            number(curve.points[0][1].median),
            number(curve.points[-1][1].median),
            f"{curve.growth:.2f}",
            "yes" if curve.flat else "**no**",
        ]
        for curve in curves
    ]
    return markdown(header, rows) if rows else ""


def calls(measured: Measured) -> str:
    """Only where system calls were counted: those that each kind of process makes at least once in ten batches."""
    rows = []
    for scenario, metrics in measured.items():
        for role in ROLES:
            total = metrics.get(f"calls_per_batch.{role}")
            if total is None:
                continue
            prefix = f"call_per_batch.{role}."
            each = [(rounds.median, name) for name, rounds in metrics.items() if name.startswith(prefix)]
            often = [(name.removeprefix(prefix), count) for count, name in sorted(each, reverse=True) if count >= 0.1]
            names = ", ".join(f"{name} {number(count)}" for name, count in often)
            rows.append([f"{scenario.label}: {role}", number(total.median), names])
    return markdown(["", "all", "by name"], rows) if rows else ""


def _where(measured: Measured, wanted: Callable[[Scenario], bool]) -> Measured:
    return {scenario: metrics for scenario, metrics in measured.items() if wanted(scenario)}


def _on_a_curve(scenario: Scenario) -> bool:
    return not scenario.fits_lean


def median(metrics: Mapping[str, Rounds], name: str) -> str:
    """The median over the rounds."""
    return number(metrics[name].median) if name in metrics else NONE


def both(metrics: Mapping[str, Rounds], name: str) -> str:
    """The median, and the best round in brackets."""
    rounds = metrics.get(name)
    if rounds is None:
        return NONE
    return f"{number(rounds.median)} ({number(rounds.high if more_is_better(name) else rounds.low)})"


def highest(metrics: Mapping[str, Rounds], name: str) -> str:
    """The highest of all rounds."""
    return number(metrics[name].high) if name in metrics else NONE


def percent(metrics: Mapping[str, Rounds], name: str) -> str:
    """The median as a percentage."""
    return f"{metrics[name].median * 100:.0f} %" if name in metrics else NONE
