"""Counts refused requests and logs them, without a flood: once a minute for a principal, right and partition."""

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from waltz.common.access import Right

logger = logging.getLogger(__name__)

WINDOW_S: Final = 60.0
MAX_TEXTS: Final = 20
"""Refusals of one principal that are logged in a window, each about another right or partition."""
MAX_PRINCIPALS: Final = 1000
"""Principals of which refusals are logged in a window. All are counted."""


class _Window:
    __slots__ = ("folded", "seen")

    def __init__(self) -> None:
        self.seen: set[tuple[Right, int | None]] = set()
        self.folded = 0


class Refusals:
    """The refusals of a node, in the modes "audit" and "enforce"."""

    def __init__(self) -> None:
        self._counts = {(right, audited): 0 for right in Right for audited in (False, True)}
        self._windows: dict[str, _Window] = {}
        self._window_end_s = 0.0

    def counts(self) -> Iterable[tuple[tuple[str, str], int]]:
        """Number of refused requests by right, and whether they passed all the same (audit)."""
        for (right, audited), count in self._counts.items():
            yield (right.name.lower(), "audit" if audited else "enforce"), count

    def add(
        self, principal: str, right: Right, partition_id: int | None, text: str, peer: str, count: int, *, audited: bool
    ) -> None:
        """Count refused requests of a peer, and log the first unless the same one was logged within the window.

        To be called on the loop.
        """
        self._counts[right, audited] += count
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._window_end_s:
            self._begin_window(now_s)
        window = self._windows.get(principal)
        if window is None:
            if len(self._windows) >= MAX_PRINCIPALS:
                return
            window = self._windows[principal] = _Window()
        if (right, partition_id) in window.seen or len(window.seen) >= MAX_TEXTS:
            window.folded += count
            return
        window.seen.add((right, partition_id))
        window.folded += count - 1
        verb = "audit: would refuse" if audited else "refused"
        logger.warning("%s: %s%s", verb, text, f" (from {peer})" if peer else "")

    def _begin_window(self, now_s: float) -> None:
        windows, self._windows = self._windows, {}
        self._window_end_s = now_s + WINDOW_S
        for principal, window in windows.items():
            if window.folded:
                logger.warning("%d more refusals like these of principal %r were left out", window.folded, principal)
