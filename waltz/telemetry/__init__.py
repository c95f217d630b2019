"""The metrics of a client: as JSON with the original's names, for Prometheus and for OpenTelemetry.

All functions here take ``client.metrics``, the registry of a client. Any thread may read the registry, even after the
client is closed. :mod:`waltz.telemetry.prometheus` needs the extra ``prometheus``,
:mod:`waltz.telemetry.opentelemetry` needs the extra ``opentelemetry``; :func:`document` needs none. ``help`` explains
each metric.
"""

from waltz.common.metrics.exposition import http_document
from waltz.common.metrics.registry import Json, Registry


def document(metrics: Registry) -> dict[str, Json]:
    """The metrics in the form of a server's HTTP ``/metrics``: a mapping for ``json.dumps``.

    The mapping has ``gauges``, ``meters`` and ``timers`` by full names, such as
    ``waltz-client-7.partition-0.high-water-mark``. Rates are per second, durations in seconds.

    Examples:
        ```python
        from waltz.telemetry import document

        print(json.dumps(document(client.metrics), indent=2))
        ```
    """
    return http_document(metrics)
