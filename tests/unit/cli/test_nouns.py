"""A command costs the imports of its own noun."""

import argparse
import importlib
import subprocess
import sys

import pytest

from waltz.cli.main import parser
from waltz.cli.nouns import NOUNS

PROGRAM = """
import contextlib, io, sys
from waltz.cli.main import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main(sys.argv[1:])
print(*sys.modules)
"""

LIGHT = {"waltz.cli.main", "waltz.cli.nouns", "waltz.cli.output"}
"""What of the command line every command imports."""

OF_CONNECTIONS = {"kazoo", "cryptography", "waltz.client.engine.engine"}


def imported(*command: str) -> set[str]:
    """The modules of a process that has run a command."""
    run = subprocess.run([sys.executable, "-c", PROGRAM, *command], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


@pytest.mark.parametrize("command", ["--version", "--help", "nonsense"])
def test_what_concerns_no_noun_imports_none(command: str) -> None:
    modules = imported(command)
    assert {name for name in modules if name.startswith("waltz.cli.")} == LIGHT
    assert modules.isdisjoint({"asyncio", "pydantic", "yaml", *OF_CONNECTIONS})


@pytest.mark.parametrize(
    ("noun", "others"),
    [
        ("zookeeper", {"protecting"}),
        ("append", {"consistency"}),
        ("status", set()),
        ("storage", {"disk_balancing", "labels", "loss", "replica_moving", "progress"}),
    ],
)
def test_a_noun_imports_no_other_one(noun: str, others: set[str]) -> None:
    modules = imported(noun, "--help")
    own = {f"waltz.cli.{name}" for name in {"session", NOUNS[noun].module} | others}
    assert {name for name in modules if name.startswith("waltz.cli.")} == LIGHT | own


@pytest.mark.parametrize("noun", ["zookeeper", "append", "table", "client", "performance"])
def test_help_imports_nothing_that_only_a_connection_needs(noun: str) -> None:
    assert imported(noun, "--help").isdisjoint(OF_CONNECTIONS)


def test_every_module_adds_the_nouns_that_are_told_of_it() -> None:
    for module in {noun.module for noun in NOUNS.values()}:
        nouns = argparse.ArgumentParser().add_subparsers()
        importlib.import_module(f"waltz.cli.{module}").register(nouns)
        assert list(nouns.choices or ()) == [name for name, noun in NOUNS.items() if noun.module == module]


def test_the_list_of_nouns_is_the_same_whatever_is_named() -> None:
    for named in ([], ["top"], ["nonsense"], NOUNS):
        assert parser(named).format_help() == parser().format_help()
