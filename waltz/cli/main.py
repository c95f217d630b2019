"""Entry point of the ``waltz`` command.

Exit codes: 0 done, 1 failed (one line on standard error says what and what to do), 2 wrong usage; as shells have it 130
after Ctrl-C, and 141 when whoever reads the output (``| head``) has seen enough.
"""

import argparse
import logging
import os
import select
import signal
import sys
from collections.abc import Sequence

from waltz.cli import (
    bot,
    client,
    cluster,
    completion,
    config,
    demo,
    disk,
    local,
    partition,
    performance,
    server,
    status,
    storage,
    table,
    transactions,
    write_sessions,
    zookeeper,
)
from waltz.cli.output import escape_output
from waltz.common.errors import WaltzError
from waltz.common.version import installed_version

INTERRUPTED = 128 + signal.SIGINT
NOT_READ = 128 + signal.SIGPIPE

NOUNS = (
    *(zookeeper, server, storage, disk, cluster, write_sessions, partition, table, client, performance),
    *(status, transactions, local, bot, config, completion),
)


def parser() -> argparse.ArgumentParser:
    """The whole grammar of the command line."""
    top = argparse.ArgumentParser(prog="waltz", description="Waltz: a replicated write-ahead log for transactions.")
    top.add_argument("--version", action="version", version=f"waltz {installed_version() or 'not installed'}")
    nouns = top.add_subparsers(title="nouns", required=True, metavar="NOUN")
    for module in NOUNS:
        module.register(nouns)
    demo.register(nouns)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command."""
    escape_output()
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
    grammar = parser()
    completion.answer(grammar)
    try:
        options = grammar.parse_args(arguments)
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
