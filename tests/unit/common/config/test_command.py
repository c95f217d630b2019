"""What a check of a configuration prints."""

import argparse

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr

from waltz.common.config.command import HIDDEN, checked, print_check, setting, setting_options
from waltz.common.config.schemas import ClientConfig, ServerConfig, examine_mapping, from_mapping

REQUIRED = {"zookeeper.connectString": "zk:1", "cluster.root": "/w"}


def test_the_options() -> None:
    parser = argparse.ArgumentParser()
    setting_options(parser)
    assert (parser.parse_args([]).settings, parser.parse_args([]).strict) == ([], False)
    options = parser.parse_args(["--set", "a.b=c=d", "--set", "e=", "--strict"])
    assert (options.settings, options.strict) == ([("a.b", "c=d"), ("e", "")], True)


@given(st.text(alphabet=st.characters(exclude_characters="="), min_size=1), st.text())
def test_settings(key: str, value: str) -> None:
    assert setting(f"{key}={value}") == (key, value)


@pytest.mark.parametrize("text", ["", "=", "=secret", "server.ssl.keyStore.password secret"])
def test_settings_without_a_key_or_a_value(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="^expected KEY=VALUE, such as cluster.root=/waltz$"):
        setting(text)


@given(
    st.text(min_size=1),
    st.integers(min_value=1),
    st.booleans(),
    st.one_of(st.none(), st.text(min_size=1)),
)
def test_what_is_printed_is_a_file_that_says_the_same(
    servers: str, size: int, auto_mount: bool, location: str | None
) -> None:
    mapping = {
        **REQUIRED,
        "zookeeper.connectString": servers,
        "client.maxTransactionSize": size,
        "client.autoMount": auto_mount,
        "client.ssl.trustStore.location": location,
    }
    reading = examine_mapping(mapping, ClientConfig, source="some\nwhere # else")
    found = checked(reading, [], strict=False)
    lines = found.lines()
    assert from_mapping(yaml.safe_load("\n".join(lines)), ClientConfig) == reading.made
    assert len(lines) == len(found.values)


def test_passwords_are_hidden() -> None:
    mapping = {**REQUIRED, "client.ssl.keyStore.password": "secret", "client.ssl.trustStore.password": 12345}
    assert examine_mapping(mapping, ClientConfig, source="x").made is None
    mapping["client.ssl.trustStore.password"] = "secret"
    reading = examine_mapping(mapping, ClientConfig, source="x")
    found = checked(reading, [], strict=False)
    assert "secret" not in repr(found)
    assert found.values["client.ssl.keyStore.password"] == HIDDEN
    again = from_mapping(yaml.safe_load("\n".join(found.lines())), ClientConfig)
    assert again.tls.key_store_password == SecretStr(HIDDEN)


def test_everything_that_is_wrong_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    mapping = {**REQUIRED, "zookeeper.sessionTimeout": 0, "server.port": "x", "server.regoin": 1, "server.region": 1}
    reading = examine_mapping(mapping, ServerConfig, source="x.yml")
    assert print_check(checked(reading, [], strict=False)) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "Warning: x.yml: unknown key 'server.regoin' is ignored",
        "Warning: x.yml: keys without effect: server.region (servers of the original do not use it either)",
        "Error: wrong value for key 'zookeeper.sessionTimeout' in x.yml: 0; expected greater than or equal to 1",
        "Error: wrong value for key 'server.port' in x.yml: 'x'; expected a valid integer",
        "x.yml: 2 errors, 2 warnings",
    ]


def test_files_are_looked_at_where_there_is_a_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    def problems(config: BaseModel, source: str) -> list[str]:
        assert config == reading.made
        return [f"{source}: no such key store"]

    reading = examine_mapping({}, ClientConfig, source="x.yml")
    assert len(checked(reading, [problems, lambda *_: []], strict=False).errors) == 2
    reading = examine_mapping(REQUIRED, ClientConfig, source="x.yml")
    assert print_check(checked(reading, [problems, lambda *_: []], strict=False)) == 1
    out, err = capsys.readouterr()
    assert out.startswith("client.autoMount: true ")
    assert err == "Error: x.yml: no such key store\nx.yml: 1 error, no warnings\n"


@pytest.mark.parametrize(("strict", "code", "verdict"), [(False, 0, "is valid; 1 warning"), (True, 1, ": 1 error, no")])
def test_strictly(strict: bool, code: int, verdict: str, capsys: pytest.CaptureFixture[str]) -> None:
    reading = examine_mapping({**REQUIRED, "client.mockDriver": 1}, ClientConfig, source="x.yml")
    assert print_check(checked(reading, [], strict=strict)) == code
    out, err = capsys.readouterr()
    assert "cluster.root: /w  " in out
    assert verdict in err
