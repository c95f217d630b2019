"""The structure of the code base: which package may know which, and rules that no linter checks."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "waltz"

ALLOWED = {
    "common": set(),
    "storage": {"common"},
    "server": {"common", "storage"},
    "client": {"common"},
    "spark": {"common", "storage", "client"},
    "local": {"common", "storage", "server", "client"},
    "demo": {"common", "client", "spark", "local"},
    "cli": {"common", "storage", "server", "client", "spark", "local", "demo"},
}
"""Arrows of the architecture: the packages below waltz/ that each of them may import."""

ALLOWED_TO_MODULES = {"__init__.py": {"blocking", "common", "client"}, "blocking.py": {"common", "client"}}
"""The same for the modules that stand beside the packages; no package imports them."""

MODULES = sorted(PACKAGE.rglob("*.py"))


def imported_modules(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module or "")
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def test_every_package_has_its_arrows_listed() -> None:
    packages = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert packages == set(ALLOWED)
    assert {path.name for path in PACKAGE.glob("*.py")} == set(ALLOWED_TO_MODULES)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_follow_the_arrows(path: Path) -> None:
    package = path.relative_to(PACKAGE).parts[0]
    allowed = ALLOWED[package] | {package} if package in ALLOWED else ALLOWED_TO_MODULES[package]
    for module in imported_modules(path):
        assert module.split(".")[0] != "tests", f"{path} imports {module}"
        parts = module.split(".")
        if parts[0] == "waltz" and len(parts) > 1 and ((PACKAGE / parts[1]).is_dir() or parts[1] == "blocking"):
            assert parts[1] in allowed, f"{package} must not import waltz.{parts[1]}"


def test_wire_and_decisions_know_no_asyncio() -> None:
    pure = [
        *PACKAGE.glob("common/wire/*.py"),
        PACKAGE / "common/cluster/policy.py",
        PACKAGE / "server/locks.py",
        PACKAGE / "server/store/recovery.py",
        PACKAGE / "server/store/voting.py",
        PACKAGE / "server/store/router.py",
    ]
    for path in pure:
        forbidden = {"asyncio", "socket", "time", "threading", "kazoo"} & {
            name.split(".")[0] for name in imported_modules(path)
        }
        assert not forbidden, f"{path.relative_to(ROOT)} is pure but imports {forbidden}"
