import pickle
import subprocess
import sys

import pytest
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

import pyspark_waltz_table
from waltz.common.errors import ConfigError
from waltz.spark.table.columns import SCHEMA
from waltz.spark.table.source import WaltzTableDataSource

OPTIONS = {"zookeeper": "zk:2181", "clusterRoot": "/waltz", "tls.plaintext": "true"}
ROWS = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])


def test_spark_finds_it_by_name() -> None:
    assert pyspark_waltz_table.DefaultSource is WaltzTableDataSource
    assert pyspark_waltz_table.DefaultSource.name() == "waltz-table"


def test_a_scan_for_data_sources_loads_little() -> None:
    code = (
        "import sys, pyspark.sql.datasource; before = set(sys.modules); import pyspark_waltz_table; "
        "print(*sorted({name.split('.')[0] for name in sys.modules.keys() - before}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"pyarrow", "pydantic", "kazoo", "cryptography", "uvloop", "asyncio", "yaml"}
    assert set(done.stdout.split()) & heavy == set()


def test_options_and_columns_are_checked() -> None:
    assert WaltzTableDataSource(dict(OPTIONS)).schema() == SCHEMA
    assert WaltzTableDataSource({**OPTIONS, "columns": "key,row"}).schema().fieldNames() == ["key", "row"]
    with pytest.raises(ConfigError, match="unknown option 'as_of'; did you mean 'asOf'"):
        WaltzTableDataSource({**OPTIONS, "as_of": "1"}).schema()
    with pytest.raises(ConfigError, match="the column 'offset', which a table does not have"):
        WaltzTableDataSource(dict(OPTIONS)).reader(StructType([StructField("offset", LongType())]))
    with pytest.raises(ConfigError, match="option asOf is not for streams"):
        WaltzTableDataSource({**OPTIONS, "asOf": "1"}).streamReader(SCHEMA)


def test_readers_travel_to_the_workers() -> None:
    for reader in (
        WaltzTableDataSource(dict(OPTIONS)).reader(SCHEMA),
        WaltzTableDataSource({**OPTIONS, "maxOffsetsPerTrigger": "7"}).streamReader(SCHEMA),
    ):
        travelled = pickle.loads(pickle.dumps(reader))
        assert list(travelled.read(InputPartition(None))) == []
    assert travelled.getDefaultReadLimit() == ReadMaxRows(7)
    travelled.stop()


def test_spark_keeps_its_filters() -> None:
    """It would hand those of one use of a DataFrame to all others."""
    assert type(WaltzTableDataSource(dict(OPTIONS)).reader(SCHEMA)).pushFilters is DataSourceReader.pushFilters


def test_what_can_be_refused_without_a_cluster_is() -> None:
    cluster = {name: OPTIONS[name] for name in ("zookeeper", "clusterRoot")}
    with pytest.raises(ConfigError, match="a log cannot be overwritten"):
        WaltzTableDataSource(dict(cluster)).writer(ROWS, overwrite=True)
    with pytest.raises(ConfigError, match="which partitions is the table in"):
        WaltzTableDataSource(dict(cluster)).writer(ROWS, overwrite=False)
    with pytest.raises(ConfigError, match="stagingPath needs a name for the query"):
        WaltzTableDataSource({**cluster, "partitions": "0", "stagingPath": "/s"}).streamWriter(ROWS, overwrite=False)
