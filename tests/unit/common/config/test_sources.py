"""Environment and command line: which counts, what is told of it, and what is left alone."""

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from waltz.common.config.reader import Given, flat, ignored, keys, secret_keys, settle
from waltz.common.config.schemas import MODELS, CliConfig, ClientConfig, ServerConfig, StorageConfig
from waltz.common.config.sources import (
    ALL_VARIABLES,
    Setting,
    examine_sources,
    from_environment,
    from_settings,
    variable_of,
    variables_of,
)
from waltz.common.errors import ConfigError

KEYS = (
    *("server.feedCacheSize", "server.transactionDataCacheSize", "server.minFenceInterval", "server.jetty.port"),
    *("server.ssl.plaintext", "server.ssl.checkHostname"),
)
"""Keys of a server that may be 0 and 1."""

REQUIRED = {
    "zookeeper.connectString": "zk:1",
    "zookeeper.sessionTimeout": 1,
    "cluster.root": "/w",
    "server.port": 2,
    "server.host": "here",
}


@pytest.mark.parametrize(
    ("key", "variable"),
    [
        ("server.port", "WALTZ_SERVER_PORT"),
        ("server.jetty.port", "WALTZ_SERVER_JETTY_PORT"),
        ("storage.segment.size.threshold", "WALTZ_STORAGE_SEGMENT_SIZE_THRESHOLD"),
        ("storage.connections.maxPerAddress", "WALTZ_STORAGE_CONNECTIONS_MAX_PER_ADDRESS"),
        ("ssl.trustStore.password", "WALTZ_SSL_TRUST_STORE_PASSWORD"),
    ],
)
def test_variables_are_the_keys_in_capitals(key: str, variable: str) -> None:
    assert variable_of(key) == variable


def test_no_two_keys_of_any_process_share_a_variable() -> None:
    everything = {key for model in MODELS for key in keys(model)}
    assert len({variable_of(key) for key in everything}) == len(everything) == len(ALL_VARIABLES)
    for model in MODELS:
        assert set(variables_of(model).values()) == keys(model)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sources") / "server.yml"


@given(
    st.dictionaries(st.sampled_from(KEYS), st.sampled_from("01")),
    st.dictionaries(st.sampled_from(KEYS), st.sampled_from(["0", "1", ""])),
    st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from("01"))),
)
def test_what_counts_more(
    path: Path, in_file: dict[str, str], in_environment: dict[str, str], on_line: list[tuple[str, str]]
) -> None:
    """Against three dictionaries, each on top of the one before."""
    path.write_text(yaml.safe_dump(REQUIRED | in_file))
    variables = {variable_of(key): value for key, value in in_environment.items()}
    reading = examine_sources(path, ServerConfig, [Setting(*each) for each in on_line], variables)
    set_there = {key: value for key, value in in_environment.items() if value}
    assert reading.sources == (
        dict.fromkeys(REQUIRED | in_file, str(path))
        | {key: f"environment variable {variable_of(key)}" for key in set_there}
        | {key: f"--set {key}" for key, _ in on_line}
    )
    values = flat(settle(reading))
    expected = in_file | set_there | dict(on_line)
    assert {key: str(int(str(values[key]) in ("1", "True"))) for key in expected} == expected
    assert set(reading.replaced) == {key for key in in_file if expected[key] != in_file[key]}


@given(st.sampled_from(sorted(keys(StorageConfig) - secret_keys(StorageConfig))), st.text())
def test_settings_are_taken_as_they_are(key: str, value: str) -> None:
    first, last = Setting(key, "first"), Setting(key, value)
    assert from_settings(StorageConfig, [first, last]) == {key: Given(value, f"--set {key}")}


@pytest.mark.parametrize(
    ("key", "complaint"),
    [
        ("server.prot", "--set: unknown key 'server.prot'; did you mean 'server.port'?"),
        ("colour", "--set: unknown key 'colour'; docs/configuration.md lists all keys"),
        ("storage.directory", "--set: unknown key 'storage.directory'; "),
        ("server.region", "--set: unknown key 'server.region'; "),
    ],
)
def test_settings_of_nothing(key: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(complaint)}"):
        from_settings(ServerConfig, [Setting("server.port", "1"), Setting(key, "secret")])


