"""The version of this installation."""

import functools
import importlib.metadata

DISTRIBUTION = "waltz-log"
"""Name of the package in package indexes; its modules are ``waltz``."""


@functools.cache
def installed_version() -> str | None:
    """The version, ``None`` if the modules are used without an installation."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return None


def with_extra(extra: str) -> str:
    """The remedy for a missing package of an extra, for an error text."""
    return f"install {DISTRIBUTION} with its extra '{extra}': pip install '.[{extra}]' in a clone"
