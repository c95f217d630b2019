"""Import all that is installed and, without ``--modules``, show the help of every command; run by a bare Python.

Prints where the package is, what is missing for the rest of it, and how many commands there are.
"""

import argparse
import contextlib
import importlib
import io
import pkgutil
import sys
from collections.abc import Iterator

import waltz
from waltz.cli.main import main, parser


def missing_packages() -> set[str]:
    """What the modules that cannot be imported lack."""
    missing: set[str] = set()
    for name in (
        "pyspark_waltz",
        "pyspark_waltz_table",
        *(module.name for module in pkgutil.walk_packages(waltz.__path__, "waltz.")),
    ):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            missing.add(str(error.name).partition(".")[0])
    return missing


def commands(found: argparse.ArgumentParser) -> Iterator[list[str]]:
    """All nouns, and all verbs behind their nouns."""
    for action in found._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield [name]
                yield from ([name, *rest] for rest in commands(inner))


def help_of(command: list[str]) -> str:
    """What the command says about itself."""
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
        main([*command, "--help"])
    return printed.getvalue()


if __name__ == "__main__":
    print(waltz.__file__)
    print(*sorted(missing_packages()))
    if "--modules" not in sys.argv:
        known = list(commands(parser()))
        for one in known:
            assert help_of(one).startswith(f"usage: waltz {' '.join(one)}"), one
        print(len(known))
