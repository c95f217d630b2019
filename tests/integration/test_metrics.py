"""Scrapes of real nodes, healthy and not, against what the code, the alerts and the dashboard say of them."""

import asyncio
import itertools
import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

import waltz
from tests.metrics_page import BOTH, PAGE, SERVER, STORAGE
from tests.promql import Sample, labels_of_targets, matching, samples, selectors
from tests.unit.test_metrics_page import ALERTS, DASHBOARD, SAMPLE, expressions, rules
from waltz.archive.process.archive_metrics import ArchiveMetrics
from waltz.archive.process.due import Backlog
from waltz.client.mock import MockDriver
from waltz.common.metrics.exposition import prometheus_pieces, prometheus_text
from waltz.common.metrics.registry import Description, Registry
from waltz.local.cluster import LocalCluster
from waltz.local.layout import Node
from waltz.mirror.lag import Lag
from waltz.mirror.mirror_metrics import MirrorState, PartitionState, Stage, show_metrics
from waltz.view.view_metrics import PartitionState as ViewState
from waltz.view.view_metrics import ViewMetrics

pytestmark = pytest.mark.integration

TIMEOUT_S = 60.0
APPENDS = 50
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="no promtool; Debian has it in the package prometheus")


class Scrape(NamedTuple):
    """One scrape of Prometheus: the answers by node, without the nodes that do not answer."""

    texts: Mapping[str, str | None]

    def of(self, kind: str) -> list[str]:
        """The texts of the nodes of a kind that answer."""
        return [text for name, text in self.texts.items() if name.startswith(kind) and text is not None]

    @property
    def samples(self) -> list[Sample]:
        """All samples, with the labels of their targets, and ``up``."""
        found = []
        for name, text in self.texts.items():
            target = {"job": f"waltz-{name.partition('-')[0]}", "instance": name, "cluster": "local"}
            found.append(Sample("up", target, float(text is not None)))
            found += samples(text or "", **target)
        return found

    def value(self, name: str) -> float:
        """The sum of the samples of a name."""
        return sum(sample.value for sample in self.samples if sample.name == name)


def get(node: Node, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{node.http_port}{path}", timeout=TIMEOUT_S) as response:
        return str(response.read().decode())


def scrape(cluster: LocalCluster) -> Scrape:
    running = cluster.processes()
    nodes = (*cluster.layout.servers, *cluster.layout.storages)
    return Scrape({n.name: get(n, "/metrics/prometheus") if n.name in running else None for n in nodes})


async def scrape_until(cluster: LocalCluster, condition: Callable[[Scrape], bool]) -> Scrape:
    async with asyncio.timeout(TIMEOUT_S):
        while not condition(found := await asyncio.to_thread(scrape, cluster)):
            await asyncio.sleep(0.1)
    return found


async def append_and_feed(cluster: LocalCluster) -> None:
    async with asyncio.timeout(TIMEOUT_S), waltz.connect(str(cluster.layout.client_config_path)) as client:
        for partition in range(cluster.layout.partitions):
            for number in range(APPENDS):
                await client.append(partition, b"x%d" % number)
            count = 0
            async for _ in client.feed(partition, after=-1):
                count += 1
                if count == APPENDS:
                    break


class Course(NamedTuple):
    """A cluster's scrapes while one thing after the other is wrong."""

    healthy: Scrape
    zookeeper_away: Scrape
    storage_away: Scrape
    no_quorum: Scrape
    documents: Mapping[str, Mapping[str, Mapping[str, object]]]
    """The JSON of a server and a storage."""
    logs: Mapping[str, str]
    """The JSON log lines of the nodes at the end."""


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Course]:
    directory = tmp_path_factory.mktemp("metrics")
    with LocalCluster(directory, storages=3, servers=1, partitions=2, log_format="json") as cluster:
        asyncio.run(append_and_feed(cluster))
        nodes = {"server": cluster.layout.servers[0], "storage": cluster.layout.storages[0]}
        documents = {kind: json.loads(get(node, "/metrics")) for kind, node in nodes.items()}

        def all_replicas(found: Scrape) -> bool:
            return found.value("waltz_server_under_replicated_partitions") == 0

        def all_times(found: Scrape) -> bool:
            """The owner tells the storages once a second what is committed."""
            times = [each for each in found.samples if each.name == "waltz_storage_partition_commit_time_seconds"]
            return len(times) == len(cluster.layout.storages) * cluster.layout.partitions

        healthy = asyncio.run(scrape_until(cluster, lambda found: all_replicas(found) and all_times(found)))
        cluster.kill("zookeeper")
        connected = "waltz_server_zookeeper_connected"
        zookeeper_away = asyncio.run(scrape_until(cluster, lambda found: found.value(connected) == 0))
        cluster.start_zookeeper()
        asyncio.run(
            scrape_until(
                cluster,
                lambda found: found.value(connected) == 1 and found.value("waltz_server_num_partitions") == 2,
            )
        )
        asyncio.run(scrape_until(cluster, all_replicas))
        cluster.kill(cluster.layout.storages[2])
        under_replicated = "waltz_server_under_replicated_partitions"
        storage_away = asyncio.run(scrape_until(cluster, lambda found: found.value(under_replicated) == 2))
        cluster.kill(cluster.layout.storages[1])
        unhealthy = "waltz_server_unhealthy_partitions"
        no_quorum = asyncio.run(scrape_until(cluster, lambda found: found.value(unhealthy) == 2))
        names = [node.name for node in (*cluster.layout.servers, *cluster.layout.storages)]
        logs = {name: cluster.layout.log_path(name).read_text() for name in names}
        yield Course(healthy, zookeeper_away, storage_away, no_quorum, documents, logs)


