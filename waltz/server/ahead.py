"""Clients that have applied more than this server knows of.

Either the log has lost transactions, or the client has heard of them from another owner, and this server has not yet
heard that it was deposed meanwhile. What a server says about its high-water mark to such a client is final for the
client, so the log is asked for proof first: that nobody else has written since.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from waltz.common.tasks import owned
from waltz.server.waiting import Pending

logger = logging.getLogger(__name__)

MAX_WAITING = 10_000
"""When so many wait for one proof, more are decided without it."""

Decide = Callable[[list[Pending], bool], None]
"""Goes on with requests, given whether the mark was proved to be the log's own after they had arrived."""


class AheadClients:
    """Requests from beyond the high-water mark, decided together after one proof."""

    def __init__(self, name: str, prove: Callable[[], Awaitable[bool]], decide: Decide) -> None:
        self._name = name
        self._prove = prove
        self._decide = decide
        self._waiting: list[Pending] = []
        self._task: asyncio.Task[None] | None = None

    def add(self, pending: Pending) -> None:
        """Decide later; proof that was asked for before does not count."""
        if len(self._waiting) >= MAX_WAITING:
            self._decide([pending], False)
            return
        self._waiting.append(pending)
        if self._task is None:
            self._task = owned(self._run(), self._name)

    async def close(self) -> None:
        """Decide nothing any more."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while self._waiting:
                pendings, self._waiting = self._waiting, []
                try:
                    proved = await self._prove()
                except Exception:
                    logger.exception("%s failed for an unforeseen reason", self._name)
                    proved = False
                self._decide(pendings, proved)
        finally:
            self._task = None
