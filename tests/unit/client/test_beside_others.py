"""The table that puts programs beside those of other libraries: the calls in it are those of the real libraries.

Ours are always checked, the others where they are installed: pip install aiokafka nats-py redis.
"""

import ast
import importlib
import inspect
import re
from typing import Any

import pytest

from tests.unit.client.examples import DOCS

LIBRARIES = {
    "Waltz": (
        *("waltz", "waltz.asynchronous.Client", "waltz.client.plain.merged.MergedFeed", "waltz.client.mock"),
        *("waltz.client.plain.consumer.Consumer", "waltz.client.positions.sql.SqlitePositions"),
    ),
    "aiokafka": ("aiokafka", "aiokafka.AIOKafkaConsumer", "aiokafka.AIOKafkaProducer"),
    "nats-py": (
        *("nats", "nats.aio.client.Client", "nats.js.client.JetStreamContext", "nats.aio.msg.Msg", "nats.js.api"),
        "nats.js.client.JetStreamContext.PullSubscription",
    ),
    "redis-py": ("redis.asyncio", "redis.asyncio.Redis"),
}
"""Where the names of a column are looked for."""


def places(library: str) -> list[Any]:
    found = []
    for path in LIBRARIES[library]:
        parts = path.split(".")
        for end in range(len(parts), 0, -1):
            try:
                value: Any = importlib.import_module(".".join(parts[:end]))
            except ModuleNotFoundError as error:
                if error.name is not None and error.name.partition(".")[0] not in ("waltz", *parts[:1]):
                    raise
                continue
            for name in parts[end:]:
                value = getattr(value, name)
            found.append(value)
            break
        else:
            pytest.skip(f"{parts[0]} is not installed")
    return found


def calls(library: str) -> list[ast.Call]:
    """The calls in one column of the table."""
    table = (DOCS / "appendix" / "beside-others.md").read_text().partition("## Consuming")[2].partition("## ")[0]
    rows = [row.strip("|").split(" | ") for row in table.splitlines() if row.startswith("|") and "---" not in row]
    column = [cell.strip(" |") for cell in rows[0]].index(library)
    assert {len(row) for row in rows} == {5}
    found: list[ast.Call] = []
    for row in rows[1:]:
        for code in re.findall(r"`([^`]*)`", row[column]):
            if "(" in code or "=" in code:
                statement = f"async def _():\n {code}" + (":\n  pass" if code.startswith("async ") else "")
                parsed = ast.walk(ast.parse(statement))
                found += [node for node in parsed if isinstance(node, ast.Call)]
    return found


@pytest.mark.parametrize("library", LIBRARIES)
def test_calls_are_those_of_the_library(library: str) -> None:
    homes = places(library)
    seen = calls(library)
    assert len(seen) > 5
    for call in seen:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
        functions = [getattr(home, name) for home in homes if hasattr(home, name)]
        assert functions, ast.unparse(call)
        assert any(takes(function, call) for function in functions), ast.unparse(call)


def takes(function: Any, call: ast.Call) -> bool:
    """Whether a function, or a method without its object, can be called so."""
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return True
    keywords = {keyword.arg: None for keyword in call.keywords if keyword.arg is not None}
    parameters = inspect.signature(function).parameters
    if not keywords.keys() <= parameters.keys():
        return False
    bound = ["self"] if next(iter(parameters), None) == "self" else []
    try:
        inspect.signature(function).bind(*bound, *call.args, **keywords)
    except TypeError:
        return False
    return True
