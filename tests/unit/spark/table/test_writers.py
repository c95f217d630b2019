import pytest

from tests.unit.common.cluster.conftest import ROOT
from tests.unit.common.cluster.fakes import FakeCluster
from waltz.spark.errors import PlanningError
from waltz.spark.table.write_options import parse_table_write_options
from waltz.spark.table.writers import read_written_tables
from waltz.table.errors import PropertiesError
from waltz.table.properties import change_properties


async def written(**options: str) -> list[int]:
    given = {"zookeeper": "zk:2181", "clusterRoot": ROOT, "tls.plaintext": "true"} | options
    _, tables = await read_written_tables(parse_table_write_options(given))
    return list(tables)


@pytest.mark.usefixtures("tables")
async def test_the_tables_named_are_written_or_all() -> None:
    assert await written(partitions="1,0") == [1, 0]
    assert await written() == [0, 1]
    with pytest.raises(PropertiesError, match="partition 2 is not a table"):
        await written(partitions="0-2")
    with pytest.raises(PlanningError, match="there is no partition 3"):
        await written(partitions="3")


async def test_a_disabled_table_may_not_be_named(tables: FakeCluster) -> None:
    await change_properties(tables.zookeeper, ROOT, 1, {"disabled": True})
    with pytest.raises(PropertiesError, match="partition 1 is disabled"):
        await written(partitions="0-1")
    assert await written(partitions="0") == [0]
    assert await written() == [0, 1]  # whether a row is for it is known in the tasks
