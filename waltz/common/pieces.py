"""Long texts that are put together piece by piece, with turns for others in between (rule L4)."""

import asyncio
import time
from collections.abc import Iterator

MAX_TURN_S = 0.002
"""How long a text that is made piece by piece keeps the loop from other work."""


class Pieces:
    """Joins the pieces of one text at a time, so that many that are asked for do not add up to a long turn."""

    def __init__(self) -> None:
        self._joining = asyncio.Lock()

    async def join(self, pieces: Iterator[str]) -> str:
        """All pieces; raises what their making does."""
        found = []
        async with self._joining:
            turn_over_s = time.monotonic() + MAX_TURN_S
            for piece in pieces:
                found.append(piece)
                if time.monotonic() >= turn_over_s:
                    await asyncio.sleep(0)
                    turn_over_s = time.monotonic() + MAX_TURN_S
        return "".join(found)
