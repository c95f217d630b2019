"""Questions for the high-water mark of one partition: for the mark of the server, or for a confirmed mark."""

import asyncio
from collections.abc import Callable

from waltz.client.engine.links.links import ServerLink
from waltz.client.errors import ClientClosedError, ConfirmedMarkNotSupportedError
from waltz.common.errors import WaltzError
from waltz.common.wire.client_server import HighWaterMarkRequest, encode
from waltz.common.wire.confirmed_marks import ConfirmedMarkRequest
from waltz.common.wire.versions import FIRST_WITH_CONFIRMED_MARK


class MarkQuestions:
    """The questions for one kind of mark. All calls that wait when a request is sent get its answer. Later calls need
    another request."""

    def __init__(
        self,
        partition_id: int,
        *,
        confirmed: bool,
        resend_s: float,
        next_req_id: Callable[[], bytes],
        present_link: Callable[[], ServerLink | None],
    ) -> None:
        """An unanswered request is repeated after ``resend_s``. ``present_link`` returns the link to the server."""
        self._partition_id = partition_id
        self._confirmed = confirmed
        self._resend_s = resend_s
        self._next_req_id = next_req_id
        self._present_link = present_link
        self._loop = asyncio.get_running_loop()
        self._asked: list[asyncio.Future[int]] = []
        self._wanted: list[asyncio.Future[int]] = []
        self._req_ids: list[bytes] = []
        self._due_at_s = 0.0

    @property
    def idle(self) -> bool:
        """Whether no call waits."""
        return not (self._asked or self._wanted)

    async def mark(self) -> int:
        """The answer to a question that is sent after this call.

        Raises ``ClientClosedError``, ``TlsRefusedError``, and ``ConfirmedMarkNotSupportedError`` for a confirmed mark
        of an older server.
        """
        waiter: asyncio.Future[int] = self._loop.create_future()
        self._wanted.append(waiter)
        if not self._asked:
            self._ask()
        try:
            return await waiter
        finally:
            for waiters in (self._asked, self._wanted):
                if waiter in waiters:
                    waiters.remove(waiter)
            if self._wanted and not self._asked:  # all callers of the present request have given up
                self._ask()

    def answered(self, req_id: bytes, mark: int | None) -> None:
        """Take an answer. ``None``: the server does not know its mark, and has to be asked again."""
        if req_id not in self._req_ids:
            return  # the answer to a request that is older than the present calls
        if mark is None:
            self._due_at_s = self._loop.time()
            return
        answered, self._asked = self._asked, []
        self._req_ids = []
        for waiter in answered:
            if not waiter.done():
                waiter.set_result(mark)
        if self._wanted:
            self._ask()

    def refused(self, req_id: bytes, error: WaltzError) -> bool:
        """The client lacks the right to the answer. False if that concerns another request."""
        known = req_id in self._req_ids
        if known:
            self._fail(error)
        return known

    def resend(self) -> None:
        """The connection is a new one, or there is none."""
        if self._asked:
            self._send()

    def sweep(self, now_s: float) -> None:
        """Repeat questions that will not be answered. Called regularly."""
        if self._asked and now_s >= self._due_at_s:
            self._send()

    def close(self) -> None:
        """Fail all waiting calls with ``ClientClosedError``."""
        self._fail(ClientClosedError())

    def _ask(self) -> None:
        # An answer to a request of callers that have given up is older than these calls.
        self._asked, self._wanted, self._req_ids = self._wanted, [], []
        self._send()

    def _send(self) -> None:
        link = self._present_link()
        self._due_at_s = self._loop.time() + self._resend_s
        if link is None:
            return
        if link.channel is None:
            if link.refusal is not None:
                self._fail(link.refusal)
            return
        version = link.channel.version
        if self._confirmed and version < FIRST_WITH_CONFIRMED_MARK:
            self._fail(ConfirmedMarkNotSupportedError(self._partition_id))
            return
        req_id = self._next_req_id()
        self._req_ids.append(req_id)
        request = ConfirmedMarkRequest(req_id) if self._confirmed else HighWaterMarkRequest(req_id)
        link.channel.send(encode(request, version))
        link.expect_answer()

    def _fail(self, error: Exception) -> None:
        waiters = (*self._asked, *self._wanted)
        self._asked, self._wanted, self._req_ids = [], [], []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)