OF_CHOICES = ("waltz_storage_journal_", "waltz_acl_")
"""How the metrics begin of what is off by default."""


def by_default(*described: Mapping[str, Description]) -> dict[str, Description]:
    """The metrics of a node without journal and access rules."""
    return {name: each for part in described for name, each in part.items() if not name.startswith(OF_CHOICES)}


@pytest.mark.parametrize(
    ("kind", "known"), [("server", by_default(SERVER, BOTH)), ("storage", by_default(STORAGE, BOTH))]
)
def test_a_scrape_has_what_is_described_and_nothing_else(
    course: Course, kind: str, known: Mapping[str, Description]
) -> None:
    for text in course.healthy.of(kind):
        described = dict(re.findall(r"^# HELP (\w+) (.*)$", text, flags=re.MULTILINE))
        kinds = dict(re.findall(r"^# TYPE (\w+) (.*)$", text, flags=re.MULTILINE))
        labels: dict[str, set[str]] = {name: set() for name in kinds}
        for sample in samples(text):
            family = sample.name
            if family not in kinds:
                family = re.sub(r"_(bucket|sum|count)$", "", family)
            labels[family] |= set(sample.labels)
        assert set(kinds) == set(known)
        for name in kinds:
            each = known[name]
            assert (described[name], kinds[name]) == (each.meaning, each.kind)
            assert labels[name] == {*each.labels, *(("le",) if each.kind == "histogram" else ())}, name
        assert len(list(text_string_to_metric_families(text))) == len(kinds), "as Prometheus' own library reads it"


def test_what_was_done_is_counted(course: Course) -> None:
    value = course.healthy.value
    appends = 2 * APPENDS
    assert value("waltz_server_partition_successful_append_total") == appends
    assert value("waltz_server_append_seconds_count") == appends
    assert 0 < value("waltz_server_quorum_seconds_count") <= appends
    assert value("waltz_server_replica_acknowledgement_seconds_count") >= 2 * value("waltz_server_quorum_seconds_count")
    assert value("waltz_server_feed_lag_transactions_count") > 0
    assert value("waltz_storage_append_seconds_count") >= 2 * value("waltz_server_quorum_seconds_count")
    assert 0 < value("waltz_storage_sync_seconds_count") <= value("waltz_storage_append_seconds_count")
    assert value("waltz_received_bytes_total") > appends * 2
    assert value("waltz_tls_handshake_failures_total") == 0
    assert value("waltz_server_zookeeper_state") == 1
    assert value("process_cpu_seconds_total") > 0


