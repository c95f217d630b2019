"""What the units of systemd run, on the sample configuration files."""

import signal
import sys
from pathlib import Path

from tests.integration.site import ROOT, Site
from waltz.local.processes import Child, Children
from waltz.local.zookeeper import LocalZooKeeper

UNITS = ROOT / "deploy" / "systemd"
SAMPLES = ROOT / "deploy" / "config"
ENSEMBLE = "zookeeper-1:2181,zookeeper-2:2181,zookeeper-3:2181"
STORAGE, SERVER = "storage-1.example.org", "server-1.example.org"


CONFINED = (
    sys.executable,
    "-c",
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(65, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])",
)
"""No memory can be both written and executed, as by ``MemoryDenyWriteExecute=``: the kernel's own way, from 6.3 on."""


def setting(unit: str, name: str) -> str:
    """The value of a setting that a unit has once."""
    lines = (UNITS / f"{unit}.service").read_text().splitlines()
    (value,) = (line.partition("=")[2] for line in lines if line.startswith(f"{name}="))
    return value


def make_site(directory: Path, zookeeper: LocalZooKeeper, children: Children, programs: Path) -> Site:
    """A host for a storage, and one for a server."""
    return Site(
        directory,
        zookeeper,
        children,
        hosts=(STORAGE, SERVER),
        ensemble=ENSEMBLE,
        files={f"/etc/waltz/{path.name}": path for path in SAMPLES.glob("*.yml")},
        programs=programs,
    )


def start_cluster(site: Site) -> list[Child]:
    """Storage and server, well."""
    tool = ("-c", "/etc/waltz/cli.yml")
    site.run("tools", ["waltz", "cluster", "create", *tool, "-n", "waltz", "-p", "2", "-s", f"{STORAGE}:6000:6100"])
    storage = site.start("storage", STORAGE, setting("waltz-storage", "ExecStart").split(), under=CONFINED)
    site.get(STORAGE, 6200, "/health", storage)
    site.run("tools", ["waltz", "storage", "sync-partitions", *tool])
    server = site.start("server", SERVER, setting("waltz-server", "ExecStart").split(), under=CONFINED)
    site.get(SERVER, 7200, "/health", server)
    return [server, storage]


def stop_cluster(children: list[Child]) -> None:
    """Each ends in the time that its unit allows, and its unit calls that a success."""
    for child in children:
        child.signal(signal.SIGTERM)
        allowed_s = float(setting(f"waltz-{child.name}", "TimeoutStopSec").removesuffix("s"))
        assert child.wait(allowed_s) == 0, child.log_tail()
