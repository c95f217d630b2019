import pickle
from uuid import UUID

import pytest

from waltz.common.errors import ConfigError
from waltz.spark.columns import PayloadFormat
from waltz.spark.offsets import Interval, OffsetSpec
from waltz.spark.options import NAMES, ArchiveOptions, parse_options

REQUIRED = {"zookeeper": "zk:2181", "clusterroot": "/waltz"}


def test_defaults() -> None:
    options = parse_options(REQUIRED)
    assert options.zookeeper == "zk:2181"
    assert options.cluster_root == "/waltz"
    assert options.partitions is None
    assert options.starting_offsets is None
    assert options.ending_offsets == OffsetSpec("latest", {})
    assert (options.min_partitions, options.max_rows_per_split, options.fetch_size) == (1, 100_000, 10_000)
    assert (options.planning_timeout_s, options.request_timeout_s) == (30.0, 30.0)
    assert not options.tls.plaintext
    assert options.headers is None
    assert parse_options(REQUIRED | {"headers": " -2147483648,7"}).headers == frozenset((-(2**31), 7))


def test_names_are_those_that_spark_makes_lower_case() -> None:
    options = parse_options(
        REQUIRED
        | {
            "partitions": "0-3,7",
            "startingoffsets": '{"0": 5}',
            "endingoffsets": '{"7": 9}',
            "minpartitions": "8",
            "maxrowspersplit": " 1000 ",
            "fetchsize": "50",
            "planningtimeoutms": "1500",
            "requesttimeoutms": "2000",
            "tls.plaintext": "true",
        }
    )
    assert options.partitions == (Interval(0, 3), Interval(7, 7))
    assert options.starting_offsets == OffsetSpec("earliest", {0: 5})
    assert options.ending_offsets.bound(7) == 9
    assert options.ending_offsets.bound(0) == "latest"
    assert (options.min_partitions, options.max_rows_per_split, options.fetch_size) == (8, 1000, 50)
    assert (options.planning_timeout_s, options.request_timeout_s) == (1.5, 2.0)
    assert options.tls.plaintext


def test_times_are_milliseconds() -> None:
    options = parse_options(REQUIRED | {"startingtimestamp": "1970-01-01T00:00:01.9999Z"})
    assert (options.starting_time_ms, options.ending_time_ms) == (1999, None)


def test_the_user_of_zookeeper() -> None:
    access = parse_options(REQUIRED).zookeeper_access
    assert access == (None, None, None, False)
    user = REQUIRED | {"zookeeperUser": "svc"}
    access = parse_options(user | {"zookeeperPasswordFile": "/password", "zookeeperTls": "true"}).zookeeper_access
    assert access == ("svc", None, "/password", True)
    options = parse_options(user | {"zookeeperpassword": "verysecret"})
    assert "verysecret" not in repr(options)
    password = pickle.loads(pickle.dumps(options)).zookeeper_access.password
    assert password.get_secret_value() == "verysecret"
    for given, why in (
        (user, "zookeeperUser: give either zookeeperPasswordFile or zookeeperPassword, too"),
        (user | {"zookeeperPassword": "a", "zookeeperPasswordFile": "b"}, "zookeeperUser: give either"),
        (REQUIRED | {"zookeeperPassword": "verysecret"}, "zookeeperUser: a password needs a user, too"),
        (REQUIRED | {"zookeeperTls": "yes"}, "zookeeperTls: expected true or false"),
    ):
        with pytest.raises(ConfigError, match=why) as refused:
            parse_options(given)
        assert "verysecret" not in str(refused.value)


def test_tls_options_reach_the_model_and_stay_secret() -> None:
    options = parse_options(
        REQUIRED
        | {"tls.keystore.location": "/k.p12", "tls.keystore.password": "verysecret", "tls.truststore.location": "/t"}
    )
    assert options.tls.key_store_location == "/k.p12"
    assert options.tls.trust_store_location == "/t"
    assert "verysecret" not in repr(options)
    again = pickle.loads(pickle.dumps(options))
    assert again == options
    assert again.tls.key_store_password.get_secret_value() == "verysecret"


def test_tokens_reach_executors_and_stay_secret() -> None:
    trusting = REQUIRED | {"tls.truststore.location": "/t"}
    assert parse_options(trusting | {"tls.token.location": "/token"}).tls.token_location == "/token"
    options = parse_options(trusting | {"tls.token.value": "verysecret"})
    assert "verysecret" not in repr(options)
    assert pickle.loads(pickle.dumps(options)).tls.token.get_secret_value() == "verysecret"
    with pytest.raises(ConfigError, match="a token needs TLS") as refused:
        parse_options(REQUIRED | {"tls.token.value": "verysecret"})
    assert "verysecret" not in str(refused.value)


