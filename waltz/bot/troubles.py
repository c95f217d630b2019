"""Repeats operations that fail while nodes are down, for ever."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from waltz.common.errors import WaltzError
from waltz.table.errors import TableError

logger = logging.getLogger(__name__)

RETRY_S = 5.0
"""The pause between two attempts."""

P = ParamSpec("P")
T = TypeVar("T")


class Troubles:
    """The present failures, and the number of all failures."""

    def __init__(self, retry_s: float = RETRY_S) -> None:
        self.retry_s = retry_s
        self.retries = 0
        self.present: str | None = None
        """The last error of the operations that fail at present; ``None`` when all succeed."""

    async def insist(self, attempt: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Repeat an operation until it succeeds. Raises ``TableError``, because a stopped table stays stopped."""
        while True:
            try:
                result = await attempt(*args, **kwargs)
            except TableError:
                raise
            except (WaltzError, TimeoutError, OSError) as error:
                self.present = str(error) or "no answer in time"
                self.retries += 1
                logger.warning("attempted again in %g s: %s", self.retry_s, self.present)
                await asyncio.sleep(self.retry_s)
            else:
                self.present = None
                return result
