"""Processes with bugs that a campaign has to find: ``python -m tests.histories.planted BUG,... MODULE ARGUMENT...``."""

import contextlib
import runpy
import sqlite3
import sys
from collections.abc import Callable, Sequence

import waltz
from waltz.common.records import Record


def command(module: str, arguments: Sequence[str], bugs: str) -> list[str]:
    """The command of a process, with these bugs if there are any."""
    planted = ["tests.histories.planted", bugs] if bugs else []
    return [sys.executable, "-m", *planted, module, *arguments]


def stale_views() -> None:
    """A view node answers fresh reads from the state that it has."""
    from waltz.table.served import answers

    async def caught_up(asked: answers.Asked, at_least: int = -1) -> bool:
        """At once."""
        return False

    answers.caught_up = caught_up


def effects_first() -> None:
    """A consumer commits its effects, and then its position."""
    from tests.histories import workloads

    def apply(
        self: workloads.Consumption,
        positions: waltz.SqlitePositions,
        batch: Sequence[Record],
        rows: Sequence[tuple[int, int, int, str]],
    ) -> None:
        with contextlib.closing(sqlite3.connect(self.database, timeout=workloads.PATIENCE_S)) as database:
            with database:
                self.write(database, rows)
            self.strike()
            with database:
                database.execute("BEGIN IMMEDIATE")
                positions.advance(database, batch)

    workloads.Consumption.apply = apply  # type: ignore[method-assign]


BUGS: dict[str, Callable[[], None]] = {"stale-views": stale_views, "effects-first": effects_first}


def main() -> None:
    """Plant the bugs, and become the process."""
    bugs, module, *arguments = sys.argv[1:]
    for bug in bugs.split(","):
        BUGS[bug]()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
