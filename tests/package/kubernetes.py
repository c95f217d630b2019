"""What the manifests of Kubernetes run: the job, as many storages and servers as there are to be, probes, hooks."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.integration.site import ROOT, Site
from waltz.local.processes import Child, Children
from waltz.local.zookeeper import LocalZooKeeper

KUBERNETES = ROOT / "deploy" / "kubernetes"
MANIFESTS = KUBERNETES / "base"
VIEW = KUBERNETES / "view"
SETS = {"waltz-storage": MANIFESTS, "waltz-server": MANIFESTS, "waltz-view": VIEW}
"""The sets of pods, and where they are described."""
NAMESPACE = "waltz"


def resources(directory: Path = MANIFESTS) -> Iterator[dict[str, Any]]:
    """All that a folder describes, but for what is for kustomize."""
    for path in sorted(directory.glob("*.yaml")):
        if path.name != "kustomization.yaml":
            yield from yaml.safe_load_all(path.read_text())


def pod(kind: str, name: str) -> dict[str, Any]:
    """The pod that a job or a set makes."""
    described = resources(SETS.get(name, MANIFESTS))
    (found,) = (one for one in described if (one["kind"], one["metadata"]["name"]) == (kind, name))
    template: dict[str, Any] = found["spec"]["template"]["spec"]
    return template


def hosts(name: str) -> list[str]:
    """The names of the pods of a set."""
    sets = (one for one in resources(SETS[name]) if one["kind"] == "StatefulSet")
    (found,) = (one for one in sets if one["metadata"]["name"] == name)
    service = found["spec"]["serviceName"]
    return [f"{name}-{number}.{service}.{NAMESPACE}.svc" for number in range(found["spec"]["replicas"])]


def make_site(directory: Path, zookeeper: LocalZooKeeper, children: Children, programs: Path) -> Site:
    """A host for each pod."""
    files = {}
    for folder in (MANIFESTS, VIEW):
        (generated,) = yaml.safe_load((folder / "kustomization.yaml").read_text())["configMapGenerator"]
        files.update({f"/etc/waltz/{Path(file).name}": folder / file for file in generated["files"]})
    return Site(
        directory,
        zookeeper,
        children,
        hosts=[host for name in SETS for host in hosts(name)],
        ensemble="waltz-zookeeper:2181",
        files=files,
        programs=programs,
    )


def start_cluster(site: Site) -> dict[str, Child]:
    """All pods by their names, ready."""
    (create,), (assign,) = (pod("Job", "waltz-create")[kind] for kind in ("initContainers", "containers"))
    site.run("create", create["command"])
    storages = _started(site, "waltz-storage")
    for _ in range(2):
        site.run("assign", assign["command"])
    return storages | _started(site, "waltz-view") | _started(site, "waltz-server")


def _started(site: Site, name: str) -> dict[str, Child]:
    (container,) = pod("StatefulSet", name)["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    children = {
        host: site.start(host, host, container["command"], environment(container, host)) for host in hosts(name)
    }
    for host, child in children.items():
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            if probe in container:
                asked = container[probe]["httpGet"]
                site.get(host, ports[asked["port"]], asked["path"], child)
    return children


def environment(container: dict[str, Any], host: str) -> dict[str, str]:
    """The variables of a container in the pod of that name."""
    pod_name = host.partition(".")[0]
    given = {one["name"]: one["value"] for one in container.get("env", []) if "value" in one}
    return {name: value.replace("$(POD_NAME)", pod_name) for name, value in given.items()}


def check_health(site: Site, command: str) -> None:
    """The image's own check finds all nodes well, and none where there are none."""
    places = {host: site.addresses[host] for name in SETS for host in hosts(name)}
    for host, address in {**places, "nobody": "127.0.0.2"}.items():
        result = site.attempt("health", ["sh", "-c", command.replace("{socket.gethostname()}", address)])
        assert (result.returncode == 0) == (host in places), (host, result)


def drain(site: Site, pods: dict[str, Child]) -> None:
    """The hook that runs before a server stops takes all partitions from it."""
    *_, host = hosts("waltz-server")
    (container,) = pod("StatefulSet", "waltz-server")["containers"]
    hook = container["lifecycle"]["preStop"]["exec"]["command"]
    result = site.attempt("hook", hook, environment(container, host))
    assert result.returncode == 0, result
    health = json.loads(site.get(host, 7200, "/health", pods[host]))["server-health-check"]
    assert health["partitions"] == {}, health
