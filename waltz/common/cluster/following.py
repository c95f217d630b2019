"""Reads a part of ZooKeeper again after each change."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from waltz.common.errors import WaltzError
from waltz.common.net.backoff import Backoff
from waltz.common.quiet_log import OutageLog
from waltz.common.tasks import owned, restarting

logger = logging.getLogger(__name__)

RETRY_INITIAL_S = 0.1
RETRY_MAXIMUM_S = 8.0


class Follower:
    """Calls ``catch_up`` after each :meth:`changed`, until it succeeds.

    ``catch_up`` sets watches that call :meth:`changed`. A watch also fires when the connection is lost, so a change is
    unnoticed only while ZooKeeper does not answer. After an unforeseen error ``catch_up`` is called again, too.
    """

    def __init__(self, what: str, catch_up: Callable[[], Awaitable[None]], random_source: random.Random) -> None:
        """``what`` names the followed value in the log."""
        self._what = what
        self._catch_up = catch_up
        self._random = random_source
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def changed(self) -> None:
        """The followed value has changed and must be read again."""
        self._changed.set()

    def start(self) -> None:
        """Start following."""
        self._task = owned(restarting(self._follow, f"the watch of {self._what}"), self._what)

    async def close(self) -> None:
        """Stop following."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _follow(self) -> None:
        backoff = Backoff(RETRY_INITIAL_S, RETRY_MAXIMUM_S, self._random)
        outage = OutageLog(logger, asyncio.get_running_loop().time)
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._catch_up()
            except WaltzError as error:
                outage.failed(f"cannot read {self._what}: {error}")
                self._changed.set()
                await asyncio.sleep(backoff.next_delay_s())
            except Exception:
                self._changed.set()
                raise
            else:
                backoff.reset()
                outage.over()