@pytest.mark.parametrize("kind", ["server", "storage"])
def test_there_are_not_more_samples_than_the_page_says(course: Course, kind: str) -> None:
    """What grows with the partitions, and with the storages, of a scrape; the rest is the same for every node."""
    counts = [int(number.replace(",", "")) for number in re.findall(r"\*\*([\d,]+)\*\*", PAGE.read_text())]
    of_partition, of_storage, of_process = counts[:3] if kind == "server" else (counts[3], 0, counts[4])
    for text in course.healthy.of(kind):
        found = samples(text)
        partitions = [sample for sample in found if "partition" in sample.labels]
        storages = [sample for sample in found if "storage" in sample.labels and "partition" not in sample.labels]
        assert len(partitions) / 2 == of_partition
        assert len(storages) / 3 == of_storage
        assert len(found) - len(partitions) - len(storages) == of_process


SERVER_JSON = {"append-memory", "cluster-name", "endpoint", "feed-cache-miss", "is-closed", "replica-info", "server-id"}
SERVER_JSON |= {"transaction-cache-miss", "under-replicated-partitions", "unhealthy-partitions", "waltz-version-id"}
SERVER_JSON |= {"waltz-server-num-partitions", "zookeeper-connected"}
STORAGE_JSON = {"damaged-partition-ids", "free-bytes", "num-damaged-partitions", "num-out-of-service-partitions"}
STORAGE_JSON |= {"num-partitions", "out-of-service-partition-ids", "partition-ids", "scanned-bytes"}
STORAGE_JSON |= {"health", "num-stalled-partitions", "stalled-partition-ids"}
STORAGE_JSON = {f"waltz-storage-{name}" for name in STORAGE_JSON} | {"waltz-version-id"}


@pytest.mark.parametrize(("kind", "names"), [("server", SERVER_JSON), ("storage", STORAGE_JSON)])
def test_json_has_the_names_that_it_always_had(course: Course, kind: str, names: set[str]) -> None:
    document = course.documents[kind]
    assert list(document) == ["version", "gauges", "counters", "histograms", "meters", "timers"]
    assert document["histograms"] == {}
    of_node = {
        name.removeprefix(f"waltz-{kind}.")
        for section in ("gauges", "counters", "meters", "timers")
        for name in document[section]
        if ".partition-" not in name
    }
    assert of_node == names


def archiver_samples() -> list[Sample]:
    """A scrape of an archiver's own metrics."""
    registry = Registry()
    ArchiveMetrics(registry).backlogs = {0: Backlog(7, 3, 1000, 50.0)}
    return samples("".join(prometheus_pieces(registry)), job="waltz-archive", instance="archive", cluster="local")


def mirror_samples() -> list[Sample]:
    """A scrape of a mirror's own metrics."""
    registry = Registry()
    show_metrics(registry, MirrorState({0: PartitionState(Stage.WORKING, lag=Lag(3, 1000))}), lambda: 2000)
    return samples("".join(prometheus_pieces(registry)), job="waltz-mirror", instance="mirror", cluster="local")


def view_samples() -> list[Sample]:
    """A scrape of a view node's own metrics."""
    registry = Registry()
    ViewMetrics(registry, lambda: [ViewState(0, applied=7, rows=3, served=True)])
    return samples("".join(prometheus_pieces(registry)), job="waltz-view", instance="view", cluster="local")


def client_samples() -> list[Sample]:
    """The metrics of a client, which applications have scraped."""

    async def read() -> str:
        async with waltz.connect(MockDriver(1)) as client:
            await client.append(0, b"a")
            return prometheus_text(client.metrics)

    return samples(asyncio.run(read()), job="application", instance="client", cluster="local")


