"""One line that says how the smoke test is getting on."""

import sys
import time
from collections.abc import Mapping, Sequence

from tests.smoke.faults import ZOOKEEPER, Kind

INTERVAL_WITHOUT_TERMINAL_S = 5.0
UP = "●"
MARKS = {
    Kind.KILL: "✗",
    Kind.TERMINATE: "○",
    Kind.PAUSE: "‖",
    Kind.CUT: "≠",
    Kind.RESET: "~",
    Kind.SLOW: "…",
    Kind.BLACKHOLE: "?",
}


class Display:
    """Rewrites its line on a terminal; elsewhere it prints one every few seconds."""

    def __init__(self, servers: Sequence[str], storages: Sequence[str], transactions: int) -> None:
        self._servers = servers
        self._storages = storages
        self._transactions = transactions
        self._started_at_s = time.monotonic()
        self._shown_at_s = 0.0
        self._rewrites = sys.stdout.isatty()

    def show(self, states: Mapping[str, Kind], faults: int, progress: Mapping[str, int]) -> None:
        """``states`` are the nodes that are not well, ``progress`` the sums of the clients' reports."""
        now_s = time.monotonic()
        if not self._rewrites and now_s - self._shown_at_s < INTERVAL_WITHOUT_TERMINAL_S:
            return
        self._shown_at_s = now_s

        def marks(nodes: Sequence[str]) -> str:
            return "".join(MARKS[states[node]] if node in states else UP for node in nodes)

        line = (
            f"{now_s - self._started_at_s:6.1f} s  zookeeper {marks([ZOOKEEPER])} servers {marks(self._servers)} "
            f"storages {marks(self._storages)}  {progress['committed']:,} of {self._transactions:,} committed, "
            f"{progress['pending']} pending, {progress['retries']:,} retries, {faults} faults"
        )
        print(f"\r{line}\x1b[K" if self._rewrites else line, end="" if self._rewrites else "\n", flush=True)

    def end(self) -> None:
        """Leave the line."""
        if self._rewrites:
            print(flush=True)

    @staticmethod
    def legend() -> str:
        """What the marks mean."""
        return ", ".join([f"{UP} up", *(f"{mark} {kind.value}" for kind, mark in MARKS.items())])
