"""The units of systemd and the manifests of Kubernetes are what these take, and agree with what the daemons do.

What they run is run by ``python -m tests.package``.
"""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.integration.site import ROOT
from tests.package.kubernetes import KUBERNETES, MANIFESTS, SETS, VIEW, hosts, pod, resources
from tests.package.units import UNITS, setting
from waltz.cli.main import parser
from waltz.common.daemon import CLOSE_STEP_TIMEOUT_S
from waltz.storage.node.node import CLOSE_TIMEOUT_S

KINDS = ("server", "storage")
STEPS_OF_CLOSING = 8
"""Most steps in which a server or view node closes, each with a deadline."""
FOLDERS = [MANIFESTS, KUBERNETES / "external", VIEW, KUBERNETES / "zookeeper"]
ALL = [one for folder in FOLDERS for one in resources(folder)]
OLDEST, NEWEST = "1.29", "1.34"


# The page


def test_the_page_names_commands_and_files_that_there_are() -> None:
    page = (ROOT / "docs" / "deployment.md").read_text()
    commands = re.findall(r"^(?:\$|.* tools|.* --) waltz (.+?)(?: +#.*)?$", page, re.MULTILINE)
    assert len(commands) == 5
    for command in commands:
        parser().parse_args(command.split())
    files = re.findall(r"deploy/[\w./-]*\w", page)
    assert {"deploy/config", "deploy/systemd", "deploy/kubernetes/base"} <= set(files)
    for file in files:
        assert (ROOT / file).exists(), file


# systemd


