import pytest

from waltz.common.errors import ConfigError
from waltz.spark.offsets import Interval
from waltz.spark.table.write_options import ordered, parse_table_stream_write_options, parse_table_write_options

CLUSTER = {"zookeeper": "zk:2181", "clusterRoot": "/waltz"}


def test_defaults() -> None:
    options = parse_table_write_options(CLUSTER)
    assert options.partitions is None
    assert options.max_rows_per_transaction == 1000
    assert not options.any_timestamp
    assert options.staging_path is None


def test_everything_given() -> None:
    given = {"partitions": "7,0-2", "maxRowsPerTransaction": "10", "anyTimestamp": "true", "stagingPath": "/s"}
    options = parse_table_write_options(CLUSTER | given | {"txnAppId": "a", "txnVersion": "3"})
    assert options.partitions is not None
    assert ordered(options.partitions) == [7, 0, 1, 2]
    assert options.max_rows_per_transaction == 10
    assert options.any_timestamp
    assert (options.staging_path, options.app_id, options.version) == ("/s", "a", 3)
    stream = parse_table_stream_write_options(CLUSTER | given | {"checkpointLocation": "/c", "queryName": "q"})
    assert stream.checkpoint_location == "/c"


def test_a_partition_that_is_named_twice() -> None:
    with pytest.raises(ConfigError, match="option partitions names a partition twice"):
        ordered((Interval(0, 3), Interval(2, 2)))


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (
            {"maxRowsPerTransaction": "1001"},
            "option maxRowsPerTransaction: expected a number from 1 to 1000, found 1001",
        ),
        ({"anyTimestamp": "maybe"}, "option anyTimestamp: expected true or false"),
        ({"partitions": "all"}, "option partitions: expected ids and intervals"),
        ({"hashColumns": "key"}, "unknown option 'hashColumns'"),
        ({"txnAppId": "a"}, "options txnAppId and txnVersion belong together"),
        ({"txnAppId": "a", "txnVersion": "1"}, "option txnAppId needs stagingPath"),
        ({"checkpointLocation": "/c"}, "unknown option 'checkpointLocation'"),
    ],
)
def test_what_is_refused(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_table_write_options(CLUSTER | given)
    assert str(caught.value).startswith(complaint)
