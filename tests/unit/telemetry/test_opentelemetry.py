"""Clients as OpenTelemetry exports them, and traces that go through the log."""

import json
from collections.abc import Mapping

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import waltz
from waltz.client.mock import MockDriver
from waltz.telemetry.opentelemetry import observe, span_links, trace_context


def exported(reader: InMemoryMetricReader) -> dict[tuple[str, str | None, str | None], float]:
    """Values by name, client, and partition or quantile."""
    found: dict[tuple[str, str | None, str | None], float] = {}
    data = reader.get_metrics_data()
    assert data is not None
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    labels: Mapping[str, object] = point.attributes or {}
                    which = labels.get("quantile", labels.get("partition"))
                    key = (metric.name, str(labels["client"]), None if which is None else str(which))
                    value = getattr(point, "value", None)
                    assert isinstance(value, int | float)
                    found[key] = value
    return found


async def test_metrics_of_two_clients_are_exported() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    async with waltz.connect(MockDriver(1)) as one, waltz.connect(MockDriver(1)) as other:
        observe(one.metrics, other.metrics, meter=provider.get_meter("test"))
        await one.append_many(0, [b"a"] * 40, high_water_mark=-1)
        values = exported(reader)
        client = str(one.client_id)
        assert values["waltz.client.num-active-partitions", client, None] == 1
        assert values["waltz.client.num-active-partitions", str(other.client_id), None] == 0
        assert values["waltz.client.high-water-mark", client, "0"] == 39
        assert values["waltz.client.send-throughput", client, "0"] == 40
        assert values["waltz.client.on-completion-latency.count", client, "0"] >= 1
        assert values["waltz.client.on-completion-latency.sum", client, "0"] > 0
        assert 0 < values["waltz.client.on-completion-latency", client, "0.99"] < 60
        names = {name for name, _, _ in values}
    provider.shutdown()
    assert len(names) == 7 + 6 + 2 * 3


async def test_a_trace_goes_through_the_log() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    async with waltz.connect(MockDriver(1)) as client:
        with tracer.start_as_current_span("pay") as paying:
            data = {"amount": 10, "trace": trace_context()}
            last = await client.append(0, json.dumps(data).encode())
        async for transaction in client.feed(0, after=-1, until=last):
            links = span_links(json.loads(transaction.data)["trace"])
            with tracer.start_as_current_span("apply", links=links):
                pass
    applied = exporter.get_finished_spans()[-1]
    paid = paying.get_span_context()
    assert [(link.context.trace_id, link.context.span_id) for link in applied.links] == [(paid.trace_id, paid.span_id)]
    assert applied.context is not None
    assert applied.context.trace_id != paid.trace_id
    provider.shutdown()


def test_without_a_trace_there_is_nothing_to_link() -> None:
    assert trace_context() == {}
    assert span_links({}) == []
    assert span_links({"traceparent": "nonsense"}) == []
