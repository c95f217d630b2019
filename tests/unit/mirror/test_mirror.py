"""How far targets are, whichever process mirrors them and whatever does not answer."""

from datetime import UTC, datetime

import pytest

from waltz.client.errors import TimesNotSupportedError
from waltz.common.config.schemas import ClientConfig
from waltz.common.errors import WaltzError
from waltz.common.metrics.exposition import prometheus_pieces
from waltz.common.metrics.registry import Registry
from waltz.mirror.lag import NO_LAG, Lag
from waltz.mirror.mirror import Mirror
from waltz.mirror.mirror_metrics import PartitionState, Stage, show_metrics
from waltz.mirror.window import WindowLimit

NOW_MS = 9000


class FakeClient:
    """Tells one mark, or nothing."""

    def __init__(self, mark: int | None, committed_s: int | None = 5) -> None:
        self.mark = mark
        self.committed_s = committed_s

    async def high_water_mark(self, _partition_id: int, *, timeout_s: float) -> int:
        if self.mark is None:
            raise WaltzError("away")
        return self.mark

    async def time_of(self, _partition_id: int, _transaction_id: int, *, timeout_s: float) -> datetime:
        if self.committed_s is None:
            raise TimesNotSupportedError(0, storages=True)
        return datetime.fromtimestamp(self.committed_s, UTC)


def mirror_with(stage: Stage, mirrored_id: int | None = None) -> Mirror:
    config = ClientConfig(zookeeper_connect_string="zoo:2181", cluster_root="/waltz")
    mirror = Mirror(config, config, None, WindowLimit(1, 1), interval_s=1.0, now_ms=lambda: NOW_MS)
    mirror.state.partitions[0] = PartitionState(stage, mirrored_id=mirrored_id)
    return mirror


async def look(mirror: Mirror, source: FakeClient, target: FakeClient) -> Lag | None:
    await mirror._look(source, target)  # type: ignore[arg-type]
    return mirror.state.partitions[0].lag


@pytest.mark.parametrize("stage", [stage for stage in Stage if stage not in (Stage.WORKING, Stage.PROMOTED)])
async def test_a_process_that_does_not_mirror_asks_the_target(stage: Stage) -> None:
    """Otherwise it would show no lag, and hide that of a partition which nobody mirrors."""
    mirror = mirror_with(stage)
    assert await look(mirror, FakeClient(10), FakeClient(None)) is None, "nothing is known yet"
    assert await look(mirror, FakeClient(10), FakeClient(7)) == Lag(3, 5000)
    assert await look(mirror, FakeClient(12), FakeClient(None)) == Lag(5, 5000)
    assert await look(mirror, FakeClient(12), FakeClient(12)) == NO_LAG


async def test_a_process_that_mirrors_knows_the_end() -> None:
    mirror = mirror_with(Stage.WORKING, 8)
    assert await look(mirror, FakeClient(10), FakeClient(3)) == Lag(2, 5000)
    assert await look(mirror, FakeClient(10, None), FakeClient(None)) == Lag(2, 5000), "the time that was known"
    assert mirror.state.is_source_available


async def test_without_times_it_counts_from_the_first_look() -> None:
    assert await look(mirror_with(Stage.WORKING, 8), FakeClient(10, None), FakeClient(8)) == Lag(2, NOW_MS)


async def test_a_source_that_is_away_is_told() -> None:
    mirror = mirror_with(Stage.WORKING, 8)
    await look(mirror, FakeClient(10), FakeClient(8))
    assert await look(mirror, FakeClient(None), FakeClient(8)) == Lag(2, 5000), "its age grows"
    assert not mirror.state.is_source_available
    await look(mirror, FakeClient(10), FakeClient(8))
    assert mirror.state.is_source_available


async def test_what_was_promoted_has_no_lag() -> None:
    mirror = mirror_with(Stage.WORKING, 8)
    await look(mirror, FakeClient(10), FakeClient(8))
    registry = Registry()
    show_metrics(registry, mirror.state, lambda: NOW_MS)
    assert 'waltz_mirror_lag_seconds{partition="0"} 4' in "".join(prometheus_pieces(registry))
    mirror.state.partitions[0].stage = Stage.PROMOTED
    assert await look(mirror, FakeClient(10), FakeClient(20)) is None
    assert 'waltz_mirror_lag_seconds{partition="0"}' not in "".join(prometheus_pieces(registry))


async def test_a_table_with_ids_of_its_own_is_looked_at_by_the_process_that_merges_it() -> None:
    mirror = mirror_with(Stage.WORKING, 8)
    mirror.state.partitions[0].has_own_ids = True
    assert await look(mirror, FakeClient(10), FakeClient(3)) == Lag(2, 5000)
    mirror.state.partitions[0].stage = Stage.WAITING
    assert await look(mirror, FakeClient(11), FakeClient(30)) == Lag(3, 5000), "the end of the target says nothing"
    mirror.state.partitions[0].stage = Stage.STANDING_BY
    assert await look(mirror, FakeClient(11), FakeClient(30)) is None, "another process knows"
