import pytest

from waltz.common.errors import ConfigError
from waltz.spark.offsets import OffsetSpec
from waltz.spark.table.options import parse_batch_options, parse_options, parse_stream_options

CLUSTER = {"zookeeper": "zk:2181", "clusterRoot": "/waltz"}


def test_defaults() -> None:
    options = parse_batch_options(CLUSTER)
    assert not options.all_versions
    assert options.as_of == OffsetSpec("latest", {})
    assert not options.raw
    assert options.now_ms is None
    assert options.columns is None
    assert (options.prefix, options.start_key, options.end_key) == (None, b"", None)


def test_everything_given() -> None:
    options = parse_batch_options(
        CLUSTER | {"ASOF": '{"1": 7, "2": "latest"}', "raw": "true", "nowMs": " 12 ", "columns": "key, value"}
    )
    assert [options.as_of.bound(partition_id) for partition_id in range(3)] == ["latest", 7, "latest"]
    assert options.raw
    assert options.now_ms == 12
    assert options.columns == ("key", "value")
    some = parse_batch_options(CLUSTER | {"prefix": "", "startKey": "a", "endKey": "ä"})
    assert (some.prefix, some.start_key, some.end_key) == (b"", b"a", "ä".encode())
    assert parse_batch_options(CLUSTER | {"asOf": "0"}).as_of == OffsetSpec(0, {})
    then = parse_batch_options(CLUSTER | {"asoftimestamp": "1970-01-01T00:00:02Z"})
    assert (then.as_of, then.as_of_time_ms) == (OffsetSpec("latest", {}), 2000)
    interval = {"startingTimestamp": "1970-01-01T00:00:01Z", "endingTimestamp": "1970-01-01T00:00:03Z"}
    between = parse_batch_options(CLUSTER | interval | {"versions": "all"})
    assert (between.starting_time_ms, between.ending_time_ms) == (1000, 3000)
    assert parse_stream_options(CLUSTER | {"startingTimestamp": "1970-01-01T00:00:01Z"}).starting_time_ms == 1000
    versions = parse_batch_options(CLUSTER | {"versions": "ALL", "startingOffsets": "latest", "minPartitions": "3"})
    assert versions.all_versions
    assert versions.min_partitions == 3
    assert parse_stream_options(CLUSTER | {"maxOffsetsPerTrigger": "5"}).max_offsets_per_trigger == 5


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"asOf": "-1"}, "option asOf: expected a transaction id from 0, found -1"),
        ({"asOf": "9223372036854775808"}, "option asOf: expected a transaction id from 0"),
        ({"asOf": "soon"}, "option asOf: expected earliest, latest or a JSON object"),
        ({"asOf": "earliest"}, "option asOf: expected a transaction id or latest, found 'earliest'"),
        ({"asOf": '{"0": "earliest"}'}, "option asOf: expected a transaction id or latest"),
        ({"asOf": '{"0": -4}'}, "option asOf: partition 0 needs a transaction id from 0"),
        ({"nowMs": "tomorrow"}, "option nowMs: expected milliseconds since the epoch, found 'tomorrow'"),
        ({"versions": "some"}, "option versions: expected latest or all, found 'some'"),
        ({"raw": "yes"}, "option raw: expected true or false"),
        ({"columns": "kee"}, "option columns names the column 'kee', which a table does not have; did you mean 'key'?"),
        ({"payloadFormat": "json"}, "unknown option 'payloadFormat'"),
        ({"startingOffsets": "earliest"}, "option startingOffsets needs versions=all"),
        ({"asOfTimestamp": "noon"}, "option asOfTimestamp: expected a time with its zone"),
        ({"asOfTimestamp": "2026-03-01T12:00:00Z", "asOf": "3"}, "option asOfTimestamp: give either this or asOf"),
        ({"startingTimestamp": "2026-03-01T12:00:00Z"}, "option startingTimestamp needs versions=all"),
        ({"endingTimestamp": "2026-03-01T12:00:00Z"}, "option endingTimestamp needs versions=all"),
        (
            {"versions": "all", "asOfTimestamp": "2026-03-01T12:00:00Z"},
            "option asOfTimestamp is about the state of a table",
        ),
        ({"maxRowsPerSplit": "5"}, "option maxRowsPerSplit needs versions=all"),
        ({"versions": "all", "asOf": "5"}, "option asOf is about the state of a table"),
        ({"versions": "all", "nowMs": "5"}, "option nowMs is about the state of a table"),
        ({"maxOffsetsPerTrigger": "5"}, "option maxOffsetsPerTrigger is for streams"),
    ],
)
def test_what_a_batch_refuses(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_batch_options(CLUSTER | given)
    assert str(caught.value).startswith(complaint)


@pytest.mark.parametrize(
    "name", ["versions", "asOf", "asOfTimestamp", "raw", "nowMs", "endingOffsets", "endingTimestamp"]
)
def test_what_a_stream_refuses(name: str) -> None:
    with pytest.raises(ConfigError, match=f"option {name} is not for streams"):
        parse_stream_options(CLUSTER | {name: "1"})


def test_all_options_are_known_to_both() -> None:
    assert parse_options(CLUSTER | {"startingOffsets": "earliest", "asOf": "3"}).fetch_size == 10_000
