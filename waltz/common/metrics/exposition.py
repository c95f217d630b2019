"""The three forms of metrics.

The original's JSON of HTTP ``/metrics``, its JSON of the storage admin protocol, and the text format of Prometheus.
"""

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple, TypeVar

from waltz.common.metrics.registry import (
    Description,
    Gauge,
    GaugeForm,
    Histogram,
    Json,
    Kind,
    Meter,
    MetricId,
    Registry,
    Timer,
)

_JSON_VERSION = "4.0.0"
"""The version in the original's JSON, which never changes."""

_RATES = "events/second"
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
"""Decimals of seconds: measurements are exact to a microsecond."""
_NO_FORM = GaugeForm()
_NOT_A_NAME = re.compile(r"[^a-zA-Z0-9_]")

_T = TypeVar("_T")


# The original's JSON


def http_document(registry: Registry) -> dict[str, Json]:
    """The answer of HTTP ``/metrics``: sorted by full name, durations in seconds."""
    return {"version": _JSON_VERSION, **{section: dict(entries) for section, entries in _http_sections(registry)}}


def http_pieces(registry: Registry, *, pretty: bool = False) -> Iterator[str]:
    """The text of :func:`http_document` in pieces, since the text of a thousand partitions takes a second to make."""
    yield ("{\n  " if pretty else "{") + f'"version"{": " if pretty else ":"}"{_JSON_VERSION}"'
    for section, entries in _http_sections(registry):
        yield ",\n  " if pretty else ","
        yield from _member(section, ((name, to_json(entry, pretty=pretty)) for name, entry in entries), pretty=pretty)
    yield "\n}" if pretty else "}"


def _member(name: str, entries: Iterable[tuple[str, str]], *, pretty: bool) -> Iterator[str]:
    """A member of a document, in pieces. The member is an object; its values are texts."""
    item, end, colon = (",\n    ", "\n  }", ": ") if pretty else (",", "}", ":")
    yield f'"{name}"{colon}{{'
    empty = True
    for entry_name, text in entries:
        yield f"{item[1:] if empty else item}{json.dumps(entry_name)}{colon}" + text.replace("\n", "\n    ")
        empty = False
    yield "}" if empty else end


def _http_sections(registry: Registry) -> Iterator[tuple[str, Iterator[tuple[str, Json]]]]:
    registry.refresh()
    yield "gauges", ((name, _read(gauge)) for name, gauge in _sorted(registry.gauges))
    yield "counters", ((name, {"count": counter.count}) for name, counter in _sorted(registry.counters))
    yield "histograms", iter(())
    yield "meters", ((name, {**_http_meter(meter), "units": _RATES}) for name, meter in _sorted(registry.meters))
    yield "timers", ((name, _http_timer(timer)) for name, timer in _sorted(registry.timers))


def admin_pieces(registry: Registry) -> Iterator[str]:
    """The answer of the storage admin protocol to a metrics request, indented, in pieces; durations in nanoseconds.

    All parts are of the same metrics, even if metrics come or go meanwhile.
    """
    registry.refresh()
    sections: tuple[tuple[str, Iterator[tuple[str, Json]]], ...] = (
        ("gauges", ((name, _read(gauge)) for name, gauge in list(_sorted(registry.gauges)))),
        ("counters", ((name, {"count": counter.count}) for name, counter in list(_sorted(registry.counters)))),
        ("histograms", iter(())),
        ("meters", ((name, _admin_meter(meter)) for name, meter in list(_sorted(registry.meters)))),
        ("timers", ((name, _admin_timer(timer)) for name, timer in list(_sorted(registry.timers)))),
    )
    ids = sorted({*registry.gauges, *registry.counters, *registry.meters, *registry.timers})
    texts: dict[str, str] = {}

    def written(entries: Iterator[tuple[str, Json]]) -> Iterator[tuple[str, str]]:
        for name, entry in entries:
            texts[name] = to_json(entry, pretty=True)
            yield name, texts[name]

    yield "{"
    for section, entries in sections:
        yield "\n  "
        yield from _member(section, written(entries), pretty=True)
        yield ","
    yield "\n  "
    yield from _member("metrics", texts.items(), pretty=True)
    yield ',\n  "ids": ['
    for number, each in enumerate(ids):
        told = {"group": each.group, "name": each.name, "fullName": each.full_name}
        yield ("," if number else "") + "\n    " + to_json(told, pretty=True).replace("\n", "\n    ")
    yield ("\n  " if ids else "") + "]\n}"


def to_json(document: Json, *, pretty: bool = False) -> str:
    """JSON text of a document of this module; ``pretty`` indents."""
    return json.dumps(document, indent=2 if pretty else None, separators=None if pretty else (",", ":"))


def _sorted(metrics: Mapping[MetricId, _T]) -> Iterator[tuple[str, _T]]:
    yield from sorted(((metric_id.full_name, metric) for metric_id, metric in metrics.items()), key=itemgetter(0))


def _read(gauge: Gauge) -> dict[str, Json]:
    """The value of a gauge; a failing gauge has its error as value, and does not affect others."""
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
    """Suffix to the family's name: ``_sum`` and ``_count`` of summaries, also ``_bucket`` of histograms."""
    labels: Mapping[str, str]
    value: float


class Family(NamedTuple):
    """All samples of one name; Prometheus expects them together."""

    name: str
    kind: Kind
    """Names of counters end in ``_total``, those of summaries in ``_seconds``."""
    metric: str
    """The name of the metric in the registry, without its group."""
    samples: list[Sample]
    meaning: str = ""


