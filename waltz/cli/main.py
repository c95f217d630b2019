"""Entry point of the ``waltz`` command.

Exit codes: 0: done; 1: failed (one line on standard error gives the reason and the remedy); 2: wrong usage; as in
shells, 130 after Ctrl-C, and 141 when the reader of the output (``| head``) has closed the pipe.
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
"""Environment variable, set by a shell that asks for completions."""


def parser(named: Collection[str] = NOUNS) -> argparse.ArgumentParser:
    """The grammar of the command line: complete for the ``named`` nouns, one line for every other noun."""
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
    # Slow imports happen here, where Ctrl-C ends them without a traceback.
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
    """Whether the reader of the output is gone (a broken pipe may be another one). If so, write no more output."""
    descriptor = sys.stdout.fileno()
    output = select.poll()
    output.register(descriptor, select.POLLOUT)
    if not any(event & select.POLLERR for _, event in output.poll(0)):
        return False
    # The interpreter would write the rest of the buffer again at its end, and print an error.
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    return True


if __name__ == "__main__":
    sys.exit(main())
