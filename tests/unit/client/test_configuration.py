"""What counts more: arguments, the environment, a file."""

import inspect
import re
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from pydantic import SecretStr

import waltz
from tests.unit.client.application import Callbacks
from waltz.client.configuration import VARIABLES, ClientSettings, client_config, token_source
from waltz.client.engine.environment import ZooKeeperCluster
from waltz.client.mock import MockDriver
from waltz.common.config.schemas import ClientConfig, TlsConfig
from waltz.common.config.sources import variable_of
from waltz.common.errors import ConfigError

FILE = """
zookeeper.connectString: of-the-file:2181
cluster.root: /file
client.maxTransactionSize: 1000
"""
COMPLETE = {"WALTZ_ZOOKEEPER_CONNECT_STRING": "of-the-environment:1", "WALTZ_CLUSTER_ROOT": "/environment"}
DOCS = Path(__file__).parents[3] / "docs" / "client-operations.md"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "client.yml"
    file.write_text(FILE)
    return file


@pytest.mark.parametrize(
    ("key", "variable"),
    [
        ("cluster.root", "WALTZ_CLUSTER_ROOT"),
        ("zookeeper.connectString", "WALTZ_ZOOKEEPER_CONNECT_STRING"),
        ("client.ssl.keyStore.location", "WALTZ_CLIENT_SSL_KEY_STORE_LOCATION"),
        ("client.maxLocksPerTransaction", "WALTZ_CLIENT_MAX_LOCKS_PER_TRANSACTION"),
    ],
)
def test_variables_are_the_keys_in_capitals(key: str, variable: str) -> None:
    assert variable_of(key) == variable
    assert VARIABLES[variable] == key


def test_no_two_keys_share_a_variable() -> None:
    assert len(VARIABLES) == len(set(VARIABLES.values()))


def test_all_settings_are_keyword_arguments() -> None:
    hints = get_type_hints(ClientSettings)
    assert hints.keys() == ClientConfig.model_fields.keys()
    for name, hint in hints.items():
        annotation = ClientConfig.model_fields[name].annotation
        assert hint == annotation, name


def test_the_variables_of_the_guide_are_there() -> None:
    assert set(re.findall(r"`(WALTZ_[A-Z_]+)`", DOCS.read_text())) <= {*VARIABLES, "WALTZ_CONFIG"}


def test_keyword_arguments_are_the_keys_with_their_units() -> None:
    """The rule of the guide; a variable is its key in capitals."""
    arguments = {re.sub(r"_(ms|bytes)$", "", name) for name in ClientConfig.model_fields}
    keys = {
        each.removeprefix("WALTZ_").removeprefix("CLIENT_").lower() for each in VARIABLES if "CLIENT_SSL_" not in each
    }
    assert arguments == {*keys, "tls"}


def test_each_source_counts_more_than_the_next(path: Path) -> None:
    variables = {"WALTZ_CLUSTER_ROOT": "/environment", "WALTZ_CLIENT_MAX_TRANSACTION_SIZE": "2000"}
    config = client_config(path, {"cluster_root": "/argument"}, variables)
    assert config.zookeeper_connect_string == "of-the-file:2181"
    assert config.max_transaction_size_bytes == 2000
    assert config.cluster_root == "/argument"
    assert config.max_concurrent_transactions == 5


def test_the_file_may_be_named_by_the_environment(path: Path) -> None:
    assert client_config(None, {}, {"WALTZ_CONFIG": str(path)}).cluster_root == "/file"
    assert client_config(path, {}, {"WALTZ_CONFIG": "/another"}).cluster_root == "/file"
    with pytest.raises(ConfigError, match="cannot read configuration file /nowhere"):
        client_config(None, {}, {"WALTZ_CONFIG": "/nowhere"})


def test_no_file_is_needed() -> None:
    config = client_config(None, {}, COMPLETE)
    assert (config.zookeeper_connect_string, config.cluster_root) == ("of-the-environment:1", "/environment")
    assert (config.zookeeper_session_timeout_ms, config.zookeeper_connect_timeout_ms) == (30_000, 30_000)
    assert config.tls.check_hostname
    assert client_config(None, {"zookeeper_connect_string": "zk:1", "cluster_root": "/w"}, {}).cluster_root == "/w"


def test_variables_are_read_like_values_of_a_file() -> None:
    variables = {
        **COMPLETE,
        "WALTZ_ZOOKEEPER_CONNECT_TIMEOUT": "1500",
        "WALTZ_CLIENT_AUTO_MOUNT": "false",
        "WALTZ_CLIENT_SSL_KEY_STORE_PASSWORD": "secret",
        "WALTZ_CLIENT_SESSION_FALLBACK": "",  # as good as not set
    }
    config = client_config(None, {}, variables)
    assert (config.zookeeper_connect_timeout_ms, config.auto_mount) == (1500, False)
    assert config.tls.key_store_password == SecretStr("secret")
    assert config.session_fallback == "error"


@pytest.mark.parametrize("complete", [{"zookeeper.connectString": "zk:1", "cluster.root": "/w"}, None])
def test_what_a_program_gives_as_a_whole_is_whole(complete: dict[str, object] | None) -> None:
    given = ClientConfig(zookeeper_connect_string="zk:1", cluster_root="/w") if complete is None else complete
    assert client_config(given, {}, COMPLETE).cluster_root == "/w"
    changed = client_config(given, {"max_transaction_size_bytes": 5, "tls": TlsConfig(plaintext=True)}, COMPLETE)
    assert (changed.cluster_root, changed.max_transaction_size_bytes, changed.tls.plaintext) == ("/w", 5, True)


