"""Clients as prometheus_client scrapes them."""

import subprocess
import sys

import pytest
from prometheus_client import CollectorRegistry, generate_latest

import waltz
from waltz.client.mock import MockDriver
from waltz.table.face.table import Table
from waltz.table.properties import PartitionProperties
from waltz.telemetry.help import NAMES
from waltz.telemetry.prometheus import MetricsCollector


async def test_a_scrape_shows_two_clients_apart() -> None:
    registry = CollectorRegistry()
    async with waltz.connect(MockDriver(2)) as one, waltz.connect(MockDriver(2)) as other:
        registry.register(MetricsCollector(one.metrics, other.metrics))
        await one.append_many(1, [b"a"] * 40, high_water_mark=-1)
        labels = {"client": str(one.client_id), "partition": "1"}
        prefix = "waltz_client_partition_"
        assert registry.get_sample_value(f"{prefix}high_water_mark", labels) == 39
        assert registry.get_sample_value(f"{prefix}is_mounted", labels) == 1
        assert registry.get_sample_value(f"{prefix}send_throughput_total", labels) == 40
        measured = registry.get_sample_value(f"{prefix}on_completion_latency_seconds_count", labels)
        assert measured is not None
        assert measured >= 1
        seconds = registry.get_sample_value(f"{prefix}on_completion_latency_seconds", {**labels, "quantile": "0.99"})
        assert seconds is not None
        assert 0 < seconds < 60
        for client, active in ((one, 1), (other, 0)):
            own = {"client": str(client.client_id)}
            assert registry.get_sample_value("waltz_client_num_active_partitions", own) == active
        text = generate_latest(registry).decode()
    assert text.count("# TYPE waltz_client_partition_on_completion_latency_seconds summary\n") == 1
    assert "# TYPE waltz_client_partition_lock_failure_total counter\n" in text
    for line in text.splitlines():
        if line.startswith("# HELP "):
            assert len(line.split(" ", 3)[3]) > 5, line


async def test_everything_is_explained() -> None:
    async with waltz.connect(MockDriver(1)) as client:
        await client.append(0, b"a")
        async with Table(client, 0, PartitionProperties(format="table")):
            families = list(MetricsCollector(client.metrics).collect())
        shown = {family.name for family in families}
    assert len(families) == len(NAMES) - 1  # a list of ids has no number
    assert all(family.documentation for family in families)
    assert "waltz_client_cluster_name_info" in shown


@pytest.mark.parametrize("module", ["prometheus", "opentelemetry"])
def test_without_the_extra_the_error_says_what_to_install(module: str) -> None:
    package = {"prometheus": "prometheus_client", "opentelemetry": "opentelemetry"}[module]
    code = f"import sys; sys.modules[{package!r}] = None; import waltz.telemetry; import waltz.telemetry.{module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"install waltz-log with its extra '{module}'" in done.stderr
