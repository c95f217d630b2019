"""Stores by name, Amza's names, other packages, and libraries that are missing."""

import re
import subprocess
import sys
from importlib.metadata import EntryPoint, requires
from pathlib import Path

import pytest

from tests.unit.table.stores.cases import IDENTITY
from waltz.table.errors import StoreUnavailableError
from waltz.table.stores import registry
from waltz.table.stores.directory import DirectoryStore, StoreIdentity
from waltz.table.stores.interface import Store
from waltz.table.stores.noop import NoopStore
from waltz.table.stores.ordered import OrderedStore
from waltz.table.stores.registry import canonical, open_store


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("lab", DirectoryStore),
        ("rocksdb", DirectoryStore),
        ("berkeleydb", DirectoryStore),
        ("lmdb", DirectoryStore),
        ("sqlite", DirectoryStore),
        ("memory", OrderedStore),
        ("memory_persistent", OrderedStore),
        ("memory_ephemeral", OrderedStore),
        ("noop", NoopStore),
        ("noop_persistent", NoopStore),
    ],
)
def test_every_name_opens_its_store(name: str, kind: type[Store], tmp_path: Path) -> None:
    store = open_store(name, tmp_path, IDENTITY)
    assert type(store) is kind
    store.close()


def test_amza_names_stand_for_ours() -> None:
    assert [canonical(name) for name in ("lab", "berkeleydb", "sqlite", "own")] == ["rocksdb", "lmdb", "sqlite", "own"]


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="no store is called 'mysql'; there are memory, sqlite"):
        open_store("mysql", tmp_path, IDENTITY)
    with pytest.raises(StoreUnavailableError, match="sqlite needs a directory"):
        open_store("sqlite", None, IDENTITY)


@pytest.mark.parametrize(
    ("name", "module", "missing"),
    [("rocksdb", "rocksdb", "rocksdict"), ("lmdb", "lmdb", "lmdb")],
)
def test_a_missing_library_is_named(
    name: str, module: str, missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, f"waltz.table.stores.{module}", raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(StoreUnavailableError, match=rf"needs {missing}: install .*pip install '\.\[table\]'"):
        open_store(name, tmp_path, IDENTITY)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["memory", "sqlite", "noop"])
def test_some_stores_need_nothing_but_the_package(name: str, tmp_path: Path) -> None:
    """The default one among them."""
    required = {re.split(r"[^\w-]", each)[0] for each in requires("waltz-log") or () if "extra ==" not in each}
    code = f"""
import sys
from pathlib import Path
from waltz.table.face.partition import DEFAULT_STORE
from waltz.table.stores.directory import StoreIdentity
from waltz.table.stores.registry import open_store
assert DEFAULT_STORE in ("memory", "sqlite", "noop")
before = set(sys.modules)
open_store({name!r}, Path({str(tmp_path)!r}), StoreIdentity(0, "")).close()
print(*{{module.split(".")[0] for module in set(sys.modules) - before}} - sys.stdlib_module_names)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(run.stdout.split()) <= {"waltz", *required}


class Foreign(NoopStore):
    """Stands for another package's store."""

    def __init__(self, directory: Path | None, identity: StoreIdentity) -> None:
        super().__init__()
        self.arguments = directory, identity


def test_other_packages_offer_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def entry_points(*, group: str, name: str) -> list[EntryPoint]:
        offered = EntryPoint("foreign", f"{__name__}:Foreign", registry.ENTRY_POINTS)
        return [offered] if (group, name) == (registry.ENTRY_POINTS, "foreign") else []

    monkeypatch.setattr(registry, "entry_points", entry_points)
    store = open_store("foreign", tmp_path, IDENTITY)
    assert isinstance(store, Foreign)
    assert store.arguments == (tmp_path, IDENTITY)
