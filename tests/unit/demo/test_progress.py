"""What is made of the progress reports of streaming queries."""

import json
import sys
from pathlib import Path

import pytest
from pyspark.sql.streaming.listener import StreamingQueryProgress

from waltz.demo.progress import Sample, draw, samples

RUNS = ("00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002")


def progress(rows: int, end: dict[str, object], latest: dict[str, object] | None) -> StreamingQueryProgress:
    source: dict[str, object] = {
        "description": "waltz",
        "startOffset": None,
        "endOffset": json.dumps(end),
        "latestOffset": json.dumps(latest),
        "numInputRows": rows,
        "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": 1.0,
        "metrics": {},
    }
    return StreamingQueryProgress.fromJson(
        {
            "id": RUNS[0],
            "runId": RUNS[0],
            "name": None,
            "timestamp": "1970-01-01T00:00:10.500Z",
            "batchId": 0,
            "batchDuration": 250,
            "durationMs": {"triggerExecution": 250},
            "eventTime": {},
            "stateOperators": [],
            "sources": [source],
            "sink": {"description": "", "numOutputRows": 0, "metrics": {}},
            "numInputRows": rows,
            "inputRowsPerSecond": 1.0,
            "processedRowsPerSecond": 1.0,
            "observedMetrics": {},
        }
    )


def test_lag_is_what_is_committed_and_not_read() -> None:
    reports = [
        progress(7, {"0": 5, "1": 2, "since": {"0": 0, "1": 0}}, {"0": 10, "1": 3}),
        progress(0, {"0": 5, "1": 2}, {"0": 10, "1": 3}),
        progress(3, {"0": 8, "1": 2}, None),
    ]
    assert samples(reports, committed=12) == [
        Sample(RUNS[0], 10.5, 0.25, 7, 6),
        Sample(RUNS[0], 10.5, 0.25, 3, 2),
    ]


def found() -> dict[str, list[Sample]]:
    return {
        "a": [Sample(RUNS[0], 10.0, 0.5, 100, 50), Sample(RUNS[1], 12.0, 0.5, 50, 0)],
        "b": [Sample(RUNS[0], 10.1, 0.4, 100, 50)],
    }


def test_a_plot_is_drawn(tmp_path: Path) -> None:
    assert draw(found(), tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_there_is_no_plot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert not draw(found(), tmp_path / "plot.png")
    assert not (tmp_path / "plot.png").exists()
