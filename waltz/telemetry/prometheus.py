"""Metrics of clients for ``prometheus_client``; needs the extra ``prometheus``."""

from collections.abc import Iterator

from waltz.common.metrics.exposition import Family, families
from waltz.common.metrics.registry import Registry
from waltz.common.version import with_extra
from waltz.telemetry.help import help_text

try:
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector
except ImportError as error:
    text = f"waltz.telemetry.prometheus needs prometheus_client: {with_extra('prometheus')}"
    raise ModuleNotFoundError(text, name="prometheus_client") from error

_TOTAL = "_total"


class MetricsCollector(Collector):
    """Reads the metrics of one or more clients at each scrape. Register it once.

    Every sample has the label ``client`` with the id of its client; samples of partitions also have ``partition``.
    Meters are counters, latencies are summaries in seconds.

    Examples:
        ```python
        from waltz.telemetry.prometheus import MetricsCollector

        prometheus_client.REGISTRY.register(MetricsCollector(client.metrics))
        print(prometheus_client.generate_latest().decode())
        ```
    """

    def __init__(self, *metrics: Registry) -> None:
        self._registries = metrics

    def collect(self) -> Iterator[Metric]:
        """The metrics; called by ``prometheus_client``."""
        found: dict[str, Metric] = {}
        for registry in self._registries:
            for family in families(registry):
                metric = found.get(family.name)
                if metric is None:
                    metric = found[family.name] = _metric(family)
                for suffix, labels, value in family.samples:
                    metric.add_sample(family.name + suffix, dict(labels), value)
        yield from found.values()

    def describe(self) -> list[Metric]:
        """Return no metrics: they are known only after a scrape."""
        return []


def _metric(family: Family) -> Metric:
    return Metric(family.name.removesuffix(_TOTAL), help_text(family.metric), family.kind)
