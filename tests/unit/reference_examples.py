"""The examples in the docstrings of public names, as functions of what docs/reference/parameters.md says is given."""

import ast
import importlib
import inspect
import re
import textwrap
from pathlib import Path

PAGES = sorted((Path(__file__).parents[2] / "docs" / "reference").glob("*.md"))

_SECTION = re.compile(r"^Examples:\n(.*)\Z", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^ {4}```python\n(.*?)^ {4}```$", re.MULTILINE | re.DOTALL)

HEADER = """\
import json
import sqlite3
import time
from collections.abc import Callable

import opentelemetry.trace
import prometheus_client
import pytest
import sqlalchemy

import waltz
from waltz.common.zk.client import ZooKeeper
"""
"""Modules that examples use without importing them, and what the types below are of."""

GIVEN = {
    "client": "waltz.Client",
    "other": "waltz.Client",
    "table": "waltz.table.Table",
    "cluster": "str",
    "config": "waltz.ClientConfig",
    "directory": "str",
    "lock": "waltz.PartitionLocalLock",
    "callbacks": "waltz.WaltzClientCallbacks",
    "context": "waltz.TransactionContext",
    "transaction": "waltz.Record",
    "database": "waltz.DbApiDatabase",
    "apply": "Callable[[waltz.Transaction, bytes, sqlite3.Connection], None]",
    "port": "int",
    "tracer": "opentelemetry.trace.Tracer",
    "zookeeper": "ZooKeeper",
}
"""What examples may use, with the types that type checkers are told."""

WITH_CALLBACKS = {"ClientTimeoutError", "InvalidOperationError"}
"""Errors of clients with callbacks."""

APPLY = "apply_transaction"
"""A function of this name is a callback, which an example defines and does not call."""


def shown() -> dict[str, str]:
    """The public names as the pages show them, and on which page."""
    return {
        name: page.stem for page in PAGES for name in re.findall(r"^::: (\S+)$", page.read_text(), flags=re.MULTILINE)
    }


def loaded(name: str) -> object:
    """What a name stands for."""
    module, _, attribute = name.rpartition(".")
    value: object = getattr(importlib.import_module(module), attribute)
    return value


def prose(text: str) -> str:
    """A docstring without its examples."""
    return _SECTION.sub("", text)


def example_of(value: object) -> str | None:
    """The example in a docstring, if there is one."""
    section = _SECTION.search(inspect.getdoc(value) or "")
    blocks = [] if section is None else _BLOCK.findall(section[1])
    return textwrap.dedent(blocks[0]) if len(blocks) == 1 else None


def client_of(name: str, page: str) -> str:
    """The type of the client that an example is given."""
    if name.rpartition(".")[2] in WITH_CALLBACKS or page == "callbacks":
        return "waltz.WaltzClient"
    return "waltz.blocking.Client" if page == "blocking" else GIVEN["client"]


def parameters_of(source: str) -> list[str]:
    """What an example has to be given."""
    names = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)]
    own = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    own |= {node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)}
    return sorted({node.id for node in names if isinstance(node.ctx, ast.Load)} & GIVEN.keys() - own)


def as_function(name: str, page: str, function: str) -> str:
    """An example as a function of what it is given, with types."""
    source = example_of(loaded(name))
    assert source is not None, name
    types = {**GIVEN, "client": client_of(name, page)}
    parameters = ", ".join(f"{each}: {types[each]}" for each in parameters_of(source))
    kind = "def" if page == "blocking" else "async def"
    return f"{kind} {function}({parameters}) -> None:\n{textwrap.indent(source, '    ')}"


def as_module() -> str:
    """All examples, for type checkers."""
    functions = [as_function(name, page, f"example_{number}") for number, (name, page) in enumerate(shown().items())]
    return "\n\n".join([HEADER, *functions])
