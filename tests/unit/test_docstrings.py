"""Every public name says what it is, what its parameters mean, and what it raises."""

import ast
import builtins
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

import waltz
import waltz.blocking
import waltz.common.zk.client
import waltz.table
from tests.unit.reference_examples import prose
from waltz.telemetry import opentelemetry, prometheus

PARAMETERS = Path(__file__).parents[2] / "docs" / "reference" / "parameters.md"

NOT_FOR_APPLICATIONS = {
    "waltz.RpcClient": {
        *("create_partitions", "set_endpoints", "remove_server"),
        *("link_ready", "link_lost", "link_received", "link_refused", "link_writable"),
    },
    "waltz.DbApiDatabase": {"connect", "guarded", "create_table", "insert_mark", "read_mark", "advance_mark"},
    "waltz.SqlAlchemyDatabase": {"connect", "guarded", "create_table", "insert_mark", "read_mark", "advance_mark"},
    "waltz.Client": {"transacting"},
    "waltz.table.Table": {"transacting"},
}
"""What other parts of the library call."""


def common_parameters() -> set[str]:
    """Parameters with one meaning everywhere, which are explained once."""
    rows = re.findall(r"^\| (`.*?) \| (.*) \|$", PARAMETERS.read_text(), flags=re.MULTILINE)
    assert all(len(meaning.split()) > 2 for _, meaning in rows)
    return {name for names, _ in rows for name in re.findall(r"`(\w+)`", names)}


def public() -> Iterator[tuple[str, object]]:
    """All public names with what they stand for."""
    for module in (waltz, waltz.blocking, waltz.table):
        for name in module.__all__:
            value = getattr(module, name)
            if not isinstance(value, str | ModuleType):
                yield f"{module.__name__}.{name}", value
    yield "waltz.telemetry.document", waltz.telemetry.document
    yield "waltz.telemetry.prometheus.MetricsCollector", prometheus.MetricsCollector
    for name in ("observe", "trace_context", "span_links"):
        yield f"waltz.telemetry.opentelemetry.{name}", getattr(opentelemetry, name)


def functions() -> Iterator[tuple[str, FunctionType, str]]:
    """All functions, and methods of public classes; with the docstrings of their classes."""
    for name, value in public():
        if inspect.isfunction(value):
            yield name, value, ""
        elif inspect.isclass(value):
            for method, member in inspect.getmembers(value, inspect.isroutine):
                function = inspect.unwrap(getattr(member, "__func__", member))
                if not inspect.isfunction(function) or not function.__module__.startswith("waltz."):
                    continue
                if not method.startswith("_") and method not in NOT_FOR_APPLICATIONS.get(name, ()):
                    yield f"{name}.{method}", function, prose(inspect.getdoc(value) or "")


PUBLIC = dict(public())
FUNCTIONS = {name: (function, of_class) for name, function, of_class in functions()}


def names_in(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


@pytest.mark.parametrize("name", PUBLIC)
def test_it_says_what_it_is(name: str) -> None:
    value = PUBLIC[name]
    assert inspect.isclass(value) or inspect.isfunction(value), type(value)
    assert len(prose(inspect.getdoc(value) or "").split()) > 2


@pytest.mark.parametrize("name", FUNCTIONS)
def test_its_parameters_are_explained(name: str) -> None:
    function, of_class = FUNCTIONS[name]
    text = prose(inspect.getdoc(function) or "")
    assert text, "no docstring"
    named = names_in(f"{text} {of_class}") | common_parameters() | {"self", "cls"}
    unnamed = set(inspect.signature(function).parameters) - named
    assert not unnamed


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_it_raises_itself_is_told(name: str) -> None:
    function, of_class = FUNCTIONS[name]
    raised = set()
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
        if isinstance(node, ast.Raise):
            error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            if isinstance(error, ast.Name) and error.id[0].isupper() and error.id != "NotImplementedError":
                raised.add(error.id)
    assert raised <= names_in(f"{prose(inspect.getdoc(function) or '')} {of_class}")


def entries(text: str, section: str) -> list[str]:
    """The entries of a list in a docstring, each with its first line."""
    found = re.search(rf"^{section}:\n((?: {{4}}.*\n?)+)", text, re.MULTILINE)
    return [] if found is None else re.findall(r"^ {4}(\S.*)$", found[1], re.MULTILINE)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_lists_name_parameters_and_errors_that_there_are(name: str) -> None:
    function, _ = FUNCTIONS[name]
    text = prose(inspect.getdoc(function) or "")
    parameters = list(inspect.signature(function).parameters)
    explained = [entry.partition(": ") for entry in entries(text, "Args")]
    named = [parameter for parameter, _, meaning in explained if meaning]
    assert named == [each for each in parameters if each in named], "in the order of the signature"
    assert len(named) == len(explained)
    for entry in entries(text, "Raises"):
        error, _, reason = entry.partition(": ")
        known = [getattr(module, error, None) for module in (waltz, waltz.table, waltz.common.zk.client, builtins)]
        assert any(isinstance(each, type) and issubclass(each, Exception) for each in known), error
        assert reason, entry


def test_the_walk_finds_what_it_is_made_for() -> None:
    assert {"waltz.connect", "waltz.Client.append", "waltz.blocking.Client.transact", "waltz.table.Table.scan"} <= set(
        FUNCTIONS
    )
    for name, methods in NOT_FOR_APPLICATIONS.items():
        value = PUBLIC[name]
        assert all(hasattr(value, method) for method in methods), name
