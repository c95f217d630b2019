"""Entry point of the ``waltz`` command.

Exit codes: 0 done, 1 failed (one line on standard error says what and what to do), 2 wrong usage; as shells have it 130
after Ctrl-C, and 141 when whoever reads the output (``| head``) has seen enough.
"""

import argparse
import importlib
import logging
import os
import select
import signal
import sys
from collections.abc import Collection, Sequence

from waltz.cli.nouns import NOUNS
from waltz.common.errors import WaltzError
from waltz.common.version import installed_version

INTERRUPTED = 128 + signal.SIGINT
NOT_READ = 128 + signal.SIGPIPE

ASKED = "_ARGCOMPLETE"
"""Set by a shell that asks for completions."""


def parser(named: Collection[str] = NOUNS) -> argparse.ArgumentParser:
    """The grammar of the command line: of ``named`` nouns all of it, of each other one its name and what it is for."""
    top = argparse.ArgumentParser(prog="waltz", description="Waltz: a replicated write-ahead log for transactions.")
    top.add_argument("--version", action="version", version=f"waltz {installed_version() or 'not installed'}")
    nouns = top.add_subparsers(title="nouns", required=True, metavar="NOUN")
    registered: set[str] = set()
    for name, noun in NOUNS.items():
        if noun.module in registered:
            continue
        if any(NOUNS[other].module == noun.module for other in named if other in NOUNS):
            importlib.import_module(f"waltz.cli.{noun.module}").register(nouns)
            registered.add(noun.module)
        else:
            nouns.add_parser(name, help=noun.help_text)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    try:
        try:
            return _run(arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError as error:
        if _is_stdout_closed():
            return NOT_READ
        print(f"Error: {error}", file=sys.stderr)
        return 1


def _run(arguments: Sequence[str] | None) -> int:
    # What takes time to import is imported here, where Ctrl-C ends it in a word.
    try:
        importlib.import_module("waltz.cli.output").escape_output()
        if ASKED in os.environ:
            importlib.import_module("waltz.cli.completion").answer(parser())
        words = sys.argv[1:] if arguments is None else arguments
        options = parser([word for word in words if not word.startswith("-")][:1]).parse_args(words)
        code = options.run(options)
    except BrokenPipeError:
        raise
    except (WaltzError, OSError, TimeoutError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    assert isinstance(code, int)
    return code


def _is_stdout_closed() -> bool:
    """Whether nobody reads the output any more: not every broken pipe is this one. Then nothing is written to it."""
    descriptor = sys.stdout.fileno()
    output = select.poll()
    output.register(descriptor, select.POLLOUT)
    if not any(event & select.POLLERR for _, event in output.poll(0)):
        return False
    # What is in the buffer would be tried again when the interpreter ends, and complained about.
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    return True


if __name__ == "__main__":
    sys.exit(main())
