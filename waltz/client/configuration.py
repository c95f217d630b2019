"""The sources of a client's configuration: arguments, the environment, a file.

In the order of precedence:

1. keyword arguments: the attribute names of :class:`~waltz.common.config.schemas.ClientConfig`, and ``tls``;
2. environment variables, one for each key: ``WALTZ_`` and the key in capitals, an underscore for each dot and before
   each word, so ``WALTZ_CLIENT_SSL_TRUST_STORE_LOCATION`` for ``client.ssl.trustStore.location``;
3. the configuration file that is given, or that ``WALTZ_CONFIG`` names.

A configuration given as a mapping or an object is complete: the environment is ignored.
"""

import difflib
import logging
import os
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias, TypedDict

from pydantic import SecretStr

from waltz.common.config.reader import Given, flat, ignored
from waltz.common.config.schemas import TOKENS_NEED_TRUST, ClientConfig, TlsConfig, from_mapping, load
from waltz.common.config.sources import from_environment, variable_of, variables_of
from waltz.common.errors import ConfigError
from waltz.common.net.token_sender import TokenSource, file_source

logger = logging.getLogger(__name__)

FILE_VARIABLE = "WALTZ_CONFIG"
"""Environment variable with the configuration file, if no file is given."""


class ClientSettings(TypedDict, total=False):
    """The keyword arguments, each for the key of the configuration file with its name."""

    zookeeper_connect_string: str
    cluster_root: str
    zookeeper_session_timeout_ms: int
    zookeeper_connect_timeout_ms: int
    zookeeper_user: str | None
    zookeeper_password: SecretStr | None
    zookeeper_password_file: str | None
    zookeeper_ssl_enabled: bool
    auto_mount: bool
    num_transaction_retry_threads: int
    num_consumer_threads: int
    long_wait_threshold_ms: int
    max_concurrent_transactions: int
    max_transaction_size_bytes: int
    max_locks_per_transaction: int
    enable_session_write: bool
    enable_exclusive_session: bool
    session_fallback: Literal["error", "plain"]
    session_timeout_ms: int
    tls: TlsConfig


Token: TypeAlias = str | os.PathLike[str] | Callable[[], str]
"""A token, the path of a file with one, or a function that gives one and may block. Files and functions are asked for
each connection, and again in time before the token expires."""


def token_source(token: Token | None, tls: TlsConfig) -> TokenSource | None:
    """What presents an application's token; ``None``: that of the configuration, if it has one.

    Raises ``ConfigError`` when it would be sent without TLS or to anybody, and ``TypeError`` for other types.
    """
    if token is None:
        return None
    if tls.plaintext or tls.trust_store_location is None:
        raise ConfigError(TOKENS_NEED_TRUST)
    if isinstance(token, str):
        return TokenSource(lambda: token, "argument token")
    if isinstance(token, os.PathLike):
        return file_source(token)
    if not callable(token):
        raise TypeError(
            f"token must be a token, the path of a file with one, or a function, not {type(token).__name__}"
        )
    return TokenSource(token, "argument token")


VARIABLES = variables_of(ClientConfig)
"""The keys of a client's configuration by their environment variables."""


def client_config(
    config: ClientConfig | Mapping[str, object] | str | os.PathLike[str] | None,
    settings: Mapping[str, object],
    variables: Mapping[str, str],
) -> ClientConfig:
    """The configuration of an application; ``variables`` are those of the environment.

    Raises ``ConfigError``, and ``TypeError`` for other types of configurations and for unknown keyword arguments.
    """
    arguments = _arguments(settings)
    if isinstance(config, ClientConfig):
        return from_mapping(flat(config), ClientConfig, overrides=arguments) if arguments else config
    if isinstance(config, Mapping):
        return from_mapping(config, ClientConfig, overrides=arguments)
    if config is not None and not isinstance(config, str | os.PathLike):
        raise TypeError(
            "config must be the path of a configuration file, its content as a mapping, a ClientConfig or a mock "
            f"driver, not {config!r}"
        )
    overrides = {**_from_environment(variables), **arguments}
    path = config if config is not None else variables.get(FILE_VARIABLE)
    if path:
        return load(path, ClientConfig, overrides=overrides, hint=_hint)
    return from_mapping({}, ClientConfig, source="arguments and environment", overrides=overrides, hint=_hint)


def _arguments(settings: Mapping[str, object]) -> dict[str, Given]:
    """Keyword arguments by their keys in a configuration file."""
    given = {}
    for name, value in settings.items():
        field = ClientConfig.model_fields.get(name)
        if field is None:
            near = difflib.get_close_matches(name, ClientConfig.model_fields, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"unexpected keyword argument {name!r}{hint}")
        source = f"argument {name}"
        if isinstance(value, TlsConfig):
            group = field.validation_alias
            given.update({f"{group}.{key}": Given(inner, source) for key, inner in flat(value).items()})
        else:
            given[str(field.validation_alias)] = Given(value, source)
    return given


def _from_environment(variables: Mapping[str, str]) -> dict[str, Given]:
    """The variables that are set and not empty. A variable that looks like a misspelt one causes a warning."""
    given, unknown = from_environment(ClientConfig, variables)
    for text in ignored(unknown):
        logger.warning("%s", text)
    return given


def _hint(key: str) -> str:
    return f"set {variable_of(key)}, or give a configuration file that has it"
