"""What the metrics of storages say."""

import functools

from benchmarks.cluster.waltz_target import progress_in
from waltz.common.metrics.exposition import http_document
from waltz.common.metrics.registry import Registry


def test_batches_are_the_mean_and_positions_the_sum_over_partitions() -> None:
    registries = [Registry(), Registry(), Registry()]
    for lag, registry in enumerate(registries):
        for partition in (0, 1):
            group = f"waltz-storage.partition-{partition}"
            registry.meter(group, "append").mark(10 + lag)
            registry.gauge(group, "max-transaction-id", functools.partial(int, 99 - lag))
            registry.timer(group, "append-latency").update(0.1, 5)
    progress = progress_in([http_document(registry) for registry in registries], 4.0)
    assert progress.at_s == 4.0
    assert progress.batches == 22
    assert progress.positions == (200, 198, 196)
