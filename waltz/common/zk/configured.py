"""How a process goes to ZooKeeper, by its configuration: its user there, and TLS."""

import ssl
from pathlib import Path
from typing import TypeAlias

from pydantic import SecretStr

from waltz.common.brief import shown_key
from waltz.common.config.schemas import (
    ArchiveConfig,
    CliConfig,
    ClientConfig,
    ClusterConfig,
    ServerConfig,
    StorageConfig,
    ViewConfig,
)
from waltz.common.errors import ConfigError
from waltz.common.net.tls import client_context
from waltz.common.zk.protected import Login

ProcessConfig: TypeAlias = ServerConfig | StorageConfig | ArchiveConfig | ViewConfig | ClientConfig | CliConfig

TLS_IS_OFF = "zookeeper.ssl.enabled needs TLS, which ssl.plaintext turns off for this process"

_MAX_PASSWORD_BYTES = 1024


def configured_login(config: ClusterConfig) -> Login | None:
    """The user of a configuration; reads the file of the password. Raises ``ConfigError``."""
    if config.zookeeper_user is None:
        return None
    password = config.zookeeper_password
    if password is None:
        assert config.zookeeper_password_file is not None, "the model checks it"
        password = read_password(config.zookeeper_password_file)
    return Login(config.zookeeper_user, password, config.cluster_root)


def read_password(path: str) -> SecretStr:
    """The password in a file; the end of its line does not count. Raises ``ConfigError``, never with the content."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MAX_PASSWORD_BYTES + 1)
        text = content.decode().rstrip("\r\n")
    except OSError as error:
        raise ConfigError(f"cannot read zookeeper.passwordFile {shown_key(path)}: {error.strerror}") from None
    except ValueError:
        raise ConfigError(f"zookeeper.passwordFile {shown_key(path)} is no text in UTF-8") from None
    if not text or len(content) > _MAX_PASSWORD_BYTES:
        raise ConfigError(
            f"zookeeper.passwordFile {shown_key(path)} is empty, or longer than {_MAX_PASSWORD_BYTES} bytes"
        )
    return SecretStr(text)


def configured_tls(config: ProcessConfig) -> ssl.SSLContext | None:
    """The context for connections to ZooKeeper; ``None`` for plaintext. Raises ``ConfigError``."""
    if not config.zookeeper_ssl_enabled:
        return None
    context = client_context(config.tls)
    if context is None:
        raise ConfigError(TLS_IS_OFF)
    return context
