"""What a process takes, compared with what others say of it."""

import asyncio
import os
import resource
import socket
import subprocess
import time
from pathlib import Path

import pytest

from waltz.common.metrics import process_metrics
from waltz.common.metrics.exposition import prometheus_text
from waltz.common.metrics.process_metrics import DESCRIPTIONS, watched_process
from waltz.common.metrics.registry import Registry


def shown(registry: Registry) -> dict[str, float]:
    lines = [line for line in prometheus_text(registry).splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


async def test_this_process() -> None:
    registry = Registry()
    with watched_process(registry):
        before = shown(registry)
        with socket.socket(), socket.socket():
            assert shown(registry)["process_open_fds"] == before["process_open_fds"] + 2
        assert before["process_open_fds"] == len(list(Path("/proc/self/fd").iterdir())) - 1
        assert before["process_max_fds"] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        started_s = time.monotonic()
        while time.process_time() < before["process_cpu_seconds_total"] + 0.05:
            assert time.monotonic() - started_s < 60
        assert shown(registry)["process_cpu_seconds_total"] >= before["process_cpu_seconds_total"] + 0.04
        command = ["ps", "-o", "etimes=", "-p", str(os.getpid())]
        age_s = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        assert before["process_start_time_seconds"] == pytest.approx(time.time() - age_s, abs=5)
        assert 1 << 20 < before["process_resident_memory_bytes"] < before["process_virtual_memory_bytes"]
    assert {name.partition("_bucket")[0].removesuffix("_sum").removesuffix("_count") for name in before} == {
        each.name for each in DESCRIPTIONS
    }


async def test_what_the_system_does_not_tell_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(process_metrics, "_SELF", tmp_path)
    registry = Registry()
    with watched_process(registry):
        names = {name.partition("{")[0] for name in shown(registry) if name.startswith("process_")}
    assert names == {"process_cpu_seconds_total", "process_max_fds"}


async def test_a_loop_that_stood_still_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock of the test's, which is looked at when the timer is set and when it comes."""
    monkeypatch.setattr(process_metrics, "LAG_INTERVAL_S", 0.001)
    moments = iter([100.0, 100.001 + 0.3, 200.0, 200.001])
    seen = asyncio.Event()

    def clock() -> float:
        moment = next(moments, None)
        if moment is None:
            seen.set()
            return 300.0
        return moment

    registry = Registry()
    with watched_process(registry, clock):
        async with asyncio.timeout(60):
            await seen.wait()
    lags = shown(registry)
    assert lags['waltz_event_loop_lag_seconds_bucket{le="0.0005"}'] == 1
    assert lags['waltz_event_loop_lag_seconds_bucket{le="0.25"}'] == 1
    assert lags['waltz_event_loop_lag_seconds_bucket{le="0.5"}'] == 2
    await asyncio.sleep(0.01)
    after = shown(registry)
    assert {name: after[name] for name in lags if "lag" in name} == {name: lags[name] for name in lags if "lag" in name}
