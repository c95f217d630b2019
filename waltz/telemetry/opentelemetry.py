"""Metrics and trace context for OpenTelemetry; needs the extra ``opentelemetry``.

Waltz carries no trace context: the data of a transaction belongs to the application. Put the result of
:func:`trace_context` into the data of a transaction. When you handle the transaction, link its span to the context by
:func:`span_links`. Use a link, not a parent, since every instance handles a transaction, perhaps long after its trace.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from waltz.common.metrics.exposition import families
from waltz.common.metrics.registry import Registry
from waltz.common.version import with_extra
from waltz.telemetry.help import help_text

try:
    from opentelemetry import metrics as otel
    from opentelemetry import propagate, trace
    from opentelemetry.metrics import CallbackOptions, Meter, Observation
except ImportError as error:
    text = f"waltz.telemetry.opentelemetry needs OpenTelemetry: {with_extra('opentelemetry')}"
    raise ModuleNotFoundError(text, name="opentelemetry") from error

_PARTITION = "waltz_client_partition_"
_GAUGES = {
    "waltz_client_num_active_partitions": "num-active-partitions",
    **{
        f"{_PARTITION}{name.replace('-', '_')}": name
        for name in (
            *("is-mounted", "is-partition-active", "high-water-mark", "num-registered-transactions", "lag"),
            *("lag-seconds", "table-skipped-transactions"),
        )
    },
}
_COUNTERS = {
    f"{_PARTITION}{name.replace('-', '_')}_total": name
    for name in (
        *("lock-failure", "transaction-monitor-timeout", "early-acknowledgement", "retracted-acknowledgement"),
        *("send-throughput", "received-throughput"),
    )
}
_LATENCIES = {
    f"{_PARTITION}{name.replace('-', '_')}_seconds": name
    for name in ("on-completion-latency", "on-application-latency")
}


_Read: TypeAlias = Callable[[CallbackOptions], Iterable[Observation]]


def observe(*metrics: Registry, meter: Meter | None = None) -> None:
    """Register the metrics of one or more clients with OpenTelemetry, which reads them at each export. Call it once.

    ``meter`` creates the instruments; the default is ``get_meter("waltz")``. The name of an instrument is
    ``waltz.client.`` and the original's name; its attributes are ``client`` and ``partition``. A latency, in seconds,
    becomes a gauge with the attribute ``quantile`` and two counters, ``.sum`` and ``.count``.

    Examples:
        ```python
        from waltz.telemetry.opentelemetry import observe

        observe(client.metrics)  # whenever the meter provider of the process exports
        ```
    """
    meter = meter or otel.get_meter("waltz")
    for family, metric in _GAUGES.items():
        meter.create_observable_gauge(_name(metric), [_reading(metrics, family, "")], description=help_text(metric))
    for family, metric in _COUNTERS.items():
        callbacks = [_reading(metrics, family, "")]
        meter.create_observable_counter(_name(metric), callbacks, description=help_text(metric))
    for family, metric in _LATENCIES.items():
        name, text = _name(metric), help_text(metric)
        meter.create_observable_gauge(name, [_reading(metrics, family, "")], "s", text)
        meter.create_observable_counter(f"{name}.sum", [_reading(metrics, family, "_sum")], "s", text)
        meter.create_observable_counter(f"{name}.count", [_reading(metrics, family, "_count")], description=text)


def _name(metric: str) -> str:
    return f"waltz.client.{metric}"


def _reading(registries: Iterable[Registry], name: str, suffix: str) -> _Read:
    def read(_options: CallbackOptions) -> Iterator[Observation]:
        for registry in registries:
            for family in families(registry):
                if family.name == name:
                    wanted = (each for each in family.samples if each.suffix == suffix)
                    yield from (Observation(each.value, dict(each.labels)) for each in wanted)

    return read


def trace_context() -> dict[str, str]:
    """The trace context of the current span, as W3C's ``traceparent`` and other propagated fields; may be empty.

    Examples:
        ```python
        from waltz.telemetry.opentelemetry import trace_context

        with tracer.start_as_current_span("order"):
            await client.append(0, json.dumps({"amount": 10, "trace": trace_context()}).encode())
        ```
    """
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return carrier


def span_links(context: Mapping[str, str]) -> list[trace.Link]:
    """Links to the span in which :func:`trace_context` was called; none for an empty or unknown context.

    Examples:
        ```python
        from waltz.telemetry.opentelemetry import span_links

        carrier = json.loads(transaction.data)["trace"]
        with tracer.start_as_current_span("apply", links=span_links(carrier)):
            print("applied")
        ```
    """
    span = trace.get_current_span(propagate.extract(dict(context))).get_span_context()
    return [trace.Link(span)] if span.is_valid else []
