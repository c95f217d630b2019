"""The files that a configuration names: whether they can be used, as far as that can be told without a network."""

import os
import stat
from pathlib import Path

from pydantic import BaseModel

from waltz.common.brief import shown_key
from waltz.common.config import ServerConfig, StorageConfig, TlsConfig
from waltz.common.errors import ConfigError
from waltz.common.net.tls import client_context, server_context


def file_problems(config: BaseModel, source: str) -> list[str]:
    """One text for each file or directory that cannot be used; ``source`` is how they call the configuration.

    Everything is looked at as the present user; nothing is changed, and nothing is connected to.
    """
    found = []
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if isinstance(value, TlsConfig):
            found += [f"{source}: {field.validation_alias}: {text}" for text in _tls_problems(config, value)]
    if isinstance(config, StorageConfig):
        found += [f"{source}: {text}" for text in _directory_problems(config.storage_directory)]
    return found


def _tls_problems(config: BaseModel, tls: TlsConfig) -> list[str]:
    """What the process would be told at its start. Servers have both ends of connections."""
    ends = [server_context] if isinstance(config, StorageConfig) else [client_context]
    if isinstance(config, ServerConfig):
        ends.append(server_context)
    found = []
    for make_context in ends:
        try:
            make_context(tls)
        except ConfigError as error:
            found.append(str(error))
    return list(dict.fromkeys(found))


def _directory_problems(directory: str) -> list[str]:
    key = f"storage.directory {shown_key(directory)}"
    path = Path(directory)
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return [f"{key} does not exist; make it, owned by the user that runs the node"]
    except (OSError, ValueError) as error:
        return [f"{key} cannot be looked at: {getattr(error, 'strerror', error)}"]
    if not stat.S_ISDIR(mode):
        return [f"{key} is not a directory"]
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        return [f"{key} cannot be read and written by this user"]
    return []
