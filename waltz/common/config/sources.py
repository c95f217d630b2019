"""Sources of configuration values besides the file: environment variables and the command line.

Order of precedence: ``--set KEY=VALUE``, the environment, the file. The variable of a key is ``WALTZ_`` and
the key in capitals, an underscore for each dot and before each word: ``WALTZ_SERVER_SSL_TRUST_STORE_LOCATION`` for
``server.ssl.trustStore.location``.
"""

import difflib
import os
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from pydantic import BaseModel

from waltz.common.brief import shown_key
from waltz.common.config.reader import Given, ModelT, Reading, Unknown, keys, secret_keys
from waltz.common.config.schemas import MODELS, examine_file, examine_mapping
from waltz.common.errors import ConfigError

_PREFIX = "WALTZ_"
_NEAR = 0.9
_NEAR_KEY = 0.6
_SERVICE_LINK = re.compile(r"(tcp|udp|sctp)://")
"""Matches the values that Kubernetes puts into ``WALTZ_SERVER_PORT`` of every container if there is a service
``waltz-server``, and into ``WALTZ_SERVER_0_PORT`` for ``waltz-server-0``."""


class Setting(NamedTuple):
    """``KEY=VALUE`` of the command line."""

    key: str
    value: str


class FromEnvironment(NamedTuple):
    """The settings of environment variables."""

    given: dict[str, Given]
    unknown: list[Unknown]
    """Variables that look like settings, but are not."""


def variable_of(key: str) -> str:
    """The environment variable of a key of the configuration."""
    return _PREFIX + re.sub(r"(?<=[a-z0-9])(?=[A-Z])|\.", "_", key).upper()


def variables_of(model: type[BaseModel]) -> dict[str, str]:
    """The keys of a model by their environment variables."""
    return {variable_of(key): key for key in sorted(keys(model))}


ALL_VARIABLES = frozenset(name for model in MODELS for name in variables_of(model))
"""The variables of all kinds of processes; each process ignores those of the others."""


def from_environment(model: type[BaseModel], variables: Mapping[str, str]) -> FromEnvironment:
    """The keys of the model that are set by non-empty variables."""
    own = variables_of(model)
    given: dict[str, Given] = {}
    unknown = []
    for name, value in variables.items():
        key = own.get(name)
        if key is None:
            near = _near(name, value, own)
            if near is not None:
                unknown.append(Unknown(f"unknown environment variable {name}", f"; did you mean {near}?"))
        elif key.endswith("port") and _SERVICE_LINK.match(value):
            what = f"environment variable {name}, set by Kubernetes for a service of that name,"
            unknown.append(Unknown(what, "; set enableServiceLinks: false in the pod"))
        elif value:
            given[key] = Given(value, f"environment variable {name}")
    return FromEnvironment(given, unknown)


def _near(name: str, value: str, own: Iterable[str]) -> str | None:
    """The variable that was probably meant by an unknown one."""
    if not name.startswith(_PREFIX) or name in ALL_VARIABLES or _SERVICE_LINK.match(value):
        return None
    return next(iter(difflib.get_close_matches(name, own, n=1, cutoff=_NEAR)), None)


def from_settings(model: type[BaseModel], settings: Sequence[Setting]) -> dict[str, Given]:
    """The settings of the command line; the last one of a key counts.

    Raises ``ConfigError`` for unknown keys, and for passwords and tokens.
    """
    known, secret = keys(model), secret_keys(model)
    for key, _ in settings:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=_NEAR_KEY)
            hint = f"did you mean '{near[0]}'?" if near else "docs/configuration.md lists all keys"
            raise ConfigError(f"--set: unknown key '{shown_key(key)}'; {hint}")
        if key in secret:
            raise ConfigError(
                f"--set {key} would show its value to every user of this machine; use {_file_for(key, known)}, or the "
                f"environment variable {variable_of(key)}"
            )
    return {key: Given(value, f"--set {key}") for key, value in settings}


def _file_for(key: str, known: Container[str]) -> str:
    """What takes a password or token from a file: a key for a file with nothing else, or the configuration."""
    keys_of_files = f"{key}File", re.sub(r"\.value$", ".location", key)
    return next((each for each in keys_of_files if each != key and each in known), "a configuration file")


def examine_sources(
    path: str | os.PathLike[str] | None,
    model: type[ModelT],
    settings: Sequence[Setting],
    variables: Mapping[str, str],
) -> Reading[ModelT]:
    """Read the configuration from file, environment and command line together.

    Args:
        path: The configuration file, if any.
        model: The model of the configuration.
        settings: ``KEY=VALUE`` of the command line.
        variables: The environment.

    Raises:
        ConfigError: The file cannot be read or is not a configuration, or a setting is unknown.
    """
    environment = from_environment(model, variables)
    overrides = environment.given | from_settings(model, settings)
    if path is None:
        return examine_mapping(
            {}, model, source="environment", overrides=overrides, unknown=environment.unknown, hint=hint
        )
    return examine_file(path, model, overrides=overrides, unknown=environment.unknown, hint=hint)


def hint(key: str) -> str:
    """The remedy for a missing key."""
    return f"add it to a configuration file, or set {variable_of(key)}"
