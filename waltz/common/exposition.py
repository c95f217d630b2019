"""The three forms in which metrics are read.

The original's JSON of HTTP ``/metrics``, its JSON of the storage admin protocol, and the text format of Prometheus.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, TypeVar

from waltz.common.metrics import Gauge, GaugeForm, Json, Meter, MetricId, Registry, Timer

_JSON_VERSION = "4.0.0"
"""What the original's JSON says, whatever its own version is."""

_HTTP_QUANTILES = (("50", 0.5), ("75", 0.75), ("95", 0.95), ("98", 0.98), ("99", 0.99), ("999", 0.999))
_ADMIN_QUANTILES = (
    ("median", 0.5),
    ("75thPercentile", 0.75),
    ("95thPercentile", 0.95),
    ("98thPercentile", 0.98),
    ("99thPercentile", 0.99),
    ("999thPercentile", 0.999),
)
_PROMETHEUS_QUANTILES = (0.5, 0.75, 0.95, 0.99, 0.999)
_PARTITION_GROUP = re.compile(r"(.+?)(?:-\d+)?\.partition-(\d+)")
_DURATION_DIGITS = 6
"""Of seconds: what is measured is not more exact than a microsecond."""
_NO_FORM = GaugeForm()
_NOT_A_NAME = re.compile(r"[^a-zA-Z0-9_]")

_T = TypeVar("_T")


# The original's JSON


def http_document(registry: Registry) -> dict[str, Json]:
    """What HTTP ``/metrics`` answers: sorted by full name, durations in seconds."""
    registry.refresh()
    return {
        "version": _JSON_VERSION,
        "gauges": {name: _read(gauge) for name, gauge in _sorted(registry.gauges)},
        "counters": {name: {"count": counter.count} for name, counter in _sorted(registry.counters)},
        "histograms": {},
        "meters": {name: {**_http_meter(meter), "units": "events/second"} for name, meter in _sorted(registry.meters)},
        "timers": {name: _http_timer(timer) for name, timer in _sorted(registry.timers)},
    }


def admin_document(registry: Registry) -> dict[str, Json]:
    """What the storage admin protocol answers to a metrics request: durations in nanoseconds."""
    registry.refresh()
    gauges: dict[str, Json] = {name: _read(gauge) for name, gauge in _sorted(registry.gauges)}
    counters: dict[str, Json] = {name: {"count": counter.count} for name, counter in _sorted(registry.counters)}
    meters: dict[str, Json] = {name: _admin_meter(meter) for name, meter in _sorted(registry.meters)}
    timers: dict[str, Json] = {name: _admin_timer(timer) for name, timer in _sorted(registry.timers)}
    ids = sorted({*registry.gauges, *registry.counters, *registry.meters, *registry.timers})
    return {
        "gauges": gauges,
        "counters": counters,
        "histograms": {},
        "meters": meters,
        "timers": timers,
        "metrics": {**gauges, **counters, **meters, **timers},
        "ids": [{"group": each.group, "name": each.name, "fullName": each.full_name} for each in ids],
    }


def to_json(document: Json, *, pretty: bool = False) -> str:
    """JSON text of a document of this module; ``pretty`` indents."""
    return json.dumps(document, indent=2 if pretty else None, separators=None if pretty else (",", ":"))


def _sorted(metrics: Mapping[MetricId, _T]) -> Iterator[tuple[str, _T]]:
    for metric_id in sorted(metrics, key=lambda each: each.full_name):
        yield metric_id.full_name, metrics[metric_id]


def _read(gauge: Gauge) -> dict[str, Json]:
    """A gauge that fails says so and keeps nobody from reading the others."""
    try:
        value = gauge()
        json.dumps(value, allow_nan=False)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"value": value}


def _http_meter(meter: Meter) -> dict[str, Json]:
    one, five, fifteen = meter.rates
    return {
        "count": meter.count,
        "m15_rate": fifteen,
        "m1_rate": one,
        "m5_rate": five,
        "mean_rate": meter.mean_rate,
    }


def _http_timer(timer: Timer) -> dict[str, Json]:
    snapshot = timer.snapshot()
    return {
        **_http_meter(timer.meter),
        "max": _seconds(snapshot.maximum),
        "mean": _seconds(snapshot.mean),
        "min": _seconds(snapshot.minimum),
        **{f"p{digits}": _seconds(snapshot.quantile(part)) for digits, part in _HTTP_QUANTILES},
        "stddev": _seconds(snapshot.deviation),
        "duration_units": "seconds",
        "rate_units": "calls/second",
    }


def _admin_meter(meter: Meter) -> dict[str, Json]:
    one, five, fifteen = meter.rates
    return {
        "count": meter.count,
        "fifteenMinuteRate": fifteen,
        "fiveMinuteRate": five,
        "meanRate": meter.mean_rate,
        "oneMinuteRate": one,
    }


