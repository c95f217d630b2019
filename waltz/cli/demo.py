"""``waltz demo``: the bank."""

import argparse
import importlib.util
from pathlib import Path

from waltz.cli.nouns import NOUNS
from waltz.cli.session import Nouns, number
from waltz.common.errors import WaltzError
from waltz.common.version import with_extra
from waltz.local.java import find_java

NEEDED = ("tqdm", "pyspark", "pyarrow")
"""Imports of the demo that an installation without extras lacks. Without matplotlib only the plot is missing."""

_DESCRIPTION = (
    "Several processes, each with its own database, move money between accounts through the log, under locks. At the "
    "end all databases must agree, the sum of money must be unchanged, and Spark must find the same in the log."
)


def register(nouns: Nouns) -> None:
    """Add the command."""
    parser = nouns.add_parser("demo", help=NOUNS["demo"].help_text, description=_DESCRIPTION)
    parser.add_argument("--transactions", type=number(minimum=1), default=100_000, help="number of generated transfers")
    parser.add_argument("--input", type=Path, metavar="FILE.csv", help="transfers from,to,amount[,time] instead")
    parser.add_argument("--opening", type=number(minimum=1), default=1_000, help="opening balance of an account")
    parser.add_argument("--accounts", type=number(minimum=2), default=5_000, help="number of generated accounts")
    parser.add_argument(
        "--tellers", type=number(minimum=1), default=2, help="client processes, each with its own database"
    )
    parser.add_argument("--in-flight", type=number(minimum=1), default=64, help="transfers under way per teller")
    parser.add_argument("--seed", type=number(), default=1)
    parser.add_argument("--plaintext", action="store_true", help="no TLS between the nodes")
    parser.add_argument("--directory", type=Path, help="keep data and logs here (default: temporary, removed)")
    parser.add_argument("--rejects", type=Path, metavar="FILE.csv", help="write every rejected row's line and reason")
    parser.add_argument("--no-pipeline", action="store_true", help="leave out the streaming queries")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise WaltzError(f"the demo needs {' and '.join(missing)}: {with_extra('demo')}")
    find_java()  # before any work begins
    from waltz.demo import bank

    return bank.run(
        bank.DemoOptions(
            transactions=options.transactions,
            input=options.input,
            opening_cents=options.opening * 100,
            accounts=options.accounts,
            tellers=options.tellers,
            in_flight=options.in_flight,
            seed=options.seed,
            plaintext=options.plaintext,
            directory=options.directory,
            rejects=options.rejects,
            pipeline=not options.no_pipeline,
        )
    )
