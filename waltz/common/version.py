"""The version of this installation."""

import functools
import importlib.metadata

DISTRIBUTION = "waltz-log"
"""What the package is called where packages are installed from; its modules are ``waltz``."""


@functools.cache
def installed_version() -> str | None:
    """The version, ``None`` where the modules are used without being installed."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return None


def with_extra(extra: str) -> str:
    """What to do about a package that is missing because it belongs to an extra, for an error text."""
    return f"install {DISTRIBUTION} with its extra '{extra}': pip install '.[{extra}]' in a clone"
