"""Stores by name: those of this package, also by Amza's names, and those of other packages."""

import importlib
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import TypeAlias

from waltz.common.version import with_extra
from waltz.table.errors import StoreUnavailableError
from waltz.table.stores.directory import DirectoryStore, StoreIdentity
from waltz.table.stores.engine import Engine
from waltz.table.stores.interface import Store
from waltz.table.stores.noop import NoopStore
from waltz.table.stores.ordered import OrderedStore

ENTRY_POINTS = "waltz.table.stores"
"""The group in which another package offers a store: a callable like :data:`OpenStore`, under the store's name."""

OpenStore: TypeAlias = Callable[[Path | None, StoreIdentity], Store]
"""Opens the store of an identity in a directory (``None`` if none was given)."""

ALIASES = {
    "lab": "rocksdb",
    "berkeleydb": "lmdb",
    "memory_persistent": "memory",
    "memory_ephemeral": "memory",
    "noop_persistent": "noop",
}
"""Amza's names."""

_ENGINES = {"memory": "MemoryEngine", "sqlite": "SqliteEngine", "rocksdb": "RocksDbEngine", "lmdb": "LmdbEngine"}
"""The engines by the names of their modules, which need optional libraries."""


def canonical(name: str) -> str:
    """The store's name for an alias; any other name unchanged."""
    return ALIASES.get(name, name)


def open_store(name: str, directory: Path | None, identity: StoreIdentity) -> Store:
    """Open the store of that name or alias.

    Raises :class:`StoreUnavailableError` for an unknown name, a library that is not installed, and a missing
    directory; :class:`~waltz.table.errors.StoreLockedError`; and ``OSError`` when the directory cannot be used.
    """
    name = canonical(name)
    if name == "noop":
        return NoopStore()
    if name not in _ENGINES:
        return _foreign(name)(directory, identity)
    engine = _engine(name)
    if name == "memory":
        return OrderedStore(engine())
    if directory is None:
        raise StoreUnavailableError(f"the store {name} needs a directory")
    return DirectoryStore(directory, identity, name, engine)


def _engine(name: str) -> Callable[..., Engine]:
    try:
        module = importlib.import_module(f"waltz.table.stores.{name}")
    except ModuleNotFoundError as error:
        raise StoreUnavailableError(
            f"the store {name} needs {error.name}: {with_extra('table')}, or use the store memory or sqlite"
        ) from None
    engine: Callable[..., Engine] = getattr(module, _ENGINES[name])
    return engine


def _foreign(name: str) -> OpenStore:
    for entry_point in entry_points(group=ENTRY_POINTS, name=name):
        opened: OpenStore = entry_point.load()
        return opened
    known = ", ".join((*_ENGINES, "noop", *ALIASES))
    raise StoreUnavailableError(f"no store is called {name!r}; there are {known}, and those of other packages")
