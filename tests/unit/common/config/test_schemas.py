import logging
from pathlib import Path

import pytest
from pydantic import BaseModel, SecretStr, ValidationError

from waltz.common.config.schemas import (
    ArchiveConfig,
    CliConfig,
    ClientConfig,
    ServerConfig,
    StorageConfig,
    TlsConfig,
    from_mapping,
    load,
)
from waltz.common.errors import ConfigError

ZOOKEEPER = {"zookeeper.connectString": "zk:2181", "zookeeper.sessionTimeout": 30000, "cluster.root": "/waltz"}
SERVER = {**ZOOKEEPER, "server.port": 55180}
STORAGE = {**ZOOKEEPER, "storage.port": 6000, "storage.admin.port": 6001, "storage.directory": "/var/waltz"}

SERVER_FILE = """\
# the layout that the original's guide shows
zookeeper:
  connectString: localhost:2181
  sessionTimeout: 30000
cluster.root: /waltz_root
server:
  port: 55180
  jetty.port: 55181
  ssl:
    keyStore.location: /etc/waltz/key.p12
    keyStore.password: secret
    keyStore.type: JKS
    keyManager.algorithm: SunX509
    trustStore:
      location: /etc/waltz/trust.p12
      password: secret
storage:
  maxBatchSize: "50"
"""