def test_all_that_alerts_and_dashboard_ask_for_is_in_a_scrape(course: Course) -> None:
    found: dict[str, set[str]] = {}
    others = (archiver_samples(), mirror_samples(), view_samples(), client_samples())
    for sample in [*course.healthy.samples, *itertools.chain(*others)]:
        found.setdefault(sample.name, set()).update(sample.labels)
    for expression in expressions():
        for name, labels in selectors(promql_parser.parse(expression)):
            if name.startswith(OF_CHOICES):
                continue
            assert name in found, f"nobody has {name}: {expression}"
            assert labels <= {*found[name], *labels_of_targets}, expression


def firing(found: Scrape) -> set[str]:
    """The alerts whose simple expressions are true of a scrape."""
    return {rule["alert"] for rule in rules() if matching(rule["expr"], found.samples)}


def test_alerts_tell_what_is_wrong(course: Course) -> None:
    assert firing(course.healthy) == set()
    assert firing(course.zookeeper_away) == {"WaltzZooKeeperAway"}
    assert firing(course.storage_away) == {"WaltzNodeDown", "WaltzPartitionUnderReplicated"}
    assert firing(course.no_quorum) == {"WaltzNodeDown", "WaltzPartitionUnderReplicated", "WaltzPartitionUnhealthy"}


def test_all_that_nodes_log_is_json(course: Course) -> None:
    """Also about what breaks, with the places that it is about."""
    lines = {name: [json.loads(line) for line in log.splitlines()] for name, log in course.logs.items()}
    for name in ("server-1", "storage-1"):
        assert lines[name]
        assert {"time", "level", "logger", "message"} <= set.intersection(*map(set, lines[name]))
    server = lines["server-1"]
    assert any("is up at" in line["message"] and line["cluster"] == "local" for line in server)
    away = [line for line in server if re.search(r"replica \S+ is away", line["message"])]
    assert {line["partition"] for line in away} == {0, 1}
    assert all(line["storage"] in line["message"] for line in away)
    assert any(line["logger"].startswith("waltz.common.zk") or "kazoo" in line["logger"] for line in server)


# With Prometheus' own tool


def promtool(*arguments: str, given: str = "") -> None:
    assert PROMTOOL is not None
    ended = subprocess.run([PROMTOOL, *arguments], input=given, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert not given or not ended.stderr, ended.stderr


@needs_promtool
def test_rules_sample_and_names_are_in_order(course: Course) -> None:
    promtool("check", "rules", str(ALERTS))
    promtool("check", "config", str(SAMPLE))
    for text in (*course.healthy.of("server"), *course.healthy.of("storage")):
        promtool("check", "metrics", given=text)


def line_of(sample: Sample) -> str:
    return sample.name + "{" + ", ".join(f"{name}={json.dumps(text)}" for name, text in sample.labels.items()) + "}"


def rule_test(series: Mapping[str, str], expected: set[str]) -> dict[str, object]:
    """That exactly these alerts fire after an hour, samples being a minute apart."""
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": 'group by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": "1h",
                "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(expected)],
            }
        ],
    }


def run_rule_tests(tmp_path: Path, tests: list[dict[str, object]]) -> None:
    path = tmp_path / "tests.yml"
    path.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    promtool("test", "rules", str(path))


@needs_promtool
def test_alerts_fire_when_it_stays_as_it_was_scraped(course: Course, tmp_path: Path) -> None:
    alerts = [
        (course.healthy, set[str]()),
        (course.zookeeper_away, {"WaltzZooKeeperAway"}),
        (course.storage_away, {"WaltzNodeDown", "WaltzPartitionUnderReplicated"}),
        (course.no_quorum, {"WaltzNodeDown", "WaltzPartitionUnderReplicated", "WaltzPartitionUnhealthy"}),
    ]
    tests = [
        rule_test({line_of(sample): f"{sample.value:g}x60" for sample in found.samples}, expected)
        for found, expected in alerts
    ]
    run_rule_tests(tmp_path, tests)


