"""The structure of the code base: which room may know which, and rules that no linter checks."""

import ast
import re
from pathlib import Path

from tests import architecture, mirror
from tests.architecture import ARROWS, PACKAGE, PAGE, PROCESSES, ROOT, imports_of, room_of

MODULES = sorted(PACKAGE.rglob("*.py"))

IMPURE = {"asyncio", "kazoo", "random", "select", "selectors", "socket", "ssl", "subprocess", "threading", "time"}
"""What a module that decides must not know: clocks, sockets, threads, chance."""

SAYS_NOTHING = re.compile(r"(Part of|See) \S+( module)?\.?")

FACES = {"__init__.py", "blocking/__init__.py", "client/mock/__init__.py", "common/checksum.py", "table/__init__.py"}
"""Modules that offer names which others define. All other names are imported from the module that defines them."""


def documentation(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text())) or ""


def test_every_room_is_listed() -> None:
    rooms = {room_of(path) for path in MODULES}
    assert rooms == set(ARROWS)
    named = re.findall(r"^\| (`waltz\S*) \|", PAGE.read_text(), flags=re.MULTILINE)
    assert sorted(named) == sorted(map(architecture.name_of, ARROWS))


def test_reading_orders_are_complete() -> None:
    """The docstring of a package names every module and folder in it, as ``name`` or :mod:`name`."""
    for path in PACKAGE.rglob("__init__.py"):
        folder = path.parent
        names = {each.stem for each in folder.glob("*.py") if not each.stem.startswith("__")}
        names |= {each.parent.name for each in folder.glob("*/__init__.py")}
        words = re.findall(r"``([\w.]+)``|:\w+:`~?([\w.]+)`", documentation(path))
        mentioned = {part for pair in words for part in "".join(pair).split(".")}
        assert folder == PACKAGE or names <= mentioned, f"{folder.relative_to(ROOT)}: {sorted(names - mentioned)}"


def test_arrows_are_exactly_those_listed() -> None:
    real = architecture.real_arrows()
    for room, targets in real.items():
        forbidden = {target: example for target, example in targets.items() if target not in ARROWS[room]}
        assert not forbidden, f"{room} must not import {forbidden}"
        assert set(ARROWS[room]) == set(targets), f"nobody in {room} imports {set(ARROWS[room]) - set(targets)}"


def test_operations_know_no_command_line() -> None:
    for path in PACKAGE.glob("operations/**/*.py"):
        commands = {name for name in imports_of(path) if name == "argparse" or f"{name}.".startswith("waltz.cli.")}
        assert not commands, f"{path.relative_to(ROOT)} imports {commands}"


def test_no_class_of_the_command_line_holds_parsed_options() -> None:
    """A class with ``argparse.Namespace`` cannot be used by a program: its work belongs into ``operations``."""
    for path in PACKAGE.glob("cli/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                assert "Namespace" not in ast.unparse(node), f"{path.relative_to(ROOT)}: {node.name}"


def test_no_modules_import_each_other() -> None:
    assert architecture.circles() == []


def test_nothing_imports_the_tests() -> None:
    for path in MODULES:
        assert not {name for name in imports_of(path) if name.split(".")[0] in ("tests", "benchmarks")}, path


def test_names_are_imported_from_where_they_are_defined() -> None:
    """Mypy refuses names that their module has only imported, unless it offers them in one of these two ways."""
    offering = re.compile(r"^__all__\b|^\s*(?:from .* )?(?:import )?(\w+) as \1\b", re.MULTILINE)
    faces = {str(path.relative_to(PACKAGE)) for path in MODULES if offering.search(path.read_text())}
    assert faces == FACES


def test_packages_that_are_started_are_listed() -> None:
    started: dict[str, set[str]] = {}
    for path in MODULES:
        package = room_of(path).split(".")[0]
        for _, module in re.findall(r"""(["'])-m\1, ["']waltz\.(\w+)""", path.read_text()):
            if module != package:
                started.setdefault(package, set()).add(module)
    assert started == {package: set(names) for package, names in PROCESSES.items()}


def test_the_page_shows_this_architecture() -> None:
    """Renewed by ``python -m tests.architecture``."""
    page = PAGE.read_text()
    assert page == architecture.drawn(page)
    assert not architecture.missing(page)


def test_what_calls_itself_pure_is() -> None:
    pure = [path for path in MODULES if re.search(r"\bpure\b", documentation(path), re.IGNORECASE)]
    assert len(pure) > 20
    for path in {*pure, *PACKAGE.glob("common/wire/*.py")}:
        impure = IMPURE & {name.split(".")[0] for name in imports_of(path)}
        assert not impure, f"{path.relative_to(ROOT)} is pure but imports {impure}"


def test_docstrings_say_something() -> None:
    """What fills a Protocol or overrides a base class needs no docstring, least of all one that names only that."""
    empty = [
        f"{path.relative_to(ROOT)}:{node.body[0].lineno}: {text}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module)
        and SAYS_NOTHING.fullmatch(text := ast.get_docstring(node) or "-")
    ]
    assert not empty, "\n".join(empty)


def test_each_module_has_its_own_test_file_or_a_reason() -> None:
    without = {str(path.relative_to(PACKAGE)) for path in mirror.modules() if not mirror.own_test(path).exists()}
    listed = set(mirror.WITHOUT_OWN_TEST)
    assert without <= listed, f"no test file of their own: {sorted(without - listed)}"
    assert listed <= without, f"they have a test file now, or are gone: {sorted(listed - without)}"


def test_reasons_name_files_that_are_there() -> None:
    for module, reason in mirror.WITHOUT_OWN_TEST.items():
        places = re.findall(r"\S+/test_\w+\.py", reason)
        assert places or reason == mirror.DECLARATIONS or "on import" in reason, module
        for place in places:
            assert (ROOT / "tests" / place).exists(), f"{module}: {place}"
