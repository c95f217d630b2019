"""The rooms of the code base, and which of them may know which.

A room is a folder below waltz/; a module that stands beside the folders is a room of its own. ``python -m
tests.architecture`` draws the picture in docs/architecture.md from what is listed here.
"""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "waltz"
PAGE = ROOT / "docs" / "architecture.md"

ARROWS: dict[str, tuple[str, ...]] = {
    "common": ("common.config",),
    "common.config": ("common",),
    "common.metrics": (),
    "common.wire": ("common",),
    "common.net": (
        "common",
        "common.config",
        "common.metrics",
        "common.wire",
    ),
    "common.zk": (
        "common",
        "common.config",
        "common.net",
    ),
    "common.acl": (
        "common",
        "common.cluster",
        "common.config",
        "common.metrics",
        "common.net",
        "common.zk",
    ),
    "common.cluster": (
        "common",
        "common.net",
        "common.wire",
        "common.zk",
    ),
    "archive": (
        "common",
        "storage.disk.segment",
    ),
    "archive.process": (
        "archive",
        "common",
        "common.acl",
        "common.cluster",
        "common.config",
        "common.metrics",
        "common.net",
        "common.wire",
        "common.zk",
        "operations",
        "storage.disk.segment",
        "storage.remote",
    ),
    "mirror": (
        "asynchronous",
        "client",
        "common",
        "common.cluster",
        "common.config",
        "common.metrics",
        "common.net",
        "common.wire",
        "common.zk",
        "operations",
        "table",
        "table.face",
    ),
    "storage": (
        "common",
        "common.acl",
        "common.config",
        "common.net",
        "common.wire",
        "common.zk",
        "storage.node",
    ),
    "storage.disk": (
        "common",
        "storage",
        "storage.disk.files",
        "storage.disk.journal",
        "storage.disk.log",
        "storage.disk.segment",
        "storage.disk.times",
    ),
    "storage.disk.files": ("storage",),
    "storage.disk.journal": (
        "common",
        "storage",
        "storage.disk",
        "storage.disk.files",
        "storage.disk.segment",
    ),
    "storage.disk.log": (
        "common",
        "storage",
        "storage.disk.files",
        "storage.disk.segment",
        "storage.disk.times",
    ),
    "storage.disk.segment": (
        "common",
        "storage",
        "storage.disk.files",
    ),
    "storage.disk.times": (
        "common",
        "storage.disk.files",
    ),
    "storage.node": (
        "common",
        "common.acl",
        "common.config",
        "common.metrics",
        "common.net",
        "common.wire",
        "common.zk",
        "storage",
        "storage.disk",
        "storage.disk.files",
        "storage.disk.journal",
        "storage.disk.log",
        "storage.disk.segment",
    ),
    "storage.remote": (
        "common",
        "common.net",
        "common.wire",
    ),
    "server": (),
    "server.feeding": (
        "common",
        "common.metrics",
        "common.net",
        "common.wire",
        "server.requests",
    ),
    "server.partition": (
        "common",
        "common.metrics",
        "common.wire",
        "server.feeding",
        "server.requests",
        "server.store",
        "server.store.replica",
    ),
    "server.process": (
        "common",
        "common.acl",
        "common.cluster",
        "common.config",
        "common.metrics",
        "common.net",
        "common.wire",
        "common.zk",
        "server.feeding",
        "server.partition",
        "server.requests",
        "server.store",
        "server.store.log",
        "server.store.replica",
    ),
    "server.requests": (
        "common",
        "common.net",
        "common.wire",
        "server.store",
    ),
    "server.store": (
        "common",
        "common.metrics",
        "common.net",
        "common.wire",
        "common.zk",
        "storage.remote",
    ),
    "server.store.log": (
        "common",
        "common.cluster",
        "common.net",
        "common.wire",
        "common.zk",
        "server.store",
        "server.store.replica",
        "server.store.session",
    ),
    "server.store.recovery": (
        "common",
        "common.cluster",
        "common.zk",
    ),
    "server.store.replica": (
        "common",
        "common.net",
        "common.zk",
        "server.store",
        "server.store.recovery",
        "storage.remote",
    ),
    "server.store.session": (
        "common",
        "common.cluster",
        "common.net",
        "common.wire",
        "common.zk",
        "server.store",
        "server.store.recovery",
        "server.store.replica",
        "storage.remote",
    ),
    "console": (
        "common",
        "common.metrics",
        "common.net",
        "operations.survey",
    ),
    "serving": (
        "common",
        "common.acl",
        "common.cluster",
        "common.config",
        "common.metrics",
        "common.net",
        "common.zk",
        "console",
        "operations",
        "operations.survey",
        "server.partition",
        "server.process",
    ),
    "operations": (
        "archive",
        "client.engine",
        "common",
        "common.cluster",
        "common.wire",
        "common.zk",
        "operations.survey",
        "storage.remote",
    ),
    "operations.survey": (
        "common",
        "common.cluster",
        "common.metrics",
        "common.wire",
        "common.zk",
        "operations",
        "storage.remote",
    ),
    "client": (
        "client.engine",
        "client.engine.links",
        "client.engine.partition",
        "client.mock",
        "common",
        "common.config",
        "common.metrics",
        "common.net",
        "common.zk",
    ),
    "client.engine": (
        "client",
        "client.engine.links",
        "client.engine.partition",
        "client.engine.reads",
        "common",
        "common.cluster",
        "common.config",
        "common.metrics",
        "common.net",
        "common.wire",
        "common.zk",
    ),
    "client.engine.links": (
        "client",
        "client.engine",
        "common",
        "common.net",
        "common.wire",
    ),
    "client.engine.partition": (
        "client",
        "client.engine",
        "client.engine.links",
        "client.engine.reads",
        "common",
        "common.net",
        "common.wire",
    ),
    "client.engine.reads": (
        "client",
        "client.engine",
        "client.engine.links",
        "common",
        "common.net",
        "common.wire",
    ),
    "client.plain": (
        "client",
        "client.databases",
        "client.engine",
        "client.engine.partition",
        "client.engine.reads",
        "client.positions",
        "common",
        "common.metrics",
        "common.net",
        "common.zk",
    ),
    "client.databases": (
        "client",
        "common",
        "common.net",
    ),
    "client.positions": (
        "client",
        "client.databases",
        "common",
    ),
    "client.mock": (
        "client",
        "client.engine",
        "common",
        "common.cluster",
        "common.config",
        "common.net",
        "common.wire",
        "common.zk",
    ),
    "table": (
        "common",
        "common.zk",
        "table.face",
        "table.served",
        "table.stores",
    ),
    "table.face": (
        "archive",
        "client",
        "client.databases",
        "client.plain",
        "client.positions",
        "common",
        "common.zk",
        "table",
        "table.snapshots",
        "table.stores",
    ),
    "table.snapshots": (
        "archive",
        "common",
        "table",
        "table.stores",
    ),
    "table.stores": (
        "common",
        "table",
    ),
    "table.served": (
        "client",
        "client.plain",
        "common",
        "common.metrics",
        "common.net",
        "common.zk",
        "table",
        "table.face",
    ),
    "view": (
        "asynchronous",
        "client",
        "client.plain",
        "common",
        "common.acl",
        "common.config",
        "common.metrics",
        "common.net",
        "common.zk",
        "table",
        "table.face",
        "table.served",
    ),
    "telemetry": (
        "common",
        "common.metrics",
    ),
    "asynchronous": (
        "client",
        "client.databases",
        "client.engine",
        "client.plain",
        "common",
        "common.net",
        "common.zk",
        "table",
        "table.face",
        "table.served",
    ),
    "blocking": (
        "asynchronous",
        "client",
        "client.databases",
        "client.engine",
        "client.plain",
        "client.positions",
        "common",
        "common.metrics",
        "table",
        "table.face",
        "table.served",
    ),
    "__init__": (
        "asynchronous",
        "blocking",
        "client",
        "client.databases",
        "client.engine",
        "client.plain",
        "client.positions",
        "common",
        "common.config",
        "common.zk",
        "table",
        "table.face",
        "telemetry",
    ),
    "spark": (
        "archive",
        "asynchronous",
        "client",
        "common",
        "common.cluster",
        "common.config",
        "common.net",
        "common.wire",
        "common.zk",
        "storage.disk.segment",
        "storage.remote",
    ),
    "spark.table": (
        "archive",
        "client",
        "common",
        "common.net",
        "common.zk",
        "spark",
        "table",
        "table.face",
        "table.snapshots",
    ),
    "local": (
        "common",
        "common.cluster",
        "common.config",
        "common.net",
        "common.zk",
        "operations",
    ),
    "demo": (
        "archive",
        "asynchronous",
        "client",
        "common",
        "common.config",
        "common.zk",
        "local",
    ),
    "bot": (
        "asynchronous",
        "client",
        "client.engine",
        "common",
        "common.config",
        "common.metrics",
        "common.net",
        "demo",
        "table",
        "table.face",
        "table.stores",
    ),
    "cli": (
        "archive",
        "archive.process",
        "asynchronous",
        "bot",
        "client",
        "client.engine",
        "client.plain",
        "common",
        "common.acl",
        "common.cluster",
        "common.config",
        "common.metrics",
        "common.net",
        "common.wire",
        "common.zk",
        "demo",
        "local",
        "mirror",
        "operations",
        "operations.survey",
        "spark",
        "storage",
        "storage.disk",
        "storage.disk.files",
        "storage.disk.segment",
        "storage.remote",
        "table",
        "table.face",
        "table.snapshots",
    ),
}
"""What the modules of each room import: an arrow that is not listed is forbidden, and so is one that nobody uses.

Some walls are meant to stay: ``common.wire`` knows no network and no ZooKeeper, ``storage.disk`` nothing of what serves
it, ``storage.remote`` nothing of a node, ``client`` nothing of tables, ``table`` and its stores nothing of clients
(``table`` only names what ``table.face`` offers), ``operations`` nothing of the command line; servers and local
clusters meet a storage through ``storage.remote`` only.
"""

