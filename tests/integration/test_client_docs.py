"""The examples of the client's documentation against real servers."""

from collections.abc import Iterator

import pytest

from tests.unit.client.examples import EXAMPLES, run
from waltz.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def empty_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One with a short log: an example reads all of it."""
    with LocalCluster(tmp_path_factory.mktemp("cluster"), partitions=2) as running:
        yield running


@pytest.mark.parametrize("heading", EXAMPLES)
def test_example(empty_cluster: LocalCluster, heading: str) -> None:
    run(heading, empty_cluster.layout.client_config_path)
