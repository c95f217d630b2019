"""The modules for threads that are made of asynchronous ones: ``python -m tests.twins`` (``make twins``) renews them.

What stands on calls that have twins is the same for threads but for ``async``, ``await`` and the names. Calls that do
their work on the loop are passed on, with the docstrings of the asynchronous ones.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]

_EVERYWHERE = [
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAsyncGenerator\[((?:[^][]|\[[^]]*\])+), None\]", r"Generator[\1, None, None]"),
    (r"\bAsyncGenerator\b", "Generator"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\banext\b", "next"),
    (r"\baclosing\b", "closing"),
    (r"\bAsyncExitStack\b", "ExitStack"),
    (r"\benter_async_context\b", "enter_context"),
    (r"__a(enter|exit)__", r"__\1__"),
]
"""Patterns, and what is written instead."""

_TABLES = [
    (
        r"\n\n    Examples:\n        ```python\n(?:.*\n)+?        ```",
        "",
    ),  # these classes are made by tables and clients
    (r"^from \S+ import (?:Client|Work, done|TableTransaction)\n", ""),
    (r"\bClient\b", "ThreadsClient"),
    (r"\bTableTransaction\b", "BlockingTransaction"),
    (r"\bWork\b", "BlockingWork"),
    (r"\bwaltz\.table\.face\.interface\b", "waltz.table.face.blocking_interface"),
    (r"\bAnyTable\b", "AnyTableCalls"),
    (r"\b(Prefixed|Typed|Partitioned)Table\b", r"Blocking\1Table"),
]


class Twin(NamedTuple):
    """A module that is made of another one."""

    source: str
    made: str
    docstring: str
    imports: str
    """Of the twin alone; what it does not use of all imports is left out."""
    patterns: list[tuple[str, str]]
    """Besides those that hold everywhere."""

    @property
    def path(self) -> Path:
        return ROOT / self.made

    def written(self) -> str:
        """The text of the twin."""
        text = (ROOT / self.source).read_text().partition('"""\n')[2]
        for pattern, instead in [*_EVERYWHERE, *self.patterns]:
            text = re.sub(pattern, instead, text, flags=re.MULTILINE)
        note = f"Made of ``{self.source}`` by ``make twins``: change that module, not this one."
        text = f'"""{self.docstring}\n\n{note}\n"""\n\n{self.imports}{text}'
        return _ruff(_ruff(text, "check", "--fix", "--select=I,F401", "--quiet"), "format", "--quiet")


class Calls(NamedTuple):
    """The end of a class whose methods pass each call on to the asynchronous one."""

    source: str
    class_name: str
    made: str
    target: str
    """The object whose calls they are, in the methods."""
    one_by_one: frozenset[str] = frozenset()
    """Iterations whose items are handed out as soon as they come."""

    @property
    def path(self) -> Path:
        return ROOT / self.made

    def written(self) -> str:
        """The text of the module: the methods that it has no others for are made anew."""
        mark = f"    # Made of {self.source} by `make twins`.\n"
        by_hand, found, _ = self.path.read_text().partition(mark)
        assert found, f"{self.made} has no line that says where to write"
        source = (ROOT / self.source).read_text()
        (of,) = (
            node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == self.class_name
        )
        written = set(re.findall(r"^    def (\w+)", by_hand, flags=re.MULTILINE))
        methods = [
            self._method(source, node)
            for node in of.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _to_call(node) and node.name not in written
        ]
        return _ruff("\n".join([by_hand + mark, *methods]), "format", "--quiet")

    def _method(self, source: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
        docstring = node.body[0]
        lines = source.splitlines()
        head = lines[node.lineno - len(node.decorator_list) - 1 : docstring.end_lineno]
        text = "\n".join(head)
        for pattern, instead in _EVERYWHERE:
            text = re.sub(pattern, instead, text)
        call = f"{self.target}.{node.name}"
        assert node.returns is not None
        if not node.decorator_list:
            given = [each.arg for each in node.args.args[1:]] + [
                f"{each.arg}={each.arg}" for each in node.args.kwonlyargs
            ]
            call = f"{call}({', '.join(given)})"
            if "AsyncGenerator" in ast.unparse(node.returns):
                call = f"iterated(self._run, {call}{', 1' if node.name in self.one_by_one else ''})"
            else:
                call = f"self._run({call})"
        return f"{text}\n        {'' if ast.unparse(node.returns) == 'None' else 'return '}{call}\n"


def _to_call(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether it is for applications, and needs no thread but that of the loop."""
    return not node.name.startswith("_") and (isinstance(node, ast.AsyncFunctionDef) or bool(node.decorator_list))


def _ruff(text: str, *arguments: str) -> str:
    command = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename=waltz/twin.py", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout


TWINS: list[Twin | Calls] = [
    Calls(
        "waltz/table/face/table.py",
        "Table",
        "waltz/table/face/blocking_table.py",
        "self._table",
        one_by_one=frozenset({"follow"}),
    ),
    Calls(
        "waltz/table/served/table.py",
        "ServedTable",
        "waltz/table/served/blocking_table.py",
        "self._table",
        one_by_one=frozenset({"follow"}),
    ),
    Twin(
        "waltz/table/face/interface.py",
        "waltz/table/face/blocking_interface.py",
        "What parts of tables and partitioned tables for threads need of a table, wherever its view is.",
        "from waltz.table.face.threads import BlockingWork\n",
        [(r"^from waltz.table.face.transacting import Work\n", ""), *_TABLES],
    ),
    Twin(
        "waltz/table/face/parts.py",
        "waltz/table/face/blocking_parts.py",
        "The rows of one prefix of a table, for threads.",
        "from waltz.table.face.threads import BlockingTransaction\n",
        [*_TABLES, (r"\bTable\b", "TableCalls")],
    ),
    Twin(
        "waltz/table/face/several.py",
        "waltz/table/face/blocking_several.py",
        "One table in several partitions, for threads.",
        "from waltz.table.face.blocking import AnyBlockingTable, BlockingTable\n"
        "from waltz.table.face.threads import BlockingTransaction, BlockingWork, ThreadsClient, done\n",
        [
            (r"^from waltz.table.face.interface import AnyTable\n", ""),
            (r"\bAnyTable\b", "AnyBlockingTable"),
            *_TABLES,
            (r"^from waltz.table.face.table import Table\n", ""),
            (r"\bTable\b", "BlockingTable"),
        ],
    ),
    Twin(
        "waltz/client/plain/values.py",
        "waltz/blocking/values.py",
        "The plain face for threads and for values that a serializer turns into bytes.",
        "from waltz.blocking.feeds import BatchFeed, TransactionFeed\n"
        "from waltz.blocking.plain import PlainClient\n"
        "from waltz.client.plain.client import Locks\n"
        "from waltz.client.decisions import serialized_choice\n",
        [
            (r"^from \S+ import (?:Client, Locks|Feed)\n", ""),
            (r"\bClient\b", "PlainClient"),
            (r"\bfeed: Feed\b", "feed: TransactionFeed | BatchFeed"),
            (r" \| Awaitable\[T \| Append\[T\] \| None\]", ""),
            (
                r"serialized_decide\(decide, self\._serializer\)",
                "lambda basis: serialized_choice(decide(basis), self._serializer)",
            ),
        ],
    ),
]


if __name__ == "__main__":
    for twin in TWINS:
        twin.path.write_text(twin.written())