def families(registry: Registry) -> list[Family]:
    """The metrics as families of Prometheus, sorted by name.

    A group ``waltz-server.partition-7`` becomes the prefix ``waltz_server_partition`` with the label ``partition="7"``;
    likewise ``waltz-client-3.partition-7``. So no family mixes samples of partitions with those of the node. Meters
    are counters (readers compute rates), timers are summaries in seconds, texts are labels of an ``_info`` metric.
    Lists are left out, and so are mappings without a label for their keys.
    """
    found: dict[str, Family] = {}
    deque(_gather(registry, found), maxlen=0)
    return [family for _, family in sorted(found.items())]


def _gather(registry: Registry, found: dict[str, Family]) -> Iterator[None]:
    """Fill ``found``, metric by metric."""
    registry.refresh()
    labels, described = registry.labels, registry.descriptions
    for metric_id, gauge in _snapshot(registry.gauges):
        value, form = _read(gauge).get("value"), registry.forms.get(metric_id, _NO_FORM)
        shown = metric_id._replace(name=form.name or metric_id.name)
        if form.counts and isinstance(value, (int, float)):
            counted = shown._replace(name=shown.name.removeprefix("total-"))
            _sample(found, described, counted, "counter", "_total", value, labels)
        elif form.label is not None and isinstance(value, Mapping):
            for key, entry in value.items():
                _gauge_sample(found, described, shown, entry, {**labels, form.label: str(key)})
        else:
            _gauge_sample(found, described, shown, value, labels)
        yield
    for metric_id, counter in _snapshot(registry.counters):
        _sample(found, described, metric_id, "counter", "_total", counter.count, labels)
        yield
    for metric_id, meter in _snapshot(registry.meters):
        _sample(found, described, metric_id, "counter", "_total", meter.count, labels)
        yield
    for metric_id, timer in _snapshot(registry.timers):
        snapshot = timer.snapshot()
        for part in _PROMETHEUS_QUANTILES:
            duration_s = _seconds(snapshot.quantile(part))
            _sample(found, described, metric_id, "summary", "_seconds", duration_s, {**labels, "quantile": str(part)})
        _sample(found, described, metric_id, "summary", "_seconds", _seconds(timer.total_s), labels, "_sum")
        _sample(found, described, metric_id, "summary", "_seconds", timer.meter.count, labels, "_count")
        yield
    for name, read in list(registry.readings.items()):
        family = _described(found, described[name])
        for values, number in read():
            family.samples.append(Sample("", dict(zip(described[name].labels, values, strict=True)) | labels, number))
            yield
    for name, histograms in list(registry.histograms.items()):
        family = _described(found, described[name])
        for values, histogram in list(histograms.by_labels.items()):
            _histogram_samples(family, histogram, dict(zip(described[name].labels, values, strict=True)) | labels)
            yield


def _described(found: dict[str, Family], description: Description) -> Family:
    family = Family(description.name, description.kind, description.name, [], description.meaning)
    return found.setdefault(description.name, family)


def _histogram_samples(family: Family, histogram: Histogram, labels: Mapping[str, str]) -> None:
    by_bucket, total = histogram.read()
    counts = list(accumulate(by_bucket))
    for bound, count in zip((*map(str, histogram.bounds), "+Inf"), counts, strict=True):
        family.samples.append(Sample("_bucket", {**labels, "le": bound}, count))
    family.samples.append(Sample("_sum", labels, round(total, _DURATION_DIGITS)))
    family.samples.append(Sample("_count", labels, counts[-1]))


def prometheus_text(registry: Registry) -> str:
    """The text format of Prometheus, version 0.0.4; see :func:`families`."""
    return "".join(prometheus_pieces(registry))


def prometheus_pieces(registry: Registry) -> Iterator[str]:
    """The text in pieces, some of them empty, since the text of a thousand partitions takes a second to make."""
    found: dict[str, Family] = {}
    for _ in _gather(registry, found):
        yield ""
    for name, kind, _, samples, meaning in (family for _, family in sorted(found.items())):
        if not samples:
            continue
        if meaning:
            yield f"# HELP {name} {_escaped_help(meaning)}\n"
        yield f"# TYPE {name} {kind}\n"
        for suffix, labels, value in samples:
            inside = ",".join([f'{label}="{_escaped(text)}"' for label, text in labels.items()])
            yield f"{name}{suffix}{{{inside}}} {value}\n" if inside else f"{name}{suffix} {value}\n"


def _snapshot(metrics: Mapping[MetricId, _T]) -> list[tuple[MetricId, _T]]:
    """A copy: a metric may be registered while another thread reads this."""
    return list(metrics.items())


def _gauge_sample(
    found: dict[str, Family],
    described: Mapping[str, Description],
    metric_id: MetricId,
    value: Json,
    labels: Mapping[str, str],
) -> None:
    if isinstance(value, str):
        _sample(found, described, metric_id, "gauge", "_info", 1, {**labels, "value": value})
    elif isinstance(value, (bool, int, float)):
        _sample(found, described, metric_id, "gauge", "", value, labels)


def _sample(
    found: dict[str, Family],
    described: Mapping[str, Description],
    metric_id: MetricId,
    kind: Kind,
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
    family = found.get(name)
    if family is None:
        meaning = described[name].meaning if name in described else ""
        family = found[name] = Family(name, kind, metric_id.name, [], meaning)
    family.samples.append(Sample(part_of_summary, all_labels, number))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