SERVER_TARGET = 'cluster="c",job="waltz-server",instance="s:1"'
STORAGE_TARGET = 'cluster="c",job="waltz-storage",instance="d:1"'
ARCHIVE_TARGET = 'cluster="c",job="waltz-archive",instance="a:1"'
MIRROR_TARGET = 'cluster="c",job="waltz-mirror",instance="m:1"'


def slow(name: str, target: str) -> dict[str, str]:
    """A histogram with ten observations a minute, all of them between 1 and 2.5 s."""
    return {
        f'{name}_bucket{{{target},le="1.0"}}': "0x60",
        f'{name}_bucket{{{target},le="2.5"}}': "0+10x60",
        f'{name}_bucket{{{target},le="+Inf"}}': "0+10x60",
    }


FIRING: dict[str, dict[str, str]] = {
    "WaltzNodeDown": {f"up{{{SERVER_TARGET}}}": "0x60"},
    "WaltzPartitionUnhealthy": {f"waltz_server_unhealthy_partitions{{{SERVER_TARGET}}}": "1x60"},
    "WaltzPartitionsWithoutServer": {
        f'waltz_storage_partition_flags{{{STORAGE_TARGET},partition="0"}}': "5x60",
        f'waltz_storage_partition_flags{{{STORAGE_TARGET},partition="1"}}': "5x60",
        f"waltz_server_num_partitions{{{SERVER_TARGET}}}": "1x60",
    },
    "WaltzZooKeeperAway": {f"waltz_server_zookeeper_connected{{{SERVER_TARGET}}}": "0x60"},
    "WaltzZooKeeperSessionsLost": {f"waltz_server_zookeeper_session_losses_total{{{SERVER_TARGET}}}": "0+1x60"},
    "WaltzPartitionUnderReplicated": {f"waltz_server_under_replicated_partitions{{{SERVER_TARGET}}}": "1x60"},
    "WaltzReplicaRefused": {
        f'waltz_server_partition_replica_state_info{{{SERVER_TARGET},partition="0",value="refused"}}': "1x60"
    },
    "WaltzPartitionOutOfService": {f"waltz_storage_num_out_of_service_partitions{{{STORAGE_TARGET}}}": "1x60"},
    "WaltzDiskStalled": {f"waltz_storage_num_stalled_partitions{{{STORAGE_TARGET}}}": "1x60"},
    "WaltzRecordsDamaged": {f"waltz_storage_num_damaged_partitions{{{STORAGE_TARGET}}}": "1x60"},
    "WaltzDiskAlmostFull": {f"waltz_storage_free_bytes{{{STORAGE_TARGET}}}": "1000000000x60"},
    "WaltzDiskFillsUp": {f"waltz_storage_free_bytes{{{STORAGE_TARGET}}}": "900000000000-1000000000x60"},
    "WaltzAppendsSlow": slow("waltz_server_append_seconds", SERVER_TARGET),
    "WaltzSyncSlow": slow("waltz_storage_sync_seconds", STORAGE_TARGET),
    "WaltzAppendsRefused": {f'waltz_server_partition_refused_append_total{{{SERVER_TARGET},partition="0"}}': "0+1x60"},
    "WaltzAppendsDropped": {
        f'waltz_server_partition_dropped_exclusive_total{{{SERVER_TARGET},partition="0"}}': "0+1x60"
    },
    "WaltzFencesTooOften": {f'waltz_server_partition_fences_total{{{SERVER_TARGET},partition="0"}}': "0+2x60"},
    "WaltzReplicaLate": {
        f'waltz_server_partition_replica_lag_seconds{{{SERVER_TARGET},partition="0",storage="s:1"}}': "90x60"
    },
    "WaltzConsumerLate": {f'waltz_client_partition_lag_seconds{{{SERVER_TARGET},client="7",partition="0"}}': "90x60"},
    "WaltzClientLags": {f'waltz_server_partition_feed_lag_transactions{{{SERVER_TARGET},partition="0"}}': "200000x60"},
    "WaltzClientLate": {f'waltz_server_partition_feed_lag_seconds{{{SERVER_TARGET},partition="0"}}': "90x60"},
    "WaltzArchiveStoreAway": {f"waltz_archive_store_available{{{ARCHIVE_TARGET}}}": "0x60"},
    "WaltzArchiveLate": {f'waltz_archive_lag_seconds{{{ARCHIVE_TARGET},partition="0"}}': "7200x60"},
    "WaltzMirrorLate": {f'waltz_mirror_lag_seconds{{{MIRROR_TARGET},partition="0"}}': "600x60"},
    "WaltzMirrorStopped": {f'waltz_mirror_stopped{{{MIRROR_TARGET},partition="0"}}': "1x60"},
    "WaltzMirrorClusterAway": {f"waltz_mirror_source_available{{{MIRROR_TARGET}}}": "0x60"},
    "WaltzEventLoopLate": slow("waltz_event_loop_lag_seconds", SERVER_TARGET),
    "WaltzDescriptorsShort": {
        f"process_open_fds{{{SERVER_TARGET}}}": "900x60",
        f"process_max_fds{{{SERVER_TARGET}}}": "1000x60",
    },
    "WaltzConnectionsRefused": {f'waltz_connections_refused_total{{{SERVER_TARGET},port="client"}}': "0+1x60"},
    "WaltzTlsFailures": {f'waltz_tls_handshake_failures_total{{{SERVER_TARGET},port="client"}}': "0+5x60"},
    "WaltzAccessRulesDiffer": {
        f"waltz_acl_version{{{SERVER_TARGET}}}": "3x60",
        f"waltz_acl_version{{{STORAGE_TARGET}}}": "2x60",
    },
    "WaltzAccessFilesUnusable": {f"waltz_acl_token_files_unusable{{{SERVER_TARGET}}}": "1x60"},
    "WaltzTlsStoreUnusable": {f'waltz_tls_stores_unusable{{{SERVER_TARGET},port="client"}}': "1x60"},
}
"""For each alert the changed samples that make it fire, and no other alert."""