PROCESSES = {"local": ("cli", "serving", "storage"), "demo": ("archive",)}
"""Packages that each package starts as processes."""


def module_name(path: Path) -> str:
    """Under which name a file is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def modules() -> dict[str, Path]:
    """All modules below waltz/ by name."""
    return {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def room_of(path: Path) -> str:
    """The room in which a file stands."""
    *folders, name = path.relative_to(PACKAGE).parts
    return ".".join(folders) or name.removesuffix(".py")


@functools.cache
def imports_of(path: Path) -> frozenset[str]:
    """The modules that a file imports anywhere, also for types only, under their full names."""
    return frozenset(_imports(ast.parse(path.read_text()), path))


def _imports(tree: ast.Module, path: Path) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            for alias in node.names:
                submodule = f"{module}.{alias.name}"
                yield submodule if submodule in modules() else module


def real_arrows() -> dict[str, dict[str, str]]:
    """Room by room, which rooms it imports, and one example of who imports what."""
    found: dict[str, dict[str, str]] = {room_of(path): {} for path in modules().values()}
    for path in modules().values():
        for name in imports_of(path) & modules().keys():
            target = room_of(modules()[name])
            if target != room_of(path):
                found[room_of(path)][target] = f"{path.relative_to(ROOT)} imports {name}"
    return found


def circles() -> list[set[str]]:
    """Modules that import each other, directly or by way of others."""
    graph = {name: imports_of(path) & modules().keys() - {name} for name, path in modules().items()}
    reached = {name: _reachable(graph, name) for name in graph}
    found: list[set[str]] = []
    for name in graph:
        circle = {other for other in reached[name] if name in reached[other]}
        if circle and circle not in found:
            found.append(circle)
    return found


def _reachable(graph: dict[str, frozenset[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for name in graph[waiting.pop()] - found:
            found.add(name)
            waiting.append(name)
    return found


def picture() -> str:
    """The packages as a diagram."""
    arrows: dict[str, set[str]] = {}
    for room, targets in ARROWS.items():
        package = room.split(".")[0]
        arrows.setdefault(package, set()).update({target.split(".")[0] for target in targets} - {package})
    lines = [
        *('__init__["waltz"]', 'asynchronous["waltz.asynchronous"]', 'blocking["waltz.blocking"]'),
        *(f"{package} --> {' & '.join(sorted(targets))}" for package, targets in arrows.items() if targets),
        *(f"{package} -. starts .-> {' & '.join(started)}" for package, started in PROCESSES.items()),
    ]
    return "".join(f"    {line}\n" for line in lines)


def name_of(room: str) -> str:
    """What the page calls a room."""
    return "`waltz`" if room == "__init__" else f"`waltz.{room}`"


def drawn(page: str) -> str:
    """The architecture's page with the picture."""
    return re.sub(r"(```mermaid\nflowchart BT\n).*?(?=```)", lambda match: match[1] + picture(), page, flags=re.DOTALL)


def missing(page: str) -> set[str]:
    """Rooms that the table of the page does not list."""
    return {name_of(room) for room in ARROWS if f"| {name_of(room)} |" not in page}


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text()))
