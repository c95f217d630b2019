"""The measurements of a load, as numbers and as a plot."""

import importlib.util
import json
import math
from collections.abc import Sequence
from pathlib import Path

from waltz.cli.load import Load, Measured
from waltz.common.errors import WaltzError
from waltz.common.metrics.registry import Json
from waltz.common.version import with_extra

PERCENTS = (50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99, 100.0)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest of the ``ordered`` values (not empty) that is at least as large as ``percent`` of all values."""
    # Multiply before dividing: in floating point 99.9 / 100 * 1000 is above 999.
    return ordered[max(0, math.ceil(round(percent * len(ordered) / 100, 6)) - 1)]


def rates(committed_s: Sequence[float], duration_s: float) -> list[int]:
    """The number of commits in each second; the last second may be a partial one."""
    counts = [0] * max(1, math.ceil(duration_s))
    for each in committed_s:
        counts[min(int(each), len(counts) - 1)] += 1
    return counts


def numbers(load: Load, producers: int, measured: Measured) -> dict[str, Json]:
    """The numbers, by names that end with their units. Percentiles are exact: every transaction counts."""
    ordered = sorted(measured.latencies_s)
    count, duration_s = len(ordered), measured.duration_s
    return {
        "loop": "open" if load.interval_s else "closed",
        "producers": producers,
        "partitions": load.partitions,
        "size_bytes": load.size_bytes,
        "in_flight": None if load.interval_s else load.in_flight,
        "interval_ms": load.interval_s * 1e3 if load.interval_s else None,
        "lock_pool_size": load.lock_pool_size,
        "transactions": count,
        "megabytes": count * load.size_bytes / 1e6,
        "duration_s": duration_s,
        "transactions_per_s": count / duration_s,
        "megabytes_per_s": count * load.size_bytes / 1e6 / duration_s,
        "retries_per_transaction": measured.retries / count,
        "latency_mean_ms": sum(ordered) / count * 1e3,
        "latency_ms": {f"p{percent:g}": percentile(ordered, percent) * 1e3 for percent in PERCENTS},
        "committed_per_s": list(rates(measured.committed_s, duration_s)),
    }


def lines_of(found: dict[str, Json]) -> list[str]:
    """The numbers as lines of text."""
    latencies = found["latency_ms"]
    assert isinstance(latencies, dict)
    how = f"{found['in_flight']} in flight" if found["loop"] == "closed" else f"{found['interval_ms']:g} ms apart"
    shape = f"{found['producers']} producers, {found['partitions']} partitions, {found['size_bytes']} bytes"
    return [
        f"{shape}, {found['loop']} loop, {how}",
        f"Appended {found['transactions']} transactions, {found['megabytes']:.2f} MB, in {found['duration_s']:.2f} s",
        f"  {found['transactions_per_s']:.1f} transactions/s, {found['megabytes_per_s']:.2f} MB/s",
        f"  {found['retries_per_transaction']:.3f} retries per transaction",
        f"  {found['latency_mean_ms']:.3f} ms per transaction",
        "Latency in ms: " + ", ".join(f"{name} {value:.3f}" for name, value in latencies.items()),
    ]


def check_report(directory: Path | None) -> None:
    """Raise ``WaltzError`` unless the report can be written: before the load runs, not after it."""
    if directory is None:
        return
    if importlib.util.find_spec("matplotlib") is None:
        raise WaltzError(f"a report needs matplotlib: {with_extra('tools')}")
    directory.mkdir(parents=True, exist_ok=True)


def write_report(directory: Path, found: dict[str, Json], measured: Measured) -> list[Path]:
    """Write the numbers, the lines, and a picture of rate and latencies; returns the files."""
    document, page, picture = (directory / name for name in ("report.json", "report.md", "report.svg"))
    document.write_text(json.dumps(found, indent=2) + "\n")
    lines = "\n".join(lines_of(found))
    page.write_text(f"# Appends under load\n\n```\n{lines}\n```\n\n![Rate and latencies]({picture.name})\n")
    _draw(sorted(measured.latencies_s), measured, picture)
    return [page, picture, document]


def _draw(ordered: Sequence[float], measured: Measured, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.6), layout="constrained")
    over_time = figure.add_subplot(1, 2, 1)
    counts = rates(measured.committed_s, measured.duration_s)
    over_time.stairs(counts, range(len(counts) + 1))
    over_time.set(title="transactions committed in each second", xlabel="s", ylim=(0, None))
    tail = figure.add_subplot(1, 2, 2)
    count = len(ordered)
    # Equal steps towards 100 %: each third of a decade, down to one transaction.
    steps = [10 ** (step / 8) for step in range(1 + int(8 * math.log10(count)))]
    tail.plot(steps, [percentile(ordered, 100 * (1 - 1 / step)) * 1e3 for step in steps])
    tail.set(title="latency, ms", xlabel="one transaction in this number is slower", xscale="log", yscale="log")
    for axes in (over_time, tail):
        axes.grid(visible=True, alpha=0.3)
    figure.savefig(path)