OTHER_CLUSTER = STORAGE_TARGET.replace('cluster="c"', 'cluster="d"')

ACCESS_RULES: list[tuple[dict[str, str], set[str]]] = [
    (
        {
            f"waltz_acl_version{{{SERVER_TARGET}}}": "3x60",
            f"waltz_acl_version{{{STORAGE_TARGET}}}": "3x60",
            f"waltz_acl_version{{{OTHER_CLUSTER}}}": "7x60",
            f"waltz_acl_names_version{{{SERVER_TARGET}}}": "1x60",
            f"waltz_acl_names_version{{{STORAGE_TARGET}}}": "1x60",
        },
        set(),
    ),
    (
        {
            f"waltz_acl_version{{{SERVER_TARGET}}}": "3x60",
            f"waltz_acl_version{{{STORAGE_TARGET}}}": "3x60",
            f"waltz_acl_names_version{{{SERVER_TARGET}}}": "1x60",
            f"waltz_acl_names_version{{{STORAGE_TARGET}}}": "-1x60",
        },
        {"WaltzAccessRulesDiffer"},
    ),
    ({f"waltz_acl_unusable{{{STORAGE_TARGET}}}": "1x60"}, {"WaltzAccessFilesUnusable"}),
]
"""Nodes that apply the same rules as others of their cluster; the same rules with other names; rules that are wrong."""


@needs_promtool
def test_every_alert_can_fire(tmp_path: Path) -> None:
    assert set(FIRING) == {rule["alert"] for rule in rules()}
    tests = [rule_test(series, {name}) for name, series in FIRING.items()]
    run_rule_tests(tmp_path, [*tests, *(rule_test(series, expected) for series, expected in ACCESS_RULES)])


def test_the_dashboard_names_no_cluster_of_this_machine() -> None:
    assert "localhost" not in DASHBOARD.read_text()
