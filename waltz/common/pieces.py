"""Long texts that are made in pieces, with turns of other work in between (rule L4)."""

import asyncio
import time
from collections.abc import Iterator

MAX_TURN_S = 0.002
"""Longest turn of the loop for a text that is made in pieces."""


class Pieces:
    """Joins the pieces of one text at a time, so that many requests do not add up to a long turn."""

    def __init__(self) -> None:
        self._joining = asyncio.Lock()

    async def join(self, pieces: Iterator[str]) -> str:
        """All pieces joined; raises the errors of the iterator."""
        found = []
        async with self._joining:
            turn_over_s = time.monotonic() + MAX_TURN_S
            for piece in pieces:
                found.append(piece)
                if time.monotonic() >= turn_over_s:
                    await asyncio.sleep(0)
                    turn_over_s = time.monotonic() + MAX_TURN_S
        return "".join(found)