@pytest.mark.parametrize("model", MODELS)
def test_passwords_and_tokens_are_refused(model: type[BaseModel]) -> None:
    secret = {key for key in keys(model) if key.lower().endswith(("password", "token.value"))}
    assert secret_keys(model) == secret
    for key in secret:
        with pytest.raises(ConfigError, match=f"--set {key} would show .* {variable_of(key)}$") as refused:
            from_settings(model, [Setting(key, "s3cret")])
        assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("zookeeper.password", "zookeeper.passwordFile"),
        ("server.ssl.token.value", "server.ssl.token.location"),
        ("server.ssl.keyStore.password", "a configuration file"),
        ("server.ssl.trustStore.password", "a configuration file"),
    ],
)
def test_where_passwords_and_tokens_are_put_instead(key: str, place: str) -> None:
    with pytest.raises(ConfigError, match=f"; use {place}, or the environment variable "):
        from_settings(ServerConfig, [Setting(key, "s3cret")])


def test_variables_of_others_are_left_alone() -> None:
    found = from_environment(
        ServerConfig,
        {
            "WALTZ_SERVER_PORT": "7",
            "WALTZ_STORAGE_PORT": "8",
            "WALTZ_CLIENT_SSL_KEY_STORE_LOCATION": "/x",
            "WALTZ_CONFIG": "/x",
            "WALTZ_ZOOKEEPER_JARS": "/x",
            "WALTZ_SERVER_HOST": "",
            "WALTZ_SERVER_PORT_7000_TCP_ADDR": "10.0.0.1",
            "WALTZ_SERVER_0_PORT": "tcp://10.0.0.1:7000",
            "PATH": "/x",
        },
    )
    assert found.given == {"server.port": Given("7", "environment variable WALTZ_SERVER_PORT")}
    assert not found.unknown


def test_a_misspelt_variable() -> None:
    found = from_environment(ServerConfig, {"WALTZ_SERVER_PROT": "7"})
    assert ignored(found.unknown) == [
        "unknown environment variable WALTZ_SERVER_PROT is ignored; did you mean WALTZ_SERVER_PORT?"
    ]


@pytest.mark.parametrize(
    ("model", "variable"), [(ServerConfig, "WALTZ_SERVER_PORT"), (StorageConfig, "WALTZ_STORAGE_PORT")]
)
def test_links_of_kubernetes_are_no_ports(model: type[BaseModel], variable: str) -> None:
    found = from_environment(model, {variable: "tcp://10.96.0.7:7000"})
    assert not found.given
    assert ignored(found.unknown) == [
        (
            f"environment variable {variable}, set by Kubernetes for a service of that name, is ignored; "
            "set enableServiceLinks: false in the pod"
        )
    ]


@pytest.mark.parametrize(
    ("settings", "variables", "complaint"),
    [
        (
            [],
            {"WALTZ_SERVER_PORT": "x"},
            "wrong value for key 'server.port' in environment variable WALTZ_SERVER_PORT: 'x'",
        ),
        ([Setting("server.port", "")], {}, "wrong value for key 'server.port' in --set server.port: ''; expected"),
        (
            [Setting("server.port", "70000")],
            {"WALTZ_SERVER_PORT": "x"},
            "in --set server.port: '70000'; expected less than or equal to 65535",
        ),
        (
            [Setting("server.jetty.port", "2")],
            {},
            "Validation failed for server.jetty.port: value '2' is already taken in --set server.jetty.port",
        ),
    ],
)
def test_errors_name_where_a_value_is_from(
    path: Path, settings: list[Setting], variables: dict[str, str], complaint: str
) -> None:
    path.write_text(yaml.safe_dump(REQUIRED))
    reading = examine_sources(path, ServerConfig, settings, variables)
    assert complaint in reading.errors[0]


def test_a_missing_key_says_what_to_do(path: Path) -> None:
    path.write_text("")
    reading = examine_sources(path, StorageConfig, [], {})
    assert len(reading.errors) == 6
    assert reading.errors[0] == (
        f"missing key 'zookeeper.connectString' in {path}; add it to a configuration file, or set "
        "WALTZ_ZOOKEEPER_CONNECT_STRING"
    )


def test_no_file_is_needed() -> None:
    variables = {"WALTZ_ZOOKEEPER_CONNECT_STRING": "zk:1", "WALTZ_CLUSTER_ROOT": "/w", "WALTZ_CLUSTER_ROT": "/x"}
    reading = examine_sources(None, CliConfig, [], variables)
    assert settle(reading) == CliConfig(zookeeper_connect_string="zk:1", cluster_root="/w")
    assert reading.unknown
    assert (
        examine_sources(None, ClientConfig, [], {})
        .errors[0]
        .startswith("missing key 'zookeeper.connectString' in environment; ")
    )
