"""docker-compose.yml, without a container engine: its very commands as plain processes on addresses of their own."""

import json
import shlex
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
import yaml

from tests.integration.application import Append, Application, append_all
from waltz.client.client import WaltzClient
from waltz.common.config import ClientConfig, from_mapping
from waltz.local.processes import Child, Children
from waltz.local.zookeeper import LocalZooKeeper

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
ADDRESSES = {
    "storage-1": "127.0.1.1",
    "storage-2": "127.0.1.2",
    "storage-3": "127.0.1.3",
    "server-1": "127.0.2.1",
    "server-2": "127.0.2.2",
}
"""The containers' host names, as addresses of the loopback network."""
WAIT_S = 60.0


def translated(text: str, zookeeper: LocalZooKeeper) -> str:
    for name, address in ADDRESSES.items():
        text = text.replace(name, address)
    return text.replace("zookeeper:2181", zookeeper.connect_string)


class Engine:
    """Starts services as the container engine would."""

    def __init__(self, directory: Path, zookeeper: LocalZooKeeper, children: Children) -> None:
        self._directory = directory
        self.zookeeper = zookeeper
        self._children = children

    def command(self, service: str) -> list[str]:
        """The service's command, with its mounted configuration file, and ``waltz`` from this environment."""
        mounts = dict(volume.split(":")[1::-1] for volume in SERVICES[service].get("volumes", []))
        program, *arguments = shlex.split(translated(SERVICES[service]["command"], self.zookeeper))
        return [
            str(Path(sys.executable).with_name(program)),
            *(self._mounted(service, mounts[word]) if word in mounts else word for word in arguments),
        ]

    def _mounted(self, service: str, source: str) -> str:
        content = yaml.safe_load(translated((ROOT / source).read_text(), self.zookeeper))
        data = self._directory / service
        data.mkdir(exist_ok=True)
        kind = service.split("-")[0]
        if service in ADDRESSES:
            content[f"{kind}.bindAddress"] = ADDRESSES[service]
        if kind == "storage":
            content["storage.directory"] = str(data)
        if kind == "server":
            content["server.host"] = ADDRESSES[service]
        path = data / Path(source).name
        path.write_text(yaml.safe_dump(content))
        return str(path)

    def run(self, service: str) -> None:
        """Run a service that ends by itself."""
        result = subprocess.run(self.command(service), capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert result.returncode == 0, f"{service}: {result.stderr}"

    def start(self, service: str) -> Child:
        return self._children.start(service, self.command(service), self._directory / f"{service}.log")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with LocalZooKeeper() as zookeeper, Children() as children:
        yield Engine(tmp_path, zookeeper, children)


def get(url: str, child: Child) -> bytes:
    """What the URL gives, as soon as somebody listens there."""
    deadline = time.monotonic() + WAIT_S
    while True:
        child.check()
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                content: bytes = answer.read()
                return content
        except URLError:
            assert time.monotonic() < deadline, child.log_tail()
            time.sleep(0.05)


def test_services_depend_on_what_they_need() -> None:
    def needs(service: str) -> dict[str, str]:
        return {name: how["condition"] for name, how in SERVICES[service].get("depends_on", {}).items()}

    assert needs("create") == {"zookeeper": "service_healthy"}
    for storage in ("storage-1", "storage-2", "storage-3"):
        assert needs(storage) == {"create": "service_completed_successfully"}
        assert needs("assign")[storage] == "service_healthy"
    for server in ("server-1", "server-2"):
        assert needs(server) == {"assign": "service_completed_successfully"}


def test_every_mounted_file_and_volume_exists() -> None:
    for name, service in SERVICES.items():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert (ROOT / source).is_file() if source.startswith(".") else source in COMPOSE["volumes"], name


async def test_the_commands_make_a_working_cluster(engine: Engine) -> None:
    engine.run("create")
    storages = {name: engine.start(name) for name in ADDRESSES if name.startswith("storage")}
    for name, child in storages.items():
        assert get(f"http://{ADDRESSES[name]}:6200/ping", child) == b"pong\n"
    engine.run("assign")
    engine.run("create")
    engine.run("assign")
    servers = {name: engine.start(name) for name in ADDRESSES if name.startswith("server")}
    for name, child in servers.items():
        health = json.loads(get(f"http://{ADDRESSES[name]}:7200/health", child))
        assert health["server-health-check"]["healthy"] is True
    zookeeper, _ = shlex.split(translated("zookeeper:2181 /waltz", engine.zookeeper))
    application = Application()
    config = from_mapping(
        {"zookeeper.connectString": zookeeper, "zookeeper.sessionTimeout": 4000, "cluster.root": "/waltz"}, ClientConfig
    )
    async with await WaltzClient.open(application, config) as client:
        assert client.partition_count == 4
        appends = [Append(number % 4, b"%d" % number) for number in range(40)]
        await append_all(client, appends)
    assert application.errors == []
    for partition_id in range(4):
        expected = [(number // 4, b"%d" % number) for number in range(40) if number % 4 == partition_id]
        assert application.applied[partition_id] == expected