@pytest.mark.parametrize(
    ("settings", "variables", "complaint"),
    [
        (
            {},
            {**COMPLETE, "WALTZ_CLIENT_MAX_TRANSACTION_SIZE": "much"},
            (
                "wrong value for key 'client.maxTransactionSize' in environment variable "
                "WALTZ_CLIENT_MAX_TRANSACTION_SIZE: 'much'"
            ),
        ),
        (
            {"cluster_root": "waltz"},
            COMPLETE,
            "wrong value for key 'cluster.root' in argument cluster_root: 'waltz'; expected an absolute",
        ),
        (
            {},
            {"WALTZ_CLUSTER_ROOT": "/w"},
            (
                "missing key 'zookeeper.connectString' in arguments and environment; "
                "set WALTZ_ZOOKEEPER_CONNECT_STRING, or give a configuration file that has it"
            ),
        ),
    ],
)
def test_errors_name_what_is_wrong(settings: dict[str, object], variables: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        client_config(None, settings, variables)


def test_a_password_that_is_wrong_is_not_shown() -> None:
    wrong = TlsConfig.model_construct(key_store_password=5)
    with pytest.raises(ConfigError, match="expected text") as caught:
        client_config(None, {"tls": wrong}, COMPLETE)
    assert "5" not in str(caught.value)


def test_misspelt_names_are_told(caplog: pytest.LogCaptureFixture) -> None:
    client_config(None, {}, {**COMPLETE, "WALTZ_CLUSTER_ROT": "/x", "WALTZ_ZOOKEEPER_JARS": "/x", "OTHER": "x"})
    assert [record.getMessage() for record in caplog.records] == [
        "unknown environment variable WALTZ_CLUSTER_ROT is ignored; did you mean WALTZ_CLUSTER_ROOT?"
    ]
    with pytest.raises(TypeError, match="unexpected keyword argument 'cluster_rot'; did you mean 'cluster_root'"):
        client_config(None, {"cluster_rot": "/x"}, COMPLETE)


@pytest.fixture
def opened_with(monkeypatch: pytest.MonkeyPatch) -> list[ClientConfig]:
    """The configurations with which clients look for their cluster, which is not there."""
    seen: list[ClientConfig] = []

    async def join(self: ZooKeeperCluster, member: object) -> None:
        seen.append(self._config)
        raise waltz.ZooKeeperUnreachableError("nothing here")

    monkeypatch.setattr(ZooKeeperCluster, "join", join)
    for name, value in COMPLETE.items():
        monkeypatch.setenv(name, value)
    return seen


async def test_every_face_reads_them(opened_with: list[ClientConfig]) -> None:
    with pytest.raises(waltz.ZooKeeperUnreachableError):
        await waltz.connect(max_transaction_size_bytes=7)
    with pytest.raises(waltz.ZooKeeperUnreachableError):
        await waltz.open_client(Callbacks(), max_transaction_size_bytes=7)
    assert [(each.cluster_root, each.max_transaction_size_bytes) for each in opened_with] == [("/environment", 7)] * 2


def test_so_does_the_blocking_one(opened_with: list[ClientConfig]) -> None:
    client = waltz.blocking.connect(max_transaction_size_bytes=7)
    with pytest.raises(waltz.ZooKeeperUnreachableError):
        client.open()
    assert [(each.cluster_root, each.max_transaction_size_bytes) for each in opened_with] == [("/environment", 7)]


async def test_a_mock_can_be_configured_like_a_cluster() -> None:
    async with waltz.connect(MockDriver(), max_transaction_size_bytes=3) as client:
        with pytest.raises(waltz.TransactionTooLargeError):
            await client.append(0, b"four")


@pytest.mark.parametrize("call", [waltz.connect, waltz.blocking.connect, waltz.open_client])
def test_the_configuration_may_be_left_out(call: Any) -> None:
    assert inspect.signature(call).parameters["config"].default is None


async def test_a_token_is_a_text_a_path_or_a_function(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("from-a-file\n")
    trusting = TlsConfig(trust_store_location="/trust")
    for given, expected in (("a-text", "a-text"), (path, "from-a-file"), (lambda: "called", "called")):
        source = token_source(given, trusting)
        assert source is not None
        assert await source.read() == expected
    assert token_source(None, trusting) is None
    for tls in (TlsConfig(), TlsConfig(plaintext=True, trust_store_location="/trust")):
        with pytest.raises(ConfigError, match="a token needs TLS"):
            token_source("a-text", tls)
    with pytest.raises(TypeError, match="token must be a token, the path of a file with one, or a function, not bytes"):
        token_source(b"a-text", trusting)  # type: ignore[arg-type]


async def test_all_faces_take_tokens() -> None:
    keys = {"zookeeper.connectString": "zk", "cluster.root": "/waltz"}
    with pytest.raises(ConfigError, match="a token needs TLS"):
        waltz.connect(keys, token="a-text")
    with pytest.raises(ConfigError, match="a token needs TLS"):
        waltz.blocking.connect(keys, token="a-text")
    with pytest.raises(ConfigError, match="a token needs TLS"):
        await waltz.open_client(Callbacks(), keys, token="a-text")
