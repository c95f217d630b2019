"""Real processes on this machine for the integration tests."""

from collections.abc import Iterator

import pytest

from waltz.local.cluster import LocalCluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A healthy cluster for tests that do no harm: three storages, two servers, two partitions, TLS."""
    with LocalCluster(tmp_path_factory.mktemp("cluster"), partitions=2) as running:
        yield running
