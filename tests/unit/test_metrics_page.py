"""docs/metrics.md, the alerts and the dashboard say the same as the code."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

import promql_parser
import pytest
import yaml

from tests import metrics_page
from tests.architecture import ROOT
from tests.promql import labels_of_targets, selectors
from waltz.common.metrics.registry import Description
from waltz.common.replica_states import RUNBOOK
from waltz.common.storage_health import StorageHealth, find_ailments
from waltz.telemetry.help import help_text

ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
SAMPLE = ROOT / "deploy" / "prometheus" / "scrape.yml"
WITH_TLS = ROOT / "deploy" / "prometheus" / "scrape-tls.yml"
IN_KUBERNETES = ROOT / "deploy" / "prometheus" / "scrape-kubernetes.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "waltz.json"

CLIENT_LAG = Description(
    "waltz_client_partition_lag_seconds", "gauge", ("client", "partition"), help_text("lag-seconds")
)
KNOWN = {
    **metrics_page.SERVER,
    **metrics_page.STORAGE,
    **metrics_page.ARCHIVE,
    **metrics_page.MIRROR,
    **metrics_page.VIEW,
    **metrics_page.BOTH,
    CLIENT_LAG.name: CLIENT_LAG,
}


class Rule(TypedDict):
    """One alert."""

    alert: str
    expr: str
    labels: dict[str, str]
    annotations: dict[str, str]


def rules() -> list[Rule]:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    return list(group["rules"])


def panels() -> list[dict[str, object]]:
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in rules())
    for panel in panels():
        targets = panel["targets"]
        assert isinstance(targets, list)
        yield from (target["expr"].replace("$__rate_interval", "5m") for target in targets)


def test_the_page_has_the_tables_of_the_code() -> None:
    """Renewed by ``python -m tests.metrics_page``."""
    page = metrics_page.PAGE.read_text()
    assert page == metrics_page.drawn(page)


def test_names_have_the_units_that_convention_asks_for() -> None:
    for each in KNOWN.values():
        assert re.fullmatch(r"(waltz|process)(_[a-z]+)+", each.name)
        assert each.name.endswith("_total") == (each.kind == "counter"), each.name
        assert each.meaning.endswith(".")
        if each.kind in ("summary", "histogram"):
            assert each.name.endswith(("_seconds", "_transactions")), each.name


def test_expressions_name_what_there_is() -> None:
    """By what the code says of it; the scrapes of real nodes are compared with that as well."""
    used = set()
    for expression in expressions():
        for name, labels in selectors(promql_parser.parse(expression)):
            if name == "up":
                continue
            family = re.sub(r"_(bucket|sum|count)$", "", name)
            assert family in KNOWN, expression
            extra = {"le"} if family != name else set()
            assert labels <= {*KNOWN[family].labels, *labels_of_targets, *extra}, expression
            used.add(family)
    assert len(used) > 30


def test_every_alert_says_what_to_do_and_where_it_is_explained() -> None:
    sections = re.findall(r"^### (Waltz\w+)$", metrics_page.PAGE.read_text(), flags=re.MULTILINE)
    assert [rule["alert"] for rule in rules()] == sections
    for rule in rules():
        annotations = rule["annotations"]
        assert annotations["summary"].endswith(".")
        assert annotations["action"].endswith(".")
        assert annotations["runbook"] == f"docs/metrics.md#{rule['alert'].lower()}"
        assert rule["labels"] in ({"severity": "critical"}, {"severity": "warning"})


@pytest.mark.parametrize(
    ("alert", "health"),
    [
        ("WaltzPartitionOutOfService", StorageHealth({0: "fsync failed"})),
        ("WaltzRecordsDamaged", StorageHealth(damaged={0: "transactions 30 to 30"})),
        ("WaltzDiskStalled", StorageHealth(stalled={0: "a write has not ended for 12 s"})),
        ("WaltzDiskAlmostFull", StorageHealth(disk="the disk is almost full")),
    ],
)
def test_alerts_say_what_status_and_health_say(alert: str, health: StorageHealth) -> None:
    (action,) = [rule["annotations"]["action"] for rule in rules() if rule["alert"] == alert]
    (ailment,) = find_ailments(health, "HOST:ADMIN_PORT")
    assert ailment.remedy.do.replace("-p 0", "-p PARTITION").lower() in action.lower()
    assert f"({RUNBOOK}#{ailment.remedy.section})" in action


def test_the_dashboard_can_be_imported() -> None:
    """Every panel takes the data source that is chosen, has a place of its own, and says what it shows."""
    dashboard = json.loads(DASHBOARD.read_text())
    assert [each["name"] for each in dashboard["templating"]["list"]] == ["datasource", "cluster"]
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
    for panel in panels():
        assert panel["description"]
        targets = panel["targets"]
        assert isinstance(targets, list)
        for target in targets:
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert 'cluster=~"$cluster"' in target["expr"]
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    ("path", "jobs"),
    [
        (SAMPLE, ["waltz-server", "waltz-storage", "waltz-archive", "waltz-view", "waltz-mirror"]),
        (WITH_TLS, ["waltz-server", "waltz-storage"]),
    ],
)
def test_the_samples_scrape_the_jobs_that_the_expressions_name(path: Path, jobs: list[str]) -> None:
    sample = yaml.safe_load(path.read_text())
    assert [job["job_name"] for job in sample["scrape_configs"]] == jobs
    assert sample["rule_files"] == [ALERTS.name]
    for job in sample["scrape_configs"]:
        assert job["metrics_path"] == "/metrics/prometheus"
        assert set(job["static_configs"][0]["labels"]) < labels_of_targets


def test_prometheus_shows_who_it_is_over_tls_only() -> None:
    for job in yaml.safe_load(WITH_TLS.read_text())["scrape_configs"]:
        assert job["scheme"] == "https"
        assert job["tls_config"]["ca_file"]
        assert ("cert_file" in job["tls_config"]) != ("authorization" in job)


def test_pods_of_the_manifests_become_these_jobs() -> None:
    (job,) = yaml.safe_load(IN_KUBERNETES.read_text())["scrape_configs"]
    keep, *relabels = job["relabel_configs"]
    assert {each["target_label"] for each in relabels} == labels_of_targets
    for name in ("server", "storage"):
        manifests = yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "base" / f"{name}.yaml").read_text())
        (pod,) = [each["spec"]["template"] for each in manifests if each["kind"] == "StatefulSet"]
        app = pod["metadata"]["labels"]["app.kubernetes.io/name"]
        assert app == f"waltz-{name}"
        ports = [port["name"] for container in pod["spec"]["containers"] for port in container["ports"]]
        kept = [port for port in ports if re.fullmatch(keep["regex"], f"{app};{port}")]
        assert kept == ["http"], "each node is scraped once"
        assert job["metrics_path"] == pod["metadata"]["annotations"]["prometheus.io/path"]
