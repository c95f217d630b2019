"""The option ``--consistency``: the level of what a command writes or reads."""

import argparse

from waltz.cli.session import number
from waltz.common.consistency import Consistency, consistency_named, level_from_commit, reads_everything
from waltz.table.face.levels import AsOf, AtLeast, ReadConsistency

_WRITES = "leader_quorum, quorum, leader_all or write_all_read_one (default: what the partition demands)"
_READS = "fresh, any, at-least:ID, as-of:ID, or the name of a level (default: fresh where the server can confirm it)"


def level_option(parser: argparse.ArgumentParser) -> None:
    """Add the option to a command that writes."""
    parser.add_argument("--consistency", type=_level, metavar="LEVEL", help=_WRITES)


def read_option(parser: argparse.ArgumentParser) -> None:
    """Add the option to a command that reads."""
    parser.add_argument("--consistency", type=_read, metavar="LEVEL", help=_READS)


def is_any(consistency: ReadConsistency | None) -> bool:
    """Whether a read waits for nothing."""
    if not isinstance(consistency, str) or consistency == "fresh":
        return False
    return consistency == "any" or not reads_everything(consistency_named(consistency))


def _level(word: str) -> str:
    try:
        return level_from_commit(word).word
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _read(text: str) -> ReadConsistency:
    kind, colon, transaction = text.partition(":")
    if colon and kind in ("at-least", "as-of"):
        transaction_id = number(minimum=-1)(transaction)
        return AtLeast(transaction_id) if kind == "at-least" else AsOf(transaction_id)
    try:
        return text if text in ("fresh", "any") else consistency_named(text).word
    except ValueError:
        levels = ", ".join(level.word for level in Consistency)
        raise argparse.ArgumentTypeError(
            f"{text!r} is none of fresh, any, at-least:ID and as-of:ID, and no level, which are {levels}"
        ) from None
