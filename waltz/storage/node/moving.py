"""The copy of a partition's files for another disk, most of it while the partition is served.

Records that are durable and visible do not change, unless records are removed from the log. So they are copied while
the log grows. What is left is copied while the partition is suspended. After a removal of records the copy begins anew.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

from waltz.storage.disk.directory_copy import copy_piece, copy_rest, make_empty
from waltz.storage.disk.files.files import Files
from waltz.storage.disk.log.log import PartitionLog
from waltz.storage.disk.volumes import Move

PIECE_BYTES = 4 << 20
"""The size of the pieces that are copied while the partition is served."""
ENOUGH_BYTES = 8 << 20
"""When a round has copied less than this, the rest is copied while the partition is suspended."""
MAX_ROUNDS = 10
"""The largest number of rounds: a partition that grows faster than it is copied is suspended for longer."""


class PartitionCopy:
    """The copy for one move. All methods belong to the event loop's thread."""

    def __init__(self, files: Files, move: Move, rate_bytes_per_s: int) -> None:
        """``files`` has the threads of the destination's disk; ``rate_bytes_per_s`` limits :meth:`ahead`."""
        self._files = files
        self._move = move
        self._rate_bytes_per_s = rate_bytes_per_s
        self._removals: int | None = None
        self._copied: dict[str, int] = {}

    async def ahead(self, log: PartitionLog, check: Callable[[], None]) -> None:
        """Copy what the log has, until little is left. ``check`` is called before each piece, and may raise.

        Raises ``OSError``.
        """
        for _ in range(MAX_ROUNDS):
            if await self._round(log, check) < ENOUGH_BYTES:
                return

    def is_of(self, log: PartitionLog) -> bool:
        """Whether the copied part is a part of the log as it is now."""
        return log.lasting()[0] == self._removals

    async def rest(self) -> None:
        """Copy the rest of all files, durably; the log is closed. Raises ``OSError``."""
        await self._files.run(self._copy_rest)

    async def _round(self, log: PartitionLog, check: Callable[[], None]) -> int:
        removals, sizes = log.lasting()
        check()
        if removals != self._removals:
            await self._files.run(partial(make_empty, self._files, self._move.staged))
            self._removals, self._copied = removals, {}
        copied_bytes = 0
        for name, size_bytes in sizes.items():
            while (offset := self._copied.get(name, 0)) < size_bytes:
                check()
                if not self.is_of(log):
                    return ENOUGH_BYTES  # the next round begins anew
                piece_bytes = min(PIECE_BYTES, size_bytes - offset)
                source, target = str(Path(self._move.source) / name), str(Path(self._move.staged) / name)
                await asyncio.gather(
                    self._files.run(partial(copy_piece, self._files, source, target, offset, piece_bytes)),
                    asyncio.sleep(piece_bytes / self._rate_bytes_per_s),
                )
                self._copied[name] = offset + piece_bytes
                copied_bytes += piece_bytes
        return copied_bytes

    def _copy_rest(self) -> None:
        source, staged = Path(self._move.source), Path(self._move.staged)
        for name in self._files.list_directory(self._move.source):
            copy_rest(self._files, str(source / name), str(staged / name), self._copied.get(name, 0))
