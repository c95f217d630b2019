"""Entry point of the ``waltz`` command.

Exit codes: 0 done, 1 failed (one line on standard error says what and what to do), 2 wrong usage.
"""

import argparse
import logging
import sys
from collections.abc import Sequence

from waltz.cli import cluster, demo, disk, local, storage, zookeeper
from waltz.common.errors import WaltzError

NOUNS = (zookeeper, storage, disk, cluster, local)


def parser() -> argparse.ArgumentParser:
    """The whole grammar of the command line."""
    top = argparse.ArgumentParser(prog="waltz", description="Waltz: a replicated write-ahead log for transactions.")
    nouns = top.add_subparsers(title="nouns", required=True, metavar="NOUN")
    for module in NOUNS:
        module.register(nouns)
    demo.register(nouns)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    options = parser().parse_args(arguments)
    try:
        code = options.run(options)
    except (WaltzError, OSError, TimeoutError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 1
    assert isinstance(code, int)
    return code


if __name__ == "__main__":
    sys.exit(main())
