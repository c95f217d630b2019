"""The user of a process, and TLS to ZooKeeper, by its configuration."""

from pathlib import Path

import pytest

from tests.unit.common.net.certificates import Authority, write_pem
from waltz.common.config.command import setting
from waltz.common.config.schemas import CliConfig, ClientConfig, from_mapping
from waltz.common.config.sources import from_environment, from_settings
from waltz.common.errors import ConfigError
from waltz.common.zk.addresses import address_problems
from waltz.common.zk.configured import configured_login, configured_tls, read_password

CLUSTER = {"zookeeper.connectString": "zoo:2181", "cluster.root": "/waltz"}


def client(**keys: object) -> ClientConfig:
    return from_mapping({**CLUSTER, **{key.replace("_", "."): value for key, value in keys.items()}}, ClientConfig)


def test_a_user_with_a_password() -> None:
    assert configured_login(client()) is None
    login = configured_login(client(zookeeper_user="svc", zookeeper_password="secret"))
    assert login is not None
    assert (login.user, login.password.get_secret_value(), login.root) == ("svc", "secret", "/waltz")


@pytest.mark.parametrize("content", ["secret", "secret\n", "secret\r\n"])
def test_a_file_with_the_password(tmp_path: Path, content: str) -> None:
    path = tmp_path / "password"
    path.write_text(content)
    login = configured_login(client(zookeeper_user="svc", zookeeper_passwordFile=str(path)))
    assert login is not None
    assert login.password.get_secret_value() == "secret"


@pytest.mark.parametrize(
    ("content", "why"), [(b"", "is empty"), (b"\n", "is empty"), (b"x" * 1025, "longer than"), (b"\xff\xfe", "no text")]
)
def test_a_file_that_cannot_be_used(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "password"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=why):
        read_password(str(path))
    config = client(zookeeper_user="svc", zookeeper_passwordFile=str(path))
    assert [why in text for text in address_problems(config, "client.yml")] == [True]
    with pytest.raises(ConfigError, match="No such file"):
        read_password(str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"zookeeper_password": "secret"}, "needs zookeeper.user"),
        ({"zookeeper_passwordFile": "file"}, "needs zookeeper.user"),
        ({"zookeeper_user": "svc"}, "needs either"),
        ({"zookeeper_user": "svc", "zookeeper_password": "secret", "zookeeper_passwordFile": "file"}, "needs either"),
        ({"zookeeper_user": "svc", "zookeeper_password": ""}, "zookeeper.password is empty"),
        ({"zookeeper_user": "a:b", "zookeeper_password": "secret"}, "without colons"),
        ({"zookeeper_user": "svc", "zookeeper_password": 12345678}, "expected text; put it in quotes"),
    ],
)
def test_users_that_cannot_be(keys: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        client(**keys)
    assert "secret" not in str(refused.value)
    assert "12345678" not in str(refused.value)


def test_sources_of_the_password() -> None:
    given = from_environment(CliConfig, {"WALTZ_ZOOKEEPER_PASSWORD": "secret", "WALTZ_ZOOKEEPER_USER": "svc"}).given
    assert {key: each.value for key, each in given.items()} == {"zookeeper.password": "secret", "zookeeper.user": "svc"}
    with pytest.raises(ConfigError, match="would show its value to every user of this machine") as refused:
        from_settings(CliConfig, [setting("zookeeper.password=secret")])
    assert "secret" not in str(refused.value)


def test_tls(tmp_path: Path) -> None:
    trust = write_pem(tmp_path / "trust.pem", None, [Authority("authority").certificate])
    assert configured_tls(client()) is None
    context = configured_tls(client(zookeeper_ssl_enabled=True, client_ssl_trustStore_location=trust))
    assert context is not None
    assert context.check_hostname
    off = client(zookeeper_ssl_enabled=True, client_ssl_plaintext=True)
    with pytest.raises(ConfigError, match="turns off"):
        configured_tls(off)
    assert [text.startswith("client.yml: zookeeper.ssl.enabled needs") for text in address_problems(off, "client.yml")]
    with pytest.raises(ConfigError, match="cannot read trustStore"):
        configured_tls(client(zookeeper_ssl_enabled=True, client_ssl_trustStore_location=str(tmp_path / "none")))
