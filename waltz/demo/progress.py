"""Throughput and lag of a streaming query by its progress reports, and their plot."""

import datetime as dt
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress


class Sample(NamedTuple):
    """One micro-batch that had rows."""

    run: str
    """Id of the run of the query; a restart begins another run."""
    began_s: float
    """Seconds of the epoch."""
    seconds: float
    rows: int
    lag: int
    """Transactions that were committed and not read yet when it had ended."""


def samples(progress: Iterable["StreamingQueryProgress"], committed: int) -> list[Sample]:
    """The micro-batches of one run of a query over a log of so many transactions.

    With the trigger "available now" Spark does not say where the log ends; then it ends with those.
    """
    return [
        Sample(
            run=str(one.runId),
            began_s=dt.datetime.fromisoformat(one.timestamp).timestamp(),
            seconds=one.durationMs["triggerExecution"] / 1000,
            rows=one.numInputRows,
            lag=_total(one.sources[0].latestOffset, committed) - _total(one.sources[0].endOffset, committed),
        )
        for one in progress
        if one.numInputRows
    ]


def _total(offset: str | None, otherwise: int) -> int:
    """Transactions below an offset, which is the next id of every partition."""
    places = json.loads(offset or "null")
    return otherwise if places is None else sum(place for key, place in places.items() if key.isdigit())


def draw(found: Mapping[str, Sequence[Sample]], path: Path) -> bool:
    """Plot throughput and lag of several queries over time, into a PNG file; false where matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    start_s = min(sample.began_s for taken in found.values() for sample in taken)
    figure = Figure(figsize=(8, 5), layout="constrained")
    throughput, lag = figure.subplots(2, 1, sharex=True)
    for number, (name, taken) in enumerate(found.items()):
        color = f"C{number}"
        places = [sample.began_s + sample.seconds - start_s for sample in taken]
        rates = [sample.rows / sample.seconds for sample in taken]
        widths = [-sample.seconds for sample in taken]  # a bar ends where its micro-batch does
        throughput.bar(places, rates, widths, align="edge", color=color, alpha=0.5, edgecolor=color)
        lag.step(places, [sample.lag for sample in taken], where="post", marker="o", color=color, label=name)
        for restart_s in _restarts_s(taken):
            throughput.axvline(restart_s - start_s, color=color, linestyle="--")
            lag.axvline(restart_s - start_s, color=color, linestyle="--", label=f"{name}, started again")
    for axes in (throughput, lag):
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    throughput.set_ylabel("transactions/s\nper micro-batch")
    lag.set_ylabel("lag\n(transactions)")
    lag.set_xlabel("seconds")
    lag.legend(loc="lower left")
    figure.savefig(path, dpi=110)
    return True


def _restarts_s(taken: Sequence[Sample]) -> list[float]:
    """When the first micro-batch of every later run of a query began."""
    return [after.began_s for before, after in itertools.pairwise(taken) if before.run != after.run]
