"""Checks of the files that a configuration names, without a network."""

import os
import stat
from pathlib import Path

from pydantic import BaseModel

from waltz.common.brief import shown_key
from waltz.common.config.schemas import StorageConfig, TlsConfig
from waltz.common.errors import ConfigError
from waltz.common.net.tls import client_context, server_context
from waltz.common.net.token_sender import token_text


def file_problems(config: BaseModel, source: str) -> list[str]:
    """Check files and directories as the present user; changes nothing and makes no connection.

    Args:
        config: The configuration.
        source: Name of the configuration in the texts.

    Returns:
        One text for each unusable file or directory.
    """
    found = []
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if isinstance(value, TlsConfig) and (text := _tls_problem(config, value)) is not None:
            found.append(f"{source}: {field.validation_alias}: {text}")
    if isinstance(config, StorageConfig):
        for key, directories in (
            ("storage.directory", [config.storage_directory]),
            ("storage.directories", config.further_directories),
        ):
            found += [f"{source}: {text}" for each in directories for text in _directory_problems(key, each)]
    return found


def _tls_problem(config: BaseModel, tls: TlsConfig) -> str | None:
    """The error of the process, if any. Servers also connect, and a context for connections reads all files."""
    has_stores = tls.key_store_location is not None or tls.trust_store_location is not None
    try:
        if not isinstance(config, StorageConfig):
            client_context(tls)
            if tls.token_location is not None:
                token_text(tls.token_location)
        elif has_stores:  # without stores the process makes a certificate, and that takes a while
            server_context(tls)
    except ConfigError as error:
        return str(error)
    return None


def _directory_problems(named: str, directory: str) -> list[str]:
    key = f"{named} {shown_key(directory)}"
    path = Path(directory)
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return [f"{key} does not exist; make the directory, owned by the user that runs the node"]
    except (OSError, ValueError) as error:
        return [f"{key} cannot be read: {getattr(error, 'strerror', error)}"]
    if not stat.S_ISDIR(mode):
        return [f"{key} is not a directory"]
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        return [f"{key}: Permission denied; this user has to read and write it"]
    return []
