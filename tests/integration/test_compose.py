"""The compose file describes a cluster that works."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.application import Append, Application, append_all
from tests.integration.compose import COMPOSE, ROOT, SERVICES, Engine
from waltz.client.callbacks import WaltzClient
from waltz.common.config import ClientConfig, from_mapping
from waltz.local.processes import Children
from waltz.local.zookeeper import LocalZooKeeper

pytestmark = pytest.mark.integration


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with LocalZooKeeper() as zookeeper, Children() as children:
        yield Engine(tmp_path, zookeeper, children)


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
    engine.start_cluster()
    application = Application()
    config = from_mapping(engine.client_configuration(), ClientConfig)
    async with await WaltzClient.open(application, config) as client:
        assert client.partition_count == 4
        appends = [Append(number % 4, b"%d" % number) for number in range(40)]
        await append_all(client, appends)
    assert application.errors == []
    for partition_id in range(4):
        expected = [(number // 4, b"%d" % number) for number in range(40) if number % 4 == partition_id]
        assert application.applied[partition_id] == expected