STORAGE_FILE = """\
zookeeper.connectString: localhost:2181
zookeeper.sessionTimeout: 30000
cluster.root: /waltz_root
storage.port: 55280
storage.admin.port: 55281
storage.jetty.port: 55282
storage.directory: /var/lib/waltz
storage.segment.size.threshold: 1000000000
storage.segment.cache.capacity: 5
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "waltz.yml"
    path.write_text(text)
    return path


def test_server_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = load(write(tmp_path, SERVER_FILE), ServerConfig)
    assert config.zookeeper_connect_string == "localhost:2181"
    assert config.zookeeper_session_timeout_ms == 30000
    assert config.cluster_root == "/waltz_root"
    assert (config.server_port, config.server_jetty_port) == (55180, 55181)
    assert config.storage_max_batch_size == 50
    assert config.tls == TlsConfig(
        key_store_location="/etc/waltz/key.p12",
        key_store_password=SecretStr("secret"),
        key_store_type="JKS",
        trust_store_location="/etc/waltz/trust.p12",
        trust_store_password=SecretStr("secret"),
        check_hostname=False,
    )
    assert "secret" not in repr(config)
    assert not caplog.records


def test_storage_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = load(str(write(tmp_path, STORAGE_FILE)), StorageConfig)
    assert (config.storage_port, config.storage_admin_port, config.storage_jetty_port) == (55280, 55281, 55282)
    assert config.storage_directory == "/var/lib/waltz"
    assert (config.segment_size_threshold_bytes, config.segment_cache_capacity) == (1_000_000_000, 5)
    assert not caplog.records


def test_defaults_of_a_server() -> None:
    config = from_mapping({**SERVER, "server.host": "node1"}, ServerConfig)
    assert config.model_dump(exclude={"tls"}) == {
        "zookeeper_connect_string": "zk:2181",
        "zookeeper_session_timeout_ms": 30000,
        "zookeeper_user": None,
        "zookeeper_password": None,
        "zookeeper_password_file": None,
        "zookeeper_ssl_enabled": False,
        "cluster_root": "/waltz",
        "server_port": 55180,
        "server_host": "node1",
        "server_bind_address": "node1",
        "server_jetty_port": None,
        "console_enabled": True,
        "optimistic_lock_table_size": 30000,
        "feed_cache_size_bytes": 67108864,
        "min_fence_interval_ms": 100,
        "retention_interval_ms": 300_000,
        "min_fetch_size": 100,
        "realtime_threshold": 1000,
        "transaction_data_cache_size_bytes": 134217728,
        "transaction_data_cache_allocation": "heap",
        "max_transaction_size_bytes": 32 * 1024 * 1024,
        "max_locks_per_transaction": 10_000,
        "append_memory_bytes": 1024 * 1024 * 1024,
        "storage_max_batch_size": 1000,
        "storage_initial_retry_interval_ms": 100,
        "storage_max_retry_interval_ms": 20000,
        "storage_checkpoint_interval": 250000,
        "acl": {
            "audit_log": None,
            "enabled": False,
            "principal_from": "subject",
            "principal_mapping": None,
            "super_principals": None,
            "token_algorithms": "ES256",
            "token_keys": None,
            "token_leeway_ms": 30_000,
            "withdrawn_tokens": None,
        },
        "http": {"open": None, "tls": False},
        "connections": {
            "max": 10_000,
            "max_per_address": 5000,
            "max_per_principal": None,
            "hello_timeout_ms": 10_000,
            "frame_timeout_ms": 60_000,
            "unread_timeout_ms": 600_000,
            "receive_memory_bytes": 256 * 1024 * 1024,
            "send_memory_bytes": 1024 * 1024 * 1024,
        },
    }
    assert config.tls == TlsConfig()
    assert not config.tls.plaintext


def test_the_memory_for_appends_holds_large_transactions() -> None:
    large = {**SERVER, "server.maxTransactionSize": 1 << 29, "server.connections.receiveMemory": 1 << 30}
    assert from_mapping(large, ServerConfig).append_memory_bytes == 4 << 29
    with pytest.raises(ConfigError, match=r"server\.appendMemory \(1000\) must not be smaller than"):
        from_mapping({**SERVER, "server.appendMemory": 1000}, ServerConfig)


def test_defaults_of_host_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.getfqdn", lambda: "node7.example.org")
    monkeypatch.setattr("socket.gethostname", lambda: "node7")
    server = from_mapping(SERVER, ServerConfig)
    assert (server.server_host, server.server_bind_address) == ("node7.example.org", "node7.example.org")
    assert from_mapping({**SERVER, "server.bindAddress": "0.0.0.0"}, ServerConfig).server_bind_address == "0.0.0.0"
    assert from_mapping(STORAGE, StorageConfig).storage_bind_address == "node7"


@pytest.mark.parametrize("tls", [{}, {"plaintext": True, "trustStore.location": "/trust.pem"}])
def test_access_rules_need_verified_certificates(tls: dict[str, object]) -> None:
    given = {f"server.ssl.{key}": value for key, value in tls.items()}
    with pytest.raises(ConfigError, match=r"server.acl.enabled needs TLS with server.ssl.trustStore.location"):
        from_mapping({**SERVER, "server.acl.enabled": True, **given}, ServerConfig)
    given = {f"storage.ssl.{key}": value for key, value in tls.items()}
    with pytest.raises(ConfigError, match=r"storage.acl.enabled needs TLS with storage.ssl.trustStore.location"):
        from_mapping({**STORAGE, "storage.acl.enabled": True, **given}, StorageConfig)
    with pytest.raises(ConfigError, match=r"storage.acl.auditLog needs storage.acl.enabled"):
        from_mapping({**STORAGE, "storage.acl.auditLog": "/audit"}, StorageConfig)
    trusting = {"server.ssl.trustStore.location": "/trust.pem", "server.acl.enabled": True}
    assert from_mapping({**SERVER, **trusting}, ServerConfig).acl.enabled


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (
            {"connections.maxPerPrincipal": 5},
            r"server.connections.maxPerPrincipal has an effect only with server.acl.enabled: true, since",
        ),
        ({"acl.tokens.keys": "/keys"}, r"server.acl.tokens.keys has an effect only with server.acl.enabled: true"),
        (
            {"acl.enabled": True, "ssl.trustStore.location": "/trust", "acl.tokens.withdrawn": "/withdrawn"},
            r"server.acl.tokens.withdrawn has an effect only with server.acl.tokens.keys",
        ),
        (
            {"ssl.trustStore.location": "/trust", "ssl.token.location": "/token"},
            r"server.ssl.token is for clients and tools: nodes are known by their certificates",
        ),
        ({"http.tls": True}, r"server.http.tls has an effect only with server.jetty.port"),
        (
            {"http.tls": True, "jetty.port": 1, "ssl.plaintext": True},
            r"server.http.tls needs TLS, which server.ssl.plaintext turns off",
        ),
        ({"http.open": "/health"}, r"server.http.open has an effect only with server.acl.enabled: true"),
        (
            {"acl.enabled": True, "ssl.trustStore.location": "/trust", "http.open": "/health,/console"},
            r"'/console' cannot be open; possible paths are /buildinfo, /health, /metrics, /metrics/prometheus",
        ),
    ],
)
def test_settings_that_could_not_have_an_effect_are_refused(given: dict[str, object], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        from_mapping({**SERVER, **{f"server.{key}": value for key, value in given.items()}}, ServerConfig)


@pytest.mark.parametrize("tls", [{}, {"plaintext": True, "trustStore.location": "/trust"}])
def test_tokens_are_for_trusted_peers_over_tls(tls: dict[str, object]) -> None:
    for name in ("token.location", "token.value"):
        given = {f"ssl.{key}": value for key, value in {**tls, name: "secret"}.items()}
        with pytest.raises(ConfigError, match="a token needs TLS and trustStore.location") as refused:
            from_mapping({"zookeeper.connectString": "zk", "cluster.root": "/waltz", **given}, CliConfig)
        assert "secret" not in str(refused.value)
    with pytest.raises(ConfigError, match="there are two tokens"):
        given = {"ssl.trustStore.location": "/trust", "ssl.token.location": "/token", "ssl.token.value": "secret"}
        from_mapping({"zookeeper.connectString": "zk", "cluster.root": "/waltz", **given}, CliConfig)


def test_https_of_archivers_and_of_tools() -> None:
    archiver = {"zookeeper.connectString": "zk", "cluster.root": "/w", "archive.url": "file:///archive"}
    with pytest.raises(ConfigError, match=r"archive.http.tls has an effect only with archive.jetty.port"):
        from_mapping({**archiver, "archive.http.tls": True}, ArchiveConfig)
    assert from_mapping({**archiver, "archive.http.tls": True, "archive.jetty.port": 1}, ArchiveConfig).http.tls
    tools = {"zookeeper.connectString": "zk", "cluster.root": "/w", "http.tls": True}
    with pytest.raises(ConfigError, match=r"http.tls needs TLS, which ssl.plaintext turns off"):
        from_mapping({**tools, "ssl.plaintext": True}, CliConfig)
    assert from_mapping(tools, CliConfig).http_tls


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"acl.enabled": True}, r"acl.enabled needs TLS with (archive\.)?ssl.trustStore.location"),
        ({"acl.auditLog": "/audit"}, r"acl.auditLog needs (archive\.)?acl.enabled"),
        ({"acl.tokens.keys": "/keys"}, r"acl.tokens.keys has an effect only with (archive\.)?acl.enabled: true"),
        ({"http.open": "/health"}, r"http.open has an effect only with (archive\.)?acl.enabled: true"),
        ({"http.open": "/reset"}, "'/reset' cannot be open"),
    ],
)
def test_access_rules_of_archivers_and_of_bots(given: dict[str, object], error: str) -> None:
    tools: dict[str, object] = {"zookeeper.connectString": "zk", "cluster.root": "/w"}
    archiver = {**tools, "archive.url": "file:///archive", "archive.jetty.port": 1}
    enabled: dict[str, object] = {"acl.enabled": True, "ssl.trustStore.location": "/trust", "http.open": "/health"}
    for before, prefix, model in ((archiver, "archive.", ArchiveConfig), (tools, "", CliConfig)):
        with pytest.raises(ConfigError, match=error):
            from_mapping({**before, **{f"{prefix}{key}": value for key, value in given.items()}}, model)
        config = from_mapping({**before, **{f"{prefix}{key}": value for key, value in enabled.items()}}, model)
        assert isinstance(config, ArchiveConfig | CliConfig)
        assert config.acl.enabled
    del archiver["archive.jetty.port"]
    with pytest.raises(ConfigError, match=r"archive.acl.enabled has an effect only with archive.jetty.port"):
        from_mapping({**archiver, **{f"archive.{key}": value for key, value in enabled.items()}}, ArchiveConfig)


def test_paths_that_are_open() -> None:
    given = {"acl.enabled": True, "ssl.trustStore.location": "/trust", "http.open": "/health, /metrics"}
    for values, model, node in ((SERVER, ServerConfig, "server"), (STORAGE, StorageConfig, "storage")):
        config = from_mapping({**values, **{f"{node}.{key}": value for key, value in given.items()}}, model)
        assert config.http.open_paths == ("/health", "/metrics")  # type: ignore[attr-defined]  # both have it
        assert from_mapping(values, model).http.open_paths == ()  # type: ignore[attr-defined]  # same


def test_defaults_of_a_storage() -> None:
    config = from_mapping(STORAGE, StorageConfig)
    assert config.storage_jetty_port is None
    assert not config.journal_enabled
    assert (config.segment_size_threshold_bytes, config.segment_cache_capacity) == (1_000_000_000, 5)


def test_defaults_of_a_client() -> None:
    config = from_mapping(ZOOKEEPER, ClientConfig)
    assert config.auto_mount is True
    assert config.num_transaction_retry_threads == 1
    assert config.num_consumer_threads == 10
    assert config.long_wait_threshold_ms == 5000
    assert config.max_concurrent_transactions == 5
    assert config.max_transaction_size_bytes == 32 * 1024 * 1024


def test_defaults_of_the_tools() -> None:
    config = from_mapping({"zookeeper.connectString": "zk", "cluster.root": "/w", "ssl.plaintext": True}, CliConfig)
    assert (config.zookeeper_session_timeout_ms, config.zookeeper_connect_timeout_ms) == (30000, 10000)
    assert config.tls.plaintext


@pytest.mark.parametrize(
    "mapping",
    [
        {"client.ssl.keyStore.location": "/key", "client.ssl.plaintext": True},
        {"client": {"ssl": {"keyStore": {"location": "/key"}, "plaintext": True}}},
        {"client": {"ssl.keyStore": {"location": "/key"}, "ssl": {"plaintext": True}}},
        {"client.ssl": {"keyStore.location": "/key"}, "client": {"ssl.plaintext": True}},
    ],
    ids=["dotted", "nested", "mixed", "spread"],
)
def test_keys_may_be_split_at_any_dot(mapping: dict[str, object], caplog: pytest.LogCaptureFixture) -> None:
    config = from_mapping({**ZOOKEEPER, **mapping}, ClientConfig)
    assert config.tls == TlsConfig(key_store_location="/key", plaintext=True)
    assert not caplog.records


def test_values_may_be_strings() -> None:
    mapping = {**ZOOKEEPER, "client.autoMount": "false", "client.longWaitThreshold": "250"}
    config = from_mapping(mapping, ClientConfig)
    assert config.auto_mount is False
    assert config.long_wait_threshold_ms == 250
    allocation = from_mapping({**SERVER, "server.transactionDataCacheAllocation": "DIRECT"}, ServerConfig)
    assert allocation.transaction_data_cache_allocation == "direct"


def test_a_key_without_value_is_missing() -> None:
    assert from_mapping({**SERVER, "server.jetty.port": None}, ServerConfig).server_jetty_port is None
    with pytest.raises(ConfigError, match=r"^missing key 'server\.port' in configuration$"):
        from_mapping({**SERVER, "server.port": None}, ServerConfig)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("storage.prt", "storage.port"),
        ("storage.Port", "storage.port"),
        ("storage.admin", "storage.admin.port"),
        ("storage.dir", "storage.directory"),
        ("zookeper.connectString", "zookeeper.connectString"),
    ],
)
def test_a_missing_key_names_the_near_miss(tmp_path: Path, written: str, meant: str) -> None:
    lines = {**STORAGE}
    lines[written] = lines.pop(meant)
    path = write(tmp_path, "".join(f"{key}: {value}\n" for key, value in lines.items()))
    with pytest.raises(ConfigError) as caught:
        load(path, StorageConfig)
    assert str(caught.value) == f"missing key '{meant}' in {path}; did you mean '{written}'?"


def test_an_unknown_key_is_a_warning_with_the_nearest_known_name(caplog: pytest.LogCaptureFixture) -> None:
    from_mapping({**SERVER, "server": {"feedCachSize": 1, "colour": "blue"}}, ServerConfig, source="x.yml")
    assert [record.getMessage() for record in caplog.records] == [
        "x.yml: unknown key 'server.colour' is ignored",
        "x.yml: unknown key 'server.feedCachSize' is ignored; did you mean 'server.feedCacheSize'?",
    ]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_keys_of_other_processes_and_of_java_are_no_warnings(caplog: pytest.LogCaptureFixture) -> None:
    others = {
        **STORAGE,
        "server.region": "eu",
        "server.ssl.trustManager.algorithm": "SunX509",
        "client.mockDriver": {"of": "tests"},
    }
    from_mapping({**others, **SERVER}, ServerConfig)
    assert not caplog.records


def test_keys_of_java_without_effect_are_told_in_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    load(
        write(tmp_path, SERVER_FILE + "server.transactionDataCacheAllocation: direct\nserver.region: eu\n"),
        ServerConfig,
    )
    assert [record.getMessage() for record in caplog.records] == [
        (
            f"{tmp_path}/waltz.yml: keys without effect: "
            "server.transactionDataCacheAllocation (Python has one kind of memory); "
            "server.ssl.keyStore.type (the content of the file decides); "
            "server.region (servers of the original do not use it either); "
            "server.ssl.keyManager.algorithm (Java's TLS only)"
        )
    ]
    assert {record.levelno for record in caplog.records} == {logging.INFO}


def test_a_key_of_earlier_versions_says_what_is_done_instead(caplog: pytest.LogCaptureFixture) -> None:
    client = {"zookeeper.connectString": "zk:2181", "cluster.root": "/waltz", "client.sessionRetryLost": True}
    from_mapping(client, ClientConfig, source="x.yml")
    text = (
        "x.yml: keys without effect: client.sessionRetryLost (a lost append of a write session ends with"
        " NotAppendedError; the application appends again)"
    )
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [(logging.WARNING, text)]


def test_a_key_that_asks_for_something_not_supported_says_so(caplog: pytest.LogCaptureFixture) -> None:
    from_mapping({**SERVER, "server.graphite.hostname": "graphite"}, ServerConfig, source="x.yml")
    assert [record.getMessage() for record in caplog.records] == [
        (
            "x.yml: keys without effect: server.graphite.hostname (there is no Graphite here; read the metrics from "
            "/metrics/prometheus on server.jetty.port)"
        )
    ]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("server.port", "abc", "'abc'; expected a valid integer"),
        ("server.port", 70000, "70000; expected less than or equal to 65535"),
        ("server.port", True, "True; expected a number"),
        ("server.port", [1], r"\[1\]; expected a valid integer"),
        ("server.minFetchSize", 0, "0; expected greater than or equal to 1"),
        ("server.optimisticLockTableSize", 1.5, "1.5; expected a valid integer"),
        ("cluster.root", "waltz", "'waltz'; expected an absolute ZooKeeper path"),
        ("cluster.root", "/waltz/", "'/waltz/'; expected an absolute ZooKeeper path"),
        ("cluster.root", "//waltz", "'//waltz'; expected an absolute ZooKeeper path"),
        ("cluster.root", 7, "7; expected text; put it in quotes"),
        ("server.transactionDataCacheAllocation", "disk", "'disk'; expected 'heap' or 'direct'"),
        ("server.ssl.plaintext", "perhaps", "'perhaps'; expected a valid boolean"),
    ],
)
def test_a_wrong_value_names_key_value_and_what_is_expected(key: str, value: object, said: str) -> None:
    with pytest.raises(ConfigError, match=f"^wrong value for key '{key}' in x.yml: {said}"):
        from_mapping({**SERVER, key: value}, ServerConfig, source="x.yml")


def test_a_wrong_password_value_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        from_mapping({**SERVER, "server.ssl.keyStore.password": 123456}, ServerConfig)
    assert "put it in quotes" in str(caught.value)
    assert "123456" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("mapping", "model", "key", "port"),
    [
        ({**SERVER, "server.jetty.port": 55180}, ServerConfig, "server.jetty.port", 55180),
        ({**STORAGE, "storage.admin.port": 6000}, StorageConfig, "storage.admin.port", 6000),
        ({**STORAGE, "storage.jetty.port": "6001"}, StorageConfig, "storage.jetty.port", 6001),
    ],
)
def test_ports_must_differ(mapping: dict[str, object], model: type[BaseModel], key: str, port: int) -> None:
    with pytest.raises(ConfigError, match=f"^Validation failed for {key}: value '{port}' is already taken in conf"):
        from_mapping(mapping, model)


def test_ports_chosen_by_the_operating_system_do_not_clash() -> None:
    config = from_mapping({**STORAGE, "storage.port": 0, "storage.admin.port": 0}, StorageConfig)
    assert (config.storage_port, config.storage_admin_port) == (0, 0)


def test_fetch_size_and_threshold() -> None:
    with pytest.raises(ConfigError, match=r"^server\.minFetchSize \(1000\) must be smaller than server\.realtime"):
        from_mapping({**SERVER, "server.minFetchSize": 1000}, ServerConfig)


def test_a_key_given_twice() -> None:
    with pytest.raises(ConfigError, match=r"^key 'server\.port' is given twice in configuration$"):
        from_mapping({**SERVER, "server": {"port": 1}}, ServerConfig)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("server: [1\nport: 2\n", ", line 2: not valid YAML: "),
        ("a: 1\nb: 2\na: 3\n", ", line 3: not valid YAML: key 'a' is given twice"),
        ("- 1\n- 2\n", r", line 1: expected lines of the form 'key: value', found \[1, 2\]"),
        ("just text\n", ", line 1: expected lines of the form 'key: value', found 'just text'"),
        ("a: !!python/object/apply:os.getcwd []\n", ", line 1: not valid YAML: could not determine a constructor"),
        ("a: \x01\n", ": not valid YAML: "),
        ("", "missing key 'zookeeper.connectString' in "),
    ],
)
def test_a_file_that_is_not_a_configuration(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        load(write(tmp_path, text), ServerConfig)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    absent = tmp_path / "absent.yml"
    with pytest.raises(ConfigError, match=f"^cannot read configuration file {absent}: No such file or directory$"):
        load(absent, ServerConfig)
    (tmp_path / "binary.yml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"binary\.yml is not a text file in UTF-8$"):
        load(tmp_path / "binary.yml", ServerConfig)


def test_a_prefix_selects_a_part_of_the_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path, SERVER_FILE + "server.ssl.keyStore.locaton: /typo\n")
    tls = load(path, TlsConfig, prefix="server.ssl.")
    assert tls.key_store_location == "/etc/waltz/key.p12"
    assert tls.trust_store_password == SecretStr("secret")
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: unknown key 'server.ssl.keyStore.locaton' is ignored; did you mean 'server.ssl.keyStore.location'?"
    ]
    nothing = load(write(tmp_path, "a: 1\n"), TlsConfig, prefix="server.ssl.")
    assert nothing == TlsConfig(check_hostname=False)


def test_models_can_be_made_in_code_and_not_changed() -> None:
    config = ClientConfig(zookeeper_connect_string="zk", zookeeper_session_timeout_ms=1000, cluster_root="/w")
    assert config == from_mapping(
        {"zookeeper.connectString": "zk", "zookeeper.sessionTimeout": 1000, "cluster.root": "/w"}, ClientConfig
    )
    with pytest.raises(ValidationError):
        config.cluster_root = "/other"