def _admin_timer(timer: Timer) -> dict[str, Json]:
    snapshot = timer.snapshot()
    return {
        **_admin_meter(timer.meter),
        "snapshot": {
            "values": [_nanoseconds(value) for value in snapshot.values],
            "min": _nanoseconds(snapshot.minimum),
            "max": _nanoseconds(snapshot.maximum),
            "mean": snapshot.mean * 1e9,
            "stdDev": snapshot.deviation * 1e9,
            **{name: float(_nanoseconds(snapshot.quantile(part))) for name, part in _ADMIN_QUANTILES},
        },
    }


def _seconds(seconds: float) -> float:
    return round(seconds, _DURATION_DIGITS)


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


# Prometheus


class Sample(NamedTuple):
    """One number of a family."""

    suffix: str
    """What its name has beside the family's: ``_sum`` and ``_count`` of summaries."""
    labels: Mapping[str, str]
    value: float


class Family(NamedTuple):
    """What Prometheus wants to see together: all samples of one name."""

    name: str
    kind: Literal["counter", "gauge", "summary"]
    """Names of counters end in ``_total``, those of summaries in ``_seconds``."""
    metric: str
    """The name of the metric in the registry, without its group."""
    samples: list[Sample]


def families(registry: Registry) -> list[Family]:
    """The metrics as Prometheus knows them, sorted by name.

    A group ``waltz-server.partition-7`` becomes the prefix ``waltz_server_partition`` with the label ``partition="7"``:
    no family has samples of partitions beside those of the node; and so does ``waltz-client-3.partition-7`` with
    another prefix. Meters are counters (rates are the reader's business), timers are summaries in seconds, texts are
    labels of an ``_info`` metric. Lists are left out, and maps unless they say what their keys are.
    """
    registry.refresh()
    found: dict[str, Family] = {}
    labels = registry.labels
    for metric_id, gauge in _snapshot(registry.gauges):
        value, form = _read(gauge).get("value"), registry.forms.get(metric_id, _NO_FORM)
        if form.counts and isinstance(value, (int, float)):
            counted = metric_id._replace(name=metric_id.name.removeprefix("total-"))
            _sample(found, counted, "counter", "_total", value, labels)
        elif form.label is not None and isinstance(value, Mapping):
            for key, entry in value.items():
                _gauge_sample(found, metric_id, entry, {**labels, form.label: str(key)})
        else:
            _gauge_sample(found, metric_id, value, labels)
    for metric_id, counter in _snapshot(registry.counters):
        _sample(found, metric_id, "counter", "_total", counter.count, labels)
    for metric_id, meter in _snapshot(registry.meters):
        _sample(found, metric_id, "counter", "_total", meter.count, labels)
    for metric_id, timer in _snapshot(registry.timers):
        snapshot = timer.snapshot()
        for part in _PROMETHEUS_QUANTILES:
            duration_s = _seconds(snapshot.quantile(part))
            _sample(found, metric_id, "summary", "_seconds", duration_s, {**labels, "quantile": str(part)})
        _sample(found, metric_id, "summary", "_seconds", _seconds(timer.total_s), labels, "_sum")
        _sample(found, metric_id, "summary", "_seconds", timer.meter.count, labels, "_count")
    return [family for _, family in sorted(found.items())]


def prometheus_text(registry: Registry) -> str:
    """The text format of Prometheus, version 0.0.4; see :func:`families`."""
    lines = []
    for name, kind, _, samples in families(registry):
        lines.append(f"# TYPE {name} {kind}")
        for suffix, labels, value in samples:
            inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
            lines.append(f"{name}{suffix}{{{inside}}} {value}" if inside else f"{name}{suffix} {value}")
    return "".join(f"{line}\n" for line in lines)


def _snapshot(metrics: Mapping[MetricId, _T]) -> list[tuple[MetricId, _T]]:
    """A metric may be registered while this is read on another thread."""
    return list(metrics.items())


def _gauge_sample(found: dict[str, Family], metric_id: MetricId, value: Json, labels: Mapping[str, str]) -> None:
    if isinstance(value, str):
        _sample(found, metric_id, "gauge", "_info", 1, {**labels, "value": value})
    elif isinstance(value, (bool, int, float)):
        _sample(found, metric_id, "gauge", "", value, labels)


def _sample(
    found: dict[str, Family],
    metric_id: MetricId,
    kind: Literal["counter", "gauge", "summary"],
    suffix: str,
    value: float,
    labels: Mapping[str, str],
    part_of_summary: str = "",
) -> None:
    prefix, partition = metric_id.group, None
    if (match := _PARTITION_GROUP.fullmatch(metric_id.group)) is not None:
        prefix, partition = f"{match[1]}-partition", match[2]
    name = metric_id.name if metric_id.name.startswith(f"{prefix}-") else f"{prefix}-{metric_id.name}"
    name = _NOT_A_NAME.sub("_", name) + suffix
    all_labels = {**({} if partition is None else {"partition": partition}), **labels}
    number = int(value) if isinstance(value, bool) else value
    family = found.setdefault(name, Family(name, kind, metric_id.name, []))
    family.samples.append(Sample(part_of_summary, all_labels, number))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
