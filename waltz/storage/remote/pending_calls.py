"""The unanswered requests of one connection, by sequence number."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Generic, TypeVar

from waltz.common.errors import ConnectionClosedError, DeadlineExceededError, ProtocolError
from waltz.common.net.guard import MIN_PROGRESS_BYTES
from waltz.common.net.progress import Moving, while_moving

Answer = TypeVar("Answer")

OPEN_SEQ_NUM = -1
"""Sequence number of the open request and its answer, in both storage protocols."""

MAX_ABANDONED = 10_000
"""The largest number of unanswered requests without a caller. A peer that owes more answers does not work."""


class PendingCalls(Generic[Answer]):
    """Assigns sequence numbers (0, 1, ...), and hands each answer to the caller of its request.

    A request whose caller gave up (deadline, cancellation) stays *abandoned* until its answer arrives. So a late answer
    is distinguished from an answer without a request, which violates the protocol.
    """

    __slots__ = ("_abandoned", "_closed", "_futures", "_peer", "next_seq_num")

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self.next_seq_num: Callable[[], int] = itertools.count().__next__
        """The number of the next request. The caller must send exactly one request under the number."""
        self._futures: dict[int, asyncio.Future[Answer]] = {}
        self._abandoned: set[int] = set()
        self._closed: ConnectionClosedError | None = None

    def expect(self, seq_num: int) -> asyncio.Future[Answer]:
        """A future for the answer to ``seq_num``. Raises ``ConnectionClosedError``."""
        if self._closed is not None:
            raise ConnectionClosedError(str(self._closed))
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._futures[seq_num] = future
        return future

    async def wait(self, seq_num: int, future: asyncio.Future[Answer]) -> Answer:
        """The answer to ``seq_num``. The deadline is checked elsewhere, by a call of :meth:`fail`.

        Raises the error of that call, or ``ConnectionClosedError``.
        """
        try:
            return await future
        finally:
            self._forget(seq_num)

    async def wait_while_moving(
        self,
        seq_num: int,
        future: asyncio.Future[Answer],
        timeout_s: float,
        what: str,
        channel: Moving,
        min_progress_bytes: int = MIN_PROGRESS_BYTES,
    ) -> Answer:
        """The answer to ``seq_num``; the deadline moves as long as enough bytes move on the channel.

        Raises ``DeadlineExceededError`` (naming ``what``), ``ConnectionClosedError``.
        """
        try:
            return await while_moving(future, channel, timeout_s, min_progress_bytes)
        except TimeoutError:
            raise DeadlineExceededError(f"{self._peer} did not answer {what} within {timeout_s:g} s") from None
        finally:
            self._forget(seq_num)

    def _forget(self, seq_num: int) -> None:
        """Forget a caller that has returned, with or without the answer."""
        if self._futures.pop(seq_num, None) is not None:
            self.abandon(seq_num)

    def fail(self, seq_num: int, error: Exception) -> None:
        """Raise ``error`` in the caller instead of an answer. Without a caller nothing happens."""
        future = self._futures.pop(seq_num, None)
        if future is not None:
            self.abandon(seq_num)
            if not future.done():
                future.set_exception(error)

    def abandon(self, seq_num: int) -> None:
        """Mark the request as abandoned."""
        if self._closed is None:
            self._abandoned.add(seq_num)

    @property
    def owes_any(self) -> bool:
        """Whether an abandoned request is unanswered."""
        return bool(self._abandoned)

    @property
    def owes_too_much(self) -> bool:
        """Whether too many abandoned requests are unanswered, so that the connection should be closed."""
        return len(self._abandoned) > MAX_ABANDONED

    def resolve(self, seq_num: int, answer: Answer) -> None:
        """Hand over an answer. Raises ``ProtocolError`` if there is no request of that number."""
        future = self._futures.pop(seq_num, None)
        if future is not None:
            if future.cancelled():
                return
            future.set_result(answer)
        elif seq_num in self._abandoned:
            self._abandoned.remove(seq_num)
        else:
            raise ProtocolError(f"{self._peer} answered request {seq_num}, which was never sent or is answered already")

    def close(self, error: ConnectionClosedError) -> None:
        """Raise ``error`` in every waiting caller, and in all later callers."""
        self._closed = error
        futures, self._futures = self._futures, {}
        self._abandoned.clear()
        for future in futures.values():
            if not future.done():
                future.set_exception(ConnectionClosedError(str(error)))
