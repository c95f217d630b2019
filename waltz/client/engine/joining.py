"""An engine on its way into its cluster. It may be closed before it has joined."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from waltz.client.engine.engine import Engine
from waltz.client.engine.tasks import is_being_cancelled
from waltz.client.errors import ClientClosedError


class Joining:
    """Opens an engine with ``open_engine``, once, for one task at a time, and closes it in any state."""

    def __init__(self, open_engine: Callable[[], Coroutine[Any, Any, Engine]]) -> None:
        self._open_engine = open_engine
        self._opening: asyncio.Task[Engine] | None = None
        self._closed = False

    async def engine(self) -> Engine:
        """The engine. If the call is cancelled or fails, the next call tries again.

        Raises the errors of joining, and ``ClientClosedError`` when :meth:`close` is or was called.
        """
        if self._closed:
            raise ClientClosedError
        opening = self._opening
        if opening is None or (opening.done() and (opening.cancelled() or opening.exception() is not None)):
            opening = self._opening = asyncio.create_task(self._open_engine())
        try:
            return await opening
        except asyncio.CancelledError:
            if is_being_cancelled():
                raise
            raise ClientClosedError from None

    async def close(self) -> None:
        """Close the engine, or end the attempt to join. May be called twice."""
        self._closed = True
        opening = self._opening
        if opening is not None:
            opening.cancel()
            await asyncio.wait((opening,))
            if not opening.cancelled() and opening.exception() is None:
                await opening.result().close()
