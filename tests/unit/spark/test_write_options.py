import pytest

from waltz.common.errors import ConfigError
from waltz.spark.write_options import BATCH_NAMES, STREAM_NAMES, parse_stream_write_options, parse_write_options

REQUIRED = {"zookeeper": "zk:2181", "clusterroot": "/waltz"}


def test_defaults() -> None:
    options = parse_write_options(REQUIRED)
    assert (options.partition_column, options.header_column, options.data_column) == (None, None, None)
    assert (options.hash_columns, options.staging_path, options.app_id, options.version) == ((), None, None, None)
    assert (options.max_in_flight, options.append_timeout_s) == (1000, 120.0)


def test_exactly_once() -> None:
    given = REQUIRED | {"stagingpath": "file:///mnt/x", "txnappid": "app", "txnversion": "12"}
    options = parse_write_options(given)
    assert (options.staging_path, options.app_id, options.version) == ("/mnt/x", "app", 12)
    stream = REQUIRED | {"stagingpath": "/mnt/x", "checkpointlocation": "/c", "queryname": "q"}
    assert parse_stream_write_options(stream).checkpoint_location == "/c"


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"stagingpath": "relative"}, "option stagingPath: expected an absolute path"),
        ({"stagingpath": "s3://bucket/x"}, "option stagingPath: expected an absolute path"),
        ({"txnappid": "a"}, "options txnAppId and txnVersion belong together"),
        ({"txnappid": "a", "txnversion": "1"}, "option txnAppId needs stagingPath"),
        ({"txnappid": " ", "txnversion": "1", "stagingpath": "/s"}, "option 'txnAppId' is missing"),
        ({"txnappid": "a", "txnversion": "-1", "stagingpath": "/s"}, "option txnVersion: expected a number from 0"),
        ({"hashcolumns": "a,,b"}, "option hashColumns: expected names"),
        ({"hashcolumns": "a,a"}, "option hashColumns: expected names"),
        ({"hashcolumns": "a", "partitioncolumn": "p"}, "options hashColumns and partitionColumn exclude each other"),
        ({"maxinflight": "0"}, "option maxInFlight"),
        ({"fetchsize": "5"}, "unknown option 'fetchsize'"),
        ({"checkpointlocation": "/c"}, "unknown option 'checkpointlocation'"),
    ],
)
def test_wrong_options(changed: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        parse_write_options(REQUIRED | changed)


def test_a_stream_has_its_own_versions() -> None:
    with pytest.raises(ConfigError, match="unknown option 'txnversion'"):
        parse_stream_write_options(REQUIRED | {"txnversion": "1"})
    assert set(BATCH_NAMES) ^ set(STREAM_NAMES) == {"txnVersion", "checkpointLocation", "queryName"}