@pytest.mark.parametrize("name", NAMES)
def test_a_misspelt_option_names_the_nearest(name: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown option '{name.lower()}x'; did you mean '{name}'\\?"):
        parse_options(REQUIRED | {f"{name.lower()}x": "1"})


def test_a_strange_option_names_all() -> None:
    with pytest.raises(ConfigError, match="unknown option 'xyzzy'; the options are: zookeeper, clusterRoot, "):
        parse_options(REQUIRED | {"xyzzy": "1"})


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"zookeeper": ""}, "option 'zookeeper' is missing"),
        ({"clusterroot": " "}, "option 'clusterRoot' is missing"),
        ({"clusterroot": "waltz"}, "option clusterRoot: expected an absolute ZooKeeper path .* found 'waltz'"),
        ({"clusterroot": "/waltz/"}, "option clusterRoot"),
        ({"fetchsize": "0"}, "option fetchSize: expected a number from 1 to 2147483647, found '0'"),
        ({"fetchsize": "many"}, "option fetchSize"),
        ({"minpartitions": "-1"}, "option minPartitions"),
        ({"maxrowspersplit": "1e5"}, "option maxRowsPerSplit"),
        ({"maxrowspersplit": "9" * 5000}, "option maxRowsPerSplit"),
        ({"zone": "a"}, "option zone: expected labels such as datacenter=a,rack=1: not of the form"),
        ({"zone": "rack=1,disk=ssd"}, "option zone: only datacenter and rack make a zone, found disk"),
        ({"planningtimeoutms": "\u0663"}, "option planningTimeoutMs"),
        ({"partitions": "x"}, "option partitions"),
        ({"startingoffsets": "x"}, "option startingOffsets"),
        ({"endingoffsets": "x"}, "option endingOffsets"),
        ({"startingtimestamp": "noon"}, "option startingTimestamp: expected a time with its zone, such as"),
        ({"endingtimestamp": "2026-03-01T12:00:00"}, "option endingTimestamp: .*the time zone is missing"),
        (
            {"startingtimestamp": "2026-03-01T12:00:00Z", "startingoffsets": "latest"},
            "option startingTimestamp: give either this or startingOffsets",
        ),
        (
            {"endingtimestamp": "2026-03-01T12:00:00Z", "endingoffsets": "latest"},
            "option endingTimestamp: give either this or endingOffsets",
        ),
        (
            {"startingtimestamp": "2026-03-01T12:00:00Z", "endingtimestamp": "2026-03-01T13:00:00+02:00"},
            "option endingTimestamp: the end is before startingTimestamp",
        ),
        ({"headers": "1,"}, "option headers: expected 32-bit integers such as 0,7, found '1,'"),
        ({"headers": "2147483648"}, "option headers: expected 32-bit integers"),
        ({"failondataloss": "maybe"}, "option failOnDataLoss: expected true or false, found 'maybe'"),
        (
            {"columns": "data,haeder"},
            "option columns names the column 'haeder', which the log does not have; did you mean",
        ),
        ({"columns": "data,data"}, "option columns names a column twice"),
        ({"payloadformat": "avro"}, "option payloadFormat: expected raw, utf8, json or a function such as"),
        ({"payloadformat": "a.b:c-d"}, "option payloadFormat"),
        ({"payloadschema": "a long"}, "option payloadSchema: .*only with json or a function"),
        ({"payloadformat": "json", "payloadschema": " "}, "option payloadSchema"),
        ({"payloadformat": "json", "payloadmode": "drop"}, "option payloadMode: expected failfast or permissive"),
        ({"maxoffsetspertrigger": "0"}, "option maxOffsetsPerTrigger"),
        ({"failovertimeoutms": "x"}, "option failoverTimeoutMs"),
        ({"tls.plaintext": "perhaps"}, "wrong value for key 'tls.plaintext' in the options"),
    ],
)
def test_wrong_values_name_the_option(changed: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        parse_options(REQUIRED | changed)


def test_missing_options() -> None:
    with pytest.raises(ConfigError, match="option 'zookeeper' is missing: a connect string"):
        parse_options({})


def test_what_payloads_are() -> None:
    assert parse_options(REQUIRED).payload == PayloadFormat("raw", permissive=False)
    given = {"payloadformat": " JSON", "payloadmode": "Permissive", "payloadschema": "a long"}
    assert parse_options(REQUIRED | given).payload == PayloadFormat("json", permissive=True)
    assert (
        parse_options(REQUIRED | {"payloadformat": "my.module:Parser.parse"}).payload.name == "my.module:Parser.parse"
    )


def test_an_archive_beside_or_without_a_cluster() -> None:
    assert parse_options(REQUIRED).archive is None
    assert parse_options(REQUIRED | {"archive": "s3://bucket"}).archive == ArchiveOptions("s3://bucket", False, None)
    assert parse_options(REQUIRED | {"archive": "cluster"}).archive == ArchiveOptions("cluster", False, None)
    alone = parse_options({"archive": "s3://bucket", "archiveonly": "true", "archivecluster": str(UUID(int=7))})
    assert alone.archive == ArchiveOptions("s3://bucket", True, UUID(int=7))
    assert (alone.zookeeper, alone.cluster_root) == ("", "")
    by_time = {"archive": "x", "archiveonly": "true", "endingtimestamp": "1970-01-01T00:00:01Z"}
    assert parse_options(by_time).ending_time_ms == 1000


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"archive": "s3://bucket"}, "option 'zookeeper' is missing"),
        (REQUIRED | {"archiveonly": "true"}, "option archiveOnly: give the address as archive"),
        (REQUIRED | {"archivecluster": str(UUID(int=7))}, "option archiveCluster: give the address as archive"),
        (REQUIRED | {"archive": "x", "archivecluster": str(UUID(int=7))}, "is for archiveOnly=true"),
        ({"archive": "x", "archiveonly": "true", "archivecluster": "seven"}, "expected the key of a cluster"),
        ({"archive": "x", "archiveonly": "perhaps"}, "option archiveOnly: expected true or false"),
        ({"archive": "cluster", "archiveonly": "true"}, "give the address: with archiveOnly=true no cluster is asked"),
        ({"archive": " ", "archiveonly": "true"}, "option 'archive' is missing"),
    ],
)
def test_wrong_options_of_an_archive(given: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        parse_options(given)
