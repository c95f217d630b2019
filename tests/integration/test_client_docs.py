"""The examples of the client's documentation against real servers."""

import logging
from collections.abc import Iterator

import pytest

import waltz
from tests.unit.client.examples import EXAMPLES, run
from waltz.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def short_logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster whose logs are short, because an example reads all of them, and of different lengths."""
    with LocalCluster(tmp_path_factory.mktemp("cluster"), partitions=2) as running:
        with waltz.blocking.connect(running.layout.client_config_path) as client:
            client.append_many(1, [b"of somebody else"] * 3)
        yield running


@pytest.mark.parametrize("heading", EXAMPLES)
def test_example(short_logs: LocalCluster, heading: str, caplog: pytest.LogCaptureFixture) -> None:
    run(heading, short_logs.layout.client_config_path)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