@pytest.mark.parametrize("kind", [*KINDS, "archive", "mirror", "view"])
def test_systemd_takes_the_unit(kind: str, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("there is no systemd-analyze")
    unit = tmp_path / f"waltz-{kind}.service"
    there = f"/opt/waltz/bin/waltz-{kind}"
    unit.write_text((UNITS / unit.name).read_text().replace(there, "/bin/true"))

    def said(*command: str) -> str:
        result = subprocess.run([analyze, *command], capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        return result.stderr

    assert said("verify", str(unit)) == ""
    said("security", "--offline=true", "--threshold=20", str(unit))
    unit.write_text(unit.read_text().replace("ProtectSystem=", "ProtectSistem="))
    assert "Unknown key" in said("verify", str(unit))


def test_a_unit_waits_until_its_daemon_has_closed() -> None:
    def stop_s(kind: str) -> float:
        return float(setting(f"waltz-{kind}", "TimeoutStopSec").removesuffix("s"))

    assert stop_s("storage") > CLOSE_TIMEOUT_S
    assert stop_s("server") > STEPS_OF_CLOSING * CLOSE_STEP_TIMEOUT_S
    assert stop_s("view") > STEPS_OF_CLOSING * CLOSE_STEP_TIMEOUT_S


def test_nodes_may_write_into_their_directories() -> None:
    def sample(kind: str, key: str) -> object:
        return yaml.safe_load((ROOT / "deploy" / "config" / f"{kind}.yml").read_text())[key]

    assert sample("storage", "storage.directory") == f"/var/lib/{setting('waltz-storage', 'StateDirectory')}"
    assert sample("view", "view.directory") == f"/var/lib/{setting('waltz-view', 'StateDirectory')}"
    assert sample("archive", "archive.url") == f"file:///var/lib/{setting('waltz-archive', 'StateDirectory')}"


# Kubernetes


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("resource", ALL, ids=lambda one: f"{one['kind']}-{one['metadata']['name']}")
def test_kubernetes_takes_the_resource(resource: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(resource, version, strict=True)
    wrong = resource | {"spec": {**resource.get("spec", {}), "replicaz": 3}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, version, strict=True)


@pytest.mark.parametrize("directory", FOLDERS, ids=lambda path: path.name)
def test_kustomize_puts_everything_together(directory: Path) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl")
    result = subprocess.run([kubectl, "kustomize", directory], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    made = list(yaml.safe_load_all(result.stdout))
    for one in made:
        kubernetes_validate.validate(one, NEWEST, strict=True)
        assert one["kind"] == "Namespace" or one["metadata"]["namespace"] == "waltz"
    files = {one["metadata"]["name"]: one["data"] for one in made if one["kind"] == "ConfigMap"}
    wanted = [*resources(directory), *(resources() if directory.name == "external" else ())]
    assert len(made) == len(wanted) + len(files)
    assert len(files) == (directory.name != "zookeeper")
    assert "image: waltz\n" not in result.stdout


PODS = [one for one in ALL if one["kind"] in ("Job", "StatefulSet")]


@pytest.mark.parametrize("resource", PODS, ids=lambda one: one["metadata"]["name"])
def test_pods_have_no_rights_that_they_do_not_need(resource: dict[str, Any]) -> None:
    template = resource["spec"]["template"]["spec"]
    assert template["securityContext"]["runAsNonRoot"] is True
    assert template["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert template["automountServiceAccountToken"] is False
    assert template["enableServiceLinks"] is False  # WALTZ_SERVER_PORT would be one of them
    for container in (*template.get("initContainers", []), *template["containers"]):
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"].keys() == {"requests", "limits"}
        if container["image"] == "waltz":
            assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_the_images_user_is_the_pods() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    (user,) = (line.removeprefix("USER ") for line in lines if line.startswith("USER "))
    for kind, name in (("Job", "waltz-create"), *(("StatefulSet", name) for name in SETS)):
        context = pod(kind, name)["securityContext"]
        assert user == f"{context['runAsUser']}:{context['runAsGroup']}"
        assert context["fsGroup"] == context["runAsGroup"]


def test_a_pod_may_take_as_long_as_its_hook_and_its_daemon() -> None:
    server, storage = pod("StatefulSet", "waltz-server"), pod("StatefulSet", "waltz-storage")
    hook = server["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][2]
    drain_s = float(hook.partition("timeout ")[2].split()[0])
    assert server["terminationGracePeriodSeconds"] > drain_s + STEPS_OF_CLOSING * CLOSE_STEP_TIMEOUT_S
    assert storage["terminationGracePeriodSeconds"] > CLOSE_TIMEOUT_S
    view = pod("StatefulSet", "waltz-view")
    assert view["terminationGracePeriodSeconds"] > STEPS_OF_CLOSING * CLOSE_STEP_TIMEOUT_S


def test_a_storage_is_never_killed_for_being_slow() -> None:
    (container,) = pod("StatefulSet", "waltz-storage")["containers"]
    assert not container.keys() & {"livenessProbe", "startupProbe"}
    assert container["readinessProbe"]["httpGet"]["path"] == "/health"


@pytest.mark.parametrize("name", ["waltz-server", "waltz-view"])
def test_a_node_without_own_data_is_killed_only_when_it_does_not_answer(name: str) -> None:
    (container,) = pod("StatefulSet", name)["containers"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/ping"
    assert container["readinessProbe"]["httpGet"]["path"] == "/health"


@pytest.mark.parametrize("folder", [MANIFESTS, VIEW], ids=lambda path: path.name)
def test_sets_have_the_names_and_ports_that_they_tell(folder: Path) -> None:
    """The name of a pod is one of its set's service, and its ports are those of its configuration."""
    services = {one["metadata"]["name"]: one["spec"] for one in resources(folder) if one["kind"] == "Service"}
    for name in (each for each, place in SETS.items() if place == folder):
        (container,) = pod("StatefulSet", name)["containers"]
        kind = name.removeprefix("waltz-")
        config = yaml.safe_load((folder / "config" / f"{kind}.yml").read_text())
        ports = {port for key, port in config.items() if key.endswith("port")}
        assert {each["containerPort"] for each in container["ports"]} == ports
        assert {each["port"] for each in services[name]["ports"]} == ports
        told = {each["value"] for each in container.get("env", []) if each["name"].endswith("_HOST")}
        assert told <= {f"$(POD_NAME).{name}.waltz.svc"}


def test_the_job_creates_the_storages_that_there_are() -> None:
    (container,) = pod("Job", "waltz-create")["initContainers"]
    given = [word.partition("=")[2] for word in container["command"] if word.startswith("--storage=")]
    assert given == [f"{host}:6000:6100" for host in hosts("waltz-storage")]


def test_one_pod_at_a_time_is_disturbed() -> None:
    budgets = {one["metadata"]["name"]: one["spec"] for one in ALL if one["kind"] == "PodDisruptionBudget"}
    for name in SETS:
        assert budgets[name]["maxUnavailable"] == 1
        assert budgets[name]["selector"]["matchLabels"] == {"app.kubernetes.io/name": name}
