"""The compose file describes a cluster that works, for programs on the host as well."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import waltz
from tests.integration.application import Append, Application, append_all
from tests.integration.compose import COMPOSE, HOST, SERVERS, SERVICES, STORAGES, VIEW, Engine, interpolated, mounts
from tests.integration.site import ROOT
from waltz.client.callbacks import WaltzClient
from waltz.common.config.schemas import ClientConfig, from_mapping
from waltz.common.daemon import CLOSE_STEP_TIMEOUT_S
from waltz.local.processes import Children
from waltz.local.zookeeper import LocalZooKeeper
from waltz.storage.node.node import CLOSE_TIMEOUT_S

pytestmark = pytest.mark.integration

STEPS_OF_CLOSING = 8
"""Most steps in which a server or view node closes, each with a deadline."""
VIEW_CONFIG = yaml.safe_load((ROOT / "deploy" / "compose" / "view.yml").read_text())


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with LocalZooKeeper() as zookeeper, Children() as children:
        yield Engine(tmp_path, zookeeper, children)


def schema_says(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_it_is_what_the_specification_asks_for(tmp_path: Path) -> None:
    result = schema_says(ROOT / "docker-compose.yml")
    assert result.returncode == 0, result.stdout
    wrong = tmp_path / "docker-compose.yml"
    wrong.write_text((ROOT / "docker-compose.yml").read_text().replace("depends_on:", "depend_on:"))
    assert schema_says(wrong).returncode == 1


def test_services_depend_on_what_they_need() -> None:
    def needs(service: str) -> dict[str, str]:
        return {name: how["condition"] for name, how in SERVICES[service].get("depends_on", {}).items()}

    assert needs("create") == {"zookeeper": "service_healthy"}
    for storage in STORAGES:
        assert needs(storage)["create"] == "service_completed_successfully"
        assert needs("assign")[storage] == "service_healthy"
    for server in SERVERS:
        assert needs(server)["assign"] == "service_completed_successfully"
    assert needs(VIEW)["create"] == "service_completed_successfully"


def test_every_mounted_file_and_volume_exists() -> None:
    for name in SERVICES:
        for source in mounts(name).values():
            assert (ROOT / source).is_file() if source.startswith(".") else source in COMPOSE["volumes"], name


def published() -> set[int]:
    """The ports of this machine that lead to the same ports of the containers."""
    ports: set[int] = set()
    for line in SERVICES["network"]["ports"]:
        address, outside, inside = interpolated(line).split(":")
        assert (address, outside) == ("127.0.0.1", inside)
        first, _, last = outside.partition("-")
        ports.update(range(int(first), int(last or first) + 1))
    return ports


def test_a_program_on_the_host_reaches_what_it_is_told() -> None:
    """What nodes say of themselves is true in the containers' network, and on the host through published ports."""
    told = [int(SERVICES[server]["environment"]["WALTZ_SERVER_PORT"]) for server in SERVERS]
    assert {interpolated(SERVICES[server]["environment"]["WALTZ_SERVER_HOST"]) for server in SERVERS} == {HOST}
    words = interpolated(SERVICES["create"]["command"]).split()
    for number, storage in enumerate(STORAGES):
        variables = SERVICES[storage]["environment"]
        port, admin_port = variables["WALTZ_STORAGE_PORT"], variables["WALTZ_STORAGE_ADMIN_PORT"]
        assert [word for word in words if word.startswith(HOST)][number] == f"{HOST}:{port}:{admin_port}"
        told += [port, admin_port]
    zookeeper = yaml.safe_load((ROOT / "deploy" / "compose" / "cli.yml").read_text())["zookeeper.connectString"]
    assert zookeeper.partition(":")[0] == HOST
    told.append(int(zookeeper.partition(":")[2]))
    assert interpolated(SERVICES[VIEW]["environment"]["WALTZ_VIEW_HOST"]) == HOST
    told += [VIEW_CONFIG["view.port"], VIEW_CONFIG["view.jetty.port"]]
    assert len(set(told)) == len(told) == 11
    assert published() >= set(told)
    for name, service in SERVICES.items():
        assert name == "network" or service["network_mode"] == "service:network"


def test_all_that_goes_on_has_a_health_check() -> None:
    for name, service in SERVICES.items():
        if name != "network" and service["restart"] != "no":
            assert service["healthcheck"]["test"][0] == "CMD-SHELL"


def test_a_container_may_take_as_long_as_its_daemon_to_close() -> None:
    for service in (*STORAGES, *SERVERS, VIEW):
        needed_s = CLOSE_TIMEOUT_S if service in STORAGES else STEPS_OF_CLOSING * CLOSE_STEP_TIMEOUT_S
        assert float(SERVICES[service]["stop_grace_period"].removesuffix("s")) > needed_s


@pytest.mark.deep
async def test_the_commands_make_a_working_cluster(engine: Engine) -> None:
    engine.start_cluster()
    application = Application()
    config = from_mapping(engine.site.client_configuration(), ClientConfig)
    async with await WaltzClient.open(application, config) as client:
        assert client.partition_count == 4
        appends = [Append(number % 4, b"%d" % number) for number in range(40)]
        await append_all(client, appends)
    assert application.errors == []
    for partition_id in range(4):
        expected = [(number // 4, b"%d" % number) for number in range(40) if number % 4 == partition_id]
        assert application.applied[partition_id] == expected
    async with waltz.connect(config) as plain:
        await waltz.table.configure(plain, 3, {"format": "table"})
        async with plain.table(3, view="served", timeout_s=60) as table:
            await table.put(b"k", b"v", prefix=b"p")
            (row,) = await table.get([b"k"], prefix=b"p", fresh=True)
            assert row is not None
