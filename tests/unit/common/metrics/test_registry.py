import json
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.common.metrics.exposition import (
    admin_pieces,
    http_document,
    http_pieces,
    prometheus_pieces,
    prometheus_text,
    to_json,
)
from waltz.common.metrics.registry import Description, GaugeForm, Histogram, Json, Meter, MetricId, Registry, Timer


class Clock:
    """Monotonic seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def new_registry() -> tuple[Registry, Clock]:
    clock = Clock()
    return Registry(clock), clock


def test_counter() -> None:
    counter = new_registry()[0].counter("group", "name")
    counter.add()
    counter.add(5)
    counter.add(-2)
    assert counter.count == 4


def test_meter_rates_follow_the_original() -> None:
    # The figures of the metrics library's own test: 3 events, then silence.
    clock = Clock()
    meter = Meter(clock)
    meter.mark(3)
    assert meter.rates == (0.0, 0.0, 0.0)
    clock.now_s += 5
    assert meter.rates == pytest.approx((0.6, 0.6, 0.6))
    expected = {1: (0.22072766, 0.49123845, 0.56130419), 5: (0.00404277, 0.22072766, 0.42991879)}
    for minute in range(1, 6):
        clock.now_s += 60
        if minute in expected:
            assert meter.rates == pytest.approx(expected[minute], abs=1e-7)
    assert meter.count == 3


def test_reading_a_meter_seldom_or_often_makes_no_difference() -> None:
    clock = Clock()
    often, seldom = Meter(clock), Meter(clock)
    source = random.Random(3)
    for _ in range(500):
        clock.now_s += source.expovariate(0.2)
        number = source.randrange(100)
        often.mark(number)
        seldom.mark(number)
        assert len(often.rates) == 3
    assert often.rates == pytest.approx(seldom.rates)
    clock.now_s += 100_000
    assert seldom.rates[0] == pytest.approx(0, abs=1e-12)


def test_mean_rate() -> None:
    clock = Clock()
    meter = Meter(clock)
    assert meter.mean_rate == 0.0
    meter.mark(20)
    assert meter.mean_rate == 0.0
    clock.now_s += 10
    assert meter.mean_rate == 2.0


def test_timer_statistics() -> None:
    timer = new_registry()[0].timer("group", "name")
    for milliseconds in range(1, 101):
        timer.update(milliseconds / 1000)
    snapshot = timer.snapshot()
    assert timer.meter.count == 100
    assert timer.total_s == pytest.approx(5.05)
    assert (snapshot.minimum, snapshot.maximum) == pytest.approx((0.001, 0.1), rel=0.1)
    assert snapshot.mean == pytest.approx(0.0505)
    assert snapshot.deviation == pytest.approx(0.0288660, rel=0.01)
    assert snapshot.quantile(0.5) == pytest.approx(0.05, rel=0.1)
    assert snapshot.quantile(0.99) == pytest.approx(0.099, rel=0.1)
    assert (snapshot.quantile(0.0), snapshot.quantile(1.0)) == (snapshot.minimum, snapshot.maximum)


def test_a_timer_without_samples() -> None:
    snapshot = new_registry()[0].timer("group", "name").snapshot()
    assert (snapshot.minimum, snapshot.maximum, snapshot.mean, snapshot.deviation) == (0, 0, 0, 0)
    assert snapshot.quantile(0.5) == 0


def test_a_batch_counts_as_its_events() -> None:
    timer = new_registry()[0].timer("group", "name")
    timer.update(1.0, 99)
    timer.update(2.0, 1)
    assert timer.meter.count == 100
    assert timer.total_s == 101
    assert timer.snapshot().mean == pytest.approx(1.01)
    assert timer.snapshot().quantile(0.98) == 1.0


def test_timers_prefer_what_is_new() -> None:
    registry, clock = new_registry()
    timer = registry.timer("group", "name")
    for _ in range(5000):
        timer.update(1.0)
    timer.update(30.0)
    assert timer.snapshot().values == pytest.approx([1.0, 30.0])
    clock.now_s += 600
    for _ in range(5000):
        timer.update(2.0)
    assert timer.snapshot().quantile(0.1) == pytest.approx(2.0)
    assert timer.snapshot().maximum == pytest.approx(2.0), "one long duration is forgotten"


def test_samples_survive_hours_and_days() -> None:
    registry, clock = new_registry()
    timer = registry.timer("group", "name")
    timer.update(1.0)
    clock.now_s += 3 * 3600
    timer.update(2.0)
    assert timer.snapshot().maximum == 2.0
    assert math.isfinite(timer.snapshot().mean)
    clock.now_s += 30 * 24 * 3600
    timer.update(3.0)
    assert timer.snapshot().values == [3.0]
    clock.now_s += 30 * 24 * 3600
    assert timer.snapshot().values == []


def test_names_are_unique_over_kinds() -> None:
    registry, _ = new_registry()
    meter = registry.meter("group", "name")
    assert registry.meter("group", "name") is meter
    makers: list[Callable[[str, str], object]] = [
        registry.counter,
        registry.timer,
        lambda group, name: registry.gauge(group, name, lambda: 1),
    ]
    for make in makers:
        with pytest.raises(ValueError, match=r"^group\.name is already a metric of another kind$"):
            make("group", "name")
        make("group", "other name " + str(makers.index(make)))


def test_a_gauge_may_be_registered_again() -> None:
    registry, _ = new_registry()
    registry.gauge("group", "name", lambda: 1)
    registry.gauge("group", "name", lambda: 2)
    assert documents(registry)[0]["gauges"] == {"group.name": {"value": 2}}


def test_groups_can_be_removed() -> None:
    registry, _ = new_registry()
    for group in ("node", "node.partition-1", "node.partition-10"):
        registry.gauge(group, "a", lambda: 1)
        registry.counter(group, "b")
        registry.meter(group, "c")
        registry.timer(group, "d")
    registry.remove_group("node.partition-1")
    registry.remove_group("unknown")
    names = set(documents(registry)[1]["metrics"])
    assert names == {f"{group}.{name}" for group in ("node", "node.partition-10") for name in "abcd"}


def test_whoever_removes_a_group_does_not_look_at_the_others() -> None:
    """A node that closes a thousand partitions would look at all their metrics a thousand times."""

    class Unlooked(dict[MetricId, Any]):
        def __iter__(self) -> Iterator[MetricId]:
            raise AssertionError("looked at")

    registry, _ = new_registry()
    registry.gauges, registry.counters, registry.meters = Unlooked(), Unlooked(), Unlooked()
    for group in ("one", "other"):
        registry.gauge(group, "a", lambda: 1)
        registry.counter(group, "b")
        registry.meter(group, "c")
    registry.remove_group("one")
    assert [len(registry.gauges), len(registry.counters), len(registry.meters)] == [1, 1, 1]
    registry.counter("one", "a")  # the name is free for another kind


def documents(registry: Registry) -> tuple[dict[str, Any], dict[str, Any]]:
    """The HTTP document and the admin document as a reader of JSON sees them."""
    return json.loads(to_json(http_document(registry))), json.loads("".join(admin_pieces(registry)))


def full_registry() -> Registry:
    registry, clock = new_registry()
    registry.gauge("waltz-storage", "waltz-storage-partition-ids", lambda: [0, 2])
    registry.gauge("waltz-storage.partition-2", "session-id", lambda: 7)
    registry.counter("waltz-storage.partition-2", "truncate-request").add(3)
    registry.meter("waltz-storage.partition-2", "append").mark(50)
    timer = registry.timer("waltz-storage.partition-2", "append-latency")
    timer.update(0.002)
    timer.update(0.004)
    clock.now_s += 10
    return registry


def test_http_document() -> None:
    document, _ = documents(full_registry())
    assert list(document) == ["version", "gauges", "counters", "histograms", "meters", "timers"]
    assert document["version"] == "4.0.0"
    assert document["gauges"] == {
        "waltz-storage.partition-2.session-id": {"value": 7},
        "waltz-storage.waltz-storage-partition-ids": {"value": [0, 2]},
    }
    assert list(document["gauges"]) == sorted(document["gauges"])
    assert document["counters"] == {"waltz-storage.partition-2.truncate-request": {"count": 3}}
    assert document["histograms"] == {}
    meter = document["meters"]["waltz-storage.partition-2.append"]
    assert set(meter) == {"count", "m15_rate", "m1_rate", "m5_rate", "mean_rate", "units"}
    assert (meter["count"], meter["mean_rate"], meter["units"]) == (50, 5.0, "events/second")
    timer = document["timers"]["waltz-storage.partition-2.append-latency"]
    assert set(timer) == {
        *("count", "max", "mean", "min", "p50", "p75", "p95", "p98", "p99", "p999", "stddev"),
        *("m15_rate", "m1_rate", "m5_rate", "mean_rate", "duration_units", "rate_units"),
    }
    assert (timer["count"], timer["min"], timer["max"]) == (2, 0.002, 0.004)
    assert timer["mean"] == pytest.approx(0.003)
    assert (timer["duration_units"], timer["rate_units"]) == ("seconds", "calls/second")


def test_admin_document() -> None:
    _, document = documents(full_registry())
    assert set(document) == {"gauges", "counters", "histograms", "meters", "timers", "metrics", "ids"}
    assert document["gauges"]["waltz-storage.waltz-storage-partition-ids"]["value"] == [0, 2]
    assert document["gauges"]["waltz-storage.partition-2.session-id"]["value"] == 7
    meter = document["meters"]["waltz-storage.partition-2.append"]
    assert set(meter) == {"count", "fifteenMinuteRate", "fiveMinuteRate", "meanRate", "oneMinuteRate"}
    timer = document["timers"]["waltz-storage.partition-2.append-latency"]
    assert set(timer) == {*meter, "snapshot"}
    assert timer["snapshot"]["values"] == [2_000_000, 4_000_000]
    assert (timer["snapshot"]["min"], timer["snapshot"]["max"]) == (2_000_000, 4_000_000)
    assert timer["snapshot"]["mean"] == pytest.approx(3_000_000)
    assert set(timer["snapshot"]) == {
        *("values", "min", "max", "mean", "stdDev", "median"),
        *("75thPercentile", "95thPercentile", "98thPercentile", "99thPercentile", "999thPercentile"),
    }
    assert len(document["metrics"]) == len(document["ids"]) == 5
    assert {
        "group": "waltz-storage.partition-2",
        "name": "append",
        "fullName": "waltz-storage.partition-2.append",
    } in document["ids"]


def test_a_failing_gauge_keeps_nobody_from_reading_the_others() -> None:
    registry, _ = new_registry()

    def fail() -> Json:
        raise RuntimeError("closed")

    registry.gauge("group", "fails", fail)
    registry.gauge("group", "not JSON", lambda: math.nan)
    registry.gauge("group", "works", lambda: {1: ["a"]})
    for document in documents(registry):
        assert document["gauges"]["group.fails"] == {"error": "RuntimeError: closed"}
        assert set(document["gauges"]["group.not JSON"]) == {"error"}
        assert document["gauges"]["group.works"] == {"value": {"1": ["a"]}}
    assert prometheus_text(registry) == ""


def test_prometheus_text() -> None:
    registry, _ = new_registry()
    for partition in (0, 1):
        registry.gauge(f"waltz-server.partition-{partition}", "high-water-mark", lambda: -1)
        registry.meter(f"waltz-server.partition-{partition}", "transaction").mark(partition + 5)
    registry.counter("waltz-server", "errors").add(2)
    registry.gauge("waltz-server", "is-closed", lambda: False)
    registry.gauge("waltz-server", "cluster-name", lambda: 'the "big"\\one\n')
    registry.gauge("waltz-server", "waltz-server-num-partitions", lambda: 2)
    registry.gauge("waltz-server", "replica-info", lambda: {0: ["a:1"]})
    registry.timer("waltz-server.partition-0", "response-latency").update(0.5)
    assert prometheus_text(registry) == (
        "# TYPE waltz_server_cluster_name_info gauge\n"
        'waltz_server_cluster_name_info{value="the \\"big\\"\\\\one\\n"} 1\n'
        "# TYPE waltz_server_errors_total counter\n"
        "waltz_server_errors_total 2\n"
        "# TYPE waltz_server_is_closed gauge\n"
        "waltz_server_is_closed 0\n"
        "# TYPE waltz_server_num_partitions gauge\n"
        "waltz_server_num_partitions 2\n"
        "# TYPE waltz_server_partition_high_water_mark gauge\n"
        'waltz_server_partition_high_water_mark{partition="0"} -1\n'
        'waltz_server_partition_high_water_mark{partition="1"} -1\n'
        "# TYPE waltz_server_partition_response_latency_seconds summary\n"
        'waltz_server_partition_response_latency_seconds{partition="0",quantile="0.5"} 0.5\n'
        'waltz_server_partition_response_latency_seconds{partition="0",quantile="0.75"} 0.5\n'
        'waltz_server_partition_response_latency_seconds{partition="0",quantile="0.95"} 0.5\n'
        'waltz_server_partition_response_latency_seconds{partition="0",quantile="0.99"} 0.5\n'
        'waltz_server_partition_response_latency_seconds{partition="0",quantile="0.999"} 0.5\n'
        'waltz_server_partition_response_latency_seconds_sum{partition="0"} 0.5\n'
        'waltz_server_partition_response_latency_seconds_count{partition="0"} 1\n'
        "# TYPE waltz_server_partition_transaction_total counter\n"
        'waltz_server_partition_transaction_total{partition="0"} 5\n'
        'waltz_server_partition_transaction_total{partition="1"} 6\n'
    )


def test_no_family_holds_samples_of_partitions_beside_those_of_the_node() -> None:
    registry, _ = new_registry()
    for group in ("waltz-server", "waltz-server.partition-0", "waltz-server.partition-1"):
        registry.gauge(group, "is-closed", lambda: True)
    assert prometheus_text(registry) == (
        "# TYPE waltz_server_is_closed gauge\n"
        "waltz_server_is_closed 1\n"
        "# TYPE waltz_server_partition_is_closed gauge\n"
        'waltz_server_partition_is_closed{partition="0"} 1\n'
        'waltz_server_partition_is_closed{partition="1"} 1\n'
    )


def test_a_gauge_that_counts_is_a_counter_for_prometheus() -> None:
    registry, _ = new_registry()
    registry.gauge("waltz-server.partition-0", "total-contexts-added", lambda: 3, GaugeForm(counts=True))
    for document in documents(registry):
        assert document["gauges"]["waltz-server.partition-0.total-contexts-added"] == {"value": 3}
    assert prometheus_text(registry) == (
        "# TYPE waltz_server_partition_contexts_added_total counter\n"
        'waltz_server_partition_contexts_added_total{partition="0"} 3\n'
    )


def test_a_mapping_whose_keys_are_known_has_a_sample_for_each() -> None:
    registry, _ = new_registry()
    group, form = "waltz-server.partition-0", GaugeForm(label="storage")
    registry.gauge(group, "lag", lambda: {"a:1": 0, "b:1": 12, "c:1": None}, form)
    registry.gauge(group, "state", lambda: {"a:1": "current", "b:1": "lagging"}, form)
    for document in documents(registry):
        assert document["gauges"][f"{group}.lag"] == {"value": {"a:1": 0, "b:1": 12, "c:1": None}}
    assert prometheus_text(registry) == (
        "# TYPE waltz_server_partition_lag gauge\n"
        'waltz_server_partition_lag{partition="0",storage="a:1"} 0\n'
        'waltz_server_partition_lag{partition="0",storage="b:1"} 12\n'
        "# TYPE waltz_server_partition_state_info gauge\n"
        'waltz_server_partition_state_info{partition="0",storage="a:1",value="current"} 1\n'
        'waltz_server_partition_state_info{partition="0",storage="b:1",value="lagging"} 1\n'
    )
    registry.remove_group(group)
    registry.gauge(group, "lag", lambda: {"a:1": 0})
    assert prometheus_text(registry) == ""


def test_durations_are_shown_to_the_microsecond() -> None:
    registry, _ = new_registry()
    registry.timer("waltz-server", "latency").update(0.0019999999999527063)
    assert 'waltz_server_latency_seconds{quantile="0.5"} 0.002\n' in prometheus_text(registry)
    timer = documents(registry)[0]["timers"]["waltz-server.latency"]
    assert {timer[name] for name in ("min", "mean", "max", "p50", "p999")} == {0.002}


def test_the_real_clock_is_the_default() -> None:
    timer: Timer = Registry().timer("group", "name")
    timer.update(0.25)
    assert timer.snapshot().values == [0.25]


@given(
    st.lists(st.floats(min_value=-10, max_value=10), min_size=1, unique=True).map(sorted),
    st.lists(st.tuples(st.floats(min_value=-20, max_value=20), st.integers(1, 5))),
    st.data(),
)
def test_a_histogram_counts_what_is_not_above_each_bound(
    bounds: list[float], observations: list[tuple[float, int]], data: st.DataObject
) -> None:
    observations += [(data.draw(st.sampled_from(bounds)), 1)]
    histogram = Histogram(tuple(bounds))
    for value, count in observations:
        histogram.observe(value, count)
    for position, bound in enumerate(bounds):
        below = sum(count for value, count in observations if value <= bound)
        assert sum(histogram.counts[: position + 1]) == below
    assert sum(histogram.counts) == sum(count for _, count in observations)
    assert histogram.total == pytest.approx(sum(value * count for value, count in observations))


ACKNOWLEDGED = Description("waltz_ack_seconds", "histogram", ("storage",), "How long.\nA \\ lot.")


def test_histograms_are_for_prometheus_only() -> None:
    registry, _ = new_registry()
    before = documents(registry)
    histograms = registry.histogram(ACKNOWLEDGED, (0.5, 1.0))
    assert registry.histogram(ACKNOWLEDGED, (0.5, 1.0)) is histograms
    assert histograms.of("a:1") is histograms.of("a:1")
    histograms.of("a:1").observe(0.5, 3)
    histograms.of("a:1").observe(7)
    histograms.of("b:1").observe(0.75)
    histograms.keep([("a:1",), ("c:1",)])
    registry.reading(Description("waltz_open", "gauge", (), "Now."), lambda: [((), 4)])
    registry.reading(Description("waltz_none", "gauge", (), "Nothing is shown without samples."), list)
    assert prometheus_text(registry) == (
        "# HELP waltz_ack_seconds How long.\\nA \\\\ lot.\n"
        "# TYPE waltz_ack_seconds histogram\n"
        'waltz_ack_seconds_bucket{storage="a:1",le="0.5"} 3\n'
        'waltz_ack_seconds_bucket{storage="a:1",le="1.0"} 3\n'
        'waltz_ack_seconds_bucket{storage="a:1",le="+Inf"} 4\n'
        'waltz_ack_seconds_sum{storage="a:1"} 8.5\n'
        'waltz_ack_seconds_count{storage="a:1"} 4\n'
        "# HELP waltz_open Now.\n"
        "# TYPE waltz_open gauge\n"
        "waltz_open 4\n"
    )
    assert documents(registry) == before


def test_what_is_described_has_help_and_may_have_another_name() -> None:
    registry, _ = new_registry()
    registry.describe([Description("waltz_server_memory_bytes", "gauge", (), "In use.")])
    registry.gauge("waltz-server", "memory", lambda: 5, GaugeForm(name="memory-bytes"))
    assert prometheus_text(registry) == (
        "# HELP waltz_server_memory_bytes In use.\n"
        "# TYPE waltz_server_memory_bytes gauge\n"
        "waltz_server_memory_bytes 5\n"
    )
    assert documents(registry)[0]["gauges"] == {"waltz-server.memory": {"value": 5}}


def of_partitions(count: int) -> Registry:
    """A registry like that of a node with so many partitions: a few metrics of each kind, some that fail."""
    registry, _ = new_registry()
    inner: dict[str, Json] = {"c": None}
    strange: dict[str, Json] = {"a\n": ["b", inner], "d": None}
    registry.gauge("waltz-server", 'a "strange" name\n', lambda: strange)
    for partition in range(count):
        group = f"waltz-server.partition-{partition}"
        registry.gauge(group, "mark", lambda: 5)
        registry.gauge(group, "fails", lambda: math.nan)
        registry.meter(group, "transaction").mark(partition)
        registry.timer(group, "latency").update(0.25)
        registry.counter(group, "requests").add()
    return registry


@pytest.mark.parametrize("pretty", [False, True])
@pytest.mark.parametrize("registry", [new_registry()[0], of_partitions(1), of_partitions(12)])
def test_json_in_pieces_is_that_of_the_whole(registry: Registry, pretty: bool) -> None:
    assert "".join(http_pieces(registry, pretty=pretty)) == to_json(http_document(registry), pretty=pretty)


@pytest.mark.parametrize("registry", [new_registry()[0], full_registry(), of_partitions(1), of_partitions(12)])
def test_the_admin_document_is_indented_and_consistent(registry: Registry) -> None:
    text = "".join(admin_pieces(registry))
    document = json.loads(text)
    assert text == json.dumps(document, indent=2)
    kinds = ("gauges", "counters", "histograms", "meters", "timers")
    assert list(document) == [*kinds, "metrics", "ids"]
    assert document["metrics"] == {name: entry for kind in kinds for name, entry in document[kind].items()}
    assert {each["fullName"] for each in document["ids"]} == set(document["metrics"])


def test_metrics_that_go_and_come_while_the_admin_document_is_made() -> None:
    registry = of_partitions(3)
    pieces = admin_pieces(registry)
    begin = [next(pieces) for _ in range(5)]
    registry.remove_group("waltz-server.partition-2")
    registry.counter("waltz-server.partition-7", "requests").add()
    document = json.loads("".join([*begin, *pieces]))
    assert {each["fullName"] for each in document["ids"]} == set(document["metrics"])
    assert "waltz-server.partition-2.latency" in document["timers"]
    assert not [name for name in document["metrics"] if "partition-7" in name]


def test_a_thousand_partitions_come_in_small_pieces() -> None:
    """Whoever sends them has others do their work in between; so no piece may be the work of many."""
    registry = of_partitions(1000)
    pieces = list(prometheus_pieces(registry))
    samples = [line for piece in pieces for line in piece.splitlines() if not line.startswith("#")]
    assert len(samples) == 1000 * (1 + 1 + 7 + 1)
    assert max(piece.count("\n") for piece in pieces) == 1
    assert len(list(http_pieces(registry))) > 5000
    assert len(list(admin_pieces(registry))) > 15000
