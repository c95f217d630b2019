"""A fake cluster with tables."""

from typing import Any

import pytest

from tests.unit.common.cluster.conftest import ROOT
from tests.unit.common.cluster.fakes import FakeCluster
from waltz.spark.options import ClusterOptions
from waltz.spark.table import planning, writers
from waltz.table.properties import change_properties


@pytest.fixture
async def tables(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """The first two partitions are tables; ZooKeeper is the fake's."""

    class Connected:
        """The fake's connection, which outlives a plan."""

        def __getattr__(self, name: str) -> Any:
            return getattr(cluster.zookeeper, name)

        async def close(self) -> None:
            pass

    async def connect(options: ClusterOptions) -> Connected:
        return Connected()

    for module in (planning, writers):
        monkeypatch.setattr(module, "connect_zookeeper", connect)
    for partition_id in (0, 1):
        await change_properties(cluster.zookeeper, ROOT, partition_id, {"format": "table"})
    return cluster
