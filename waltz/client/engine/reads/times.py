"""Questions about the times of commits in one partition."""

import asyncio
from collections.abc import Callable

from waltz.client.engine.links.links import ServerLink
from waltz.client.errors import ClientClosedError, TimesNotSupportedError
from waltz.common.errors import WaltzError
from waltz.common.wire.client_server import encode
from waltz.common.wire.client_times import TimeRequest, TimeResponse, TimeStatus
from waltz.common.wire.storage_times import TimeQuestion
from waltz.common.wire.versions import FIRST_WITH_TIME

Entry = tuple[int, int]
"""A transaction, and the time by which it was committed, in milliseconds since the epoch; both -1: unknown."""


class _Question:
    __slots__ = ("due_at_s", "req_id", "value", "waiter", "wanted")

    def __init__(self, wanted: TimeQuestion, value: int, waiter: "asyncio.Future[Entry]") -> None:
        self.wanted = wanted
        self.value = value
        self.waiter = waiter
        self.req_id = b""
        self.due_at_s = 0.0


class TimeQuestions:
    """The waiting calls. Each has a request of its own, which is repeated until there is an answer."""

    def __init__(
        self,
        partition_id: int,
        *,
        resend_s: float,
        next_req_id: Callable[[], bytes],
        present_link: Callable[[], ServerLink | None],
    ) -> None:
        """An unanswered request is repeated after ``resend_s``. ``present_link`` returns the link to the server."""
        self._partition_id = partition_id
        self._resend_s = resend_s
        self._next_req_id = next_req_id
        self._present_link = present_link
        self._loop = asyncio.get_running_loop()
        self._open: list[_Question] = []

    @property
    def idle(self) -> bool:
        """Whether no call waits."""
        return not self._open

    async def entry(self, wanted: TimeQuestion, value: int) -> Entry:
        """The answer of the partition's server.

        Raises ``ClientClosedError``, ``TlsRefusedError``, ``NotAuthorizedError``, and ``TimesNotSupportedError`` if the
        server or the storages are too old.
        """
        question = _Question(wanted, value, self._loop.create_future())
        self._open.append(question)
        self._send(question)
        try:
            return await question.waiter
        finally:
            self._open.remove(question)

    def answered(self, message: TimeResponse) -> None:
        """Take an answer. A server that cannot answer now is asked again."""
        question = next((each for each in self._open if each.req_id == message.req_id), None)
        if question is None or question.waiter.done():
            return
        if message.time_status is TimeStatus.OK:
            question.waiter.set_result((message.transaction_id, message.time_ms))
        elif message.time_status is TimeStatus.NOT_KEPT:
            question.waiter.set_exception(TimesNotSupportedError(self._partition_id, storages=True))
        else:
            question.due_at_s = self._loop.time()

    def refused(self, req_id: bytes, error: WaltzError) -> bool:
        """Fail the question with this id. Returns whether there is one."""
        question = next((each for each in self._open if each.req_id == req_id), None)
        if question is not None:
            _fail(question, error)
        return question is not None

    def resend(self) -> None:
        """The connection is a new one, or there is none."""
        for question in self._open:
            self._send(question)

    def sweep(self, now_s: float) -> None:
        """Repeat questions that will not be answered. Called regularly."""
        for question in self._open:
            if now_s >= question.due_at_s:
                self._send(question)

    def close(self) -> None:
        """Fail all waiting calls with ``ClientClosedError``."""
        for question in self._open:
            _fail(question, ClientClosedError())

    def _send(self, question: _Question) -> None:
        link = self._present_link()
        question.due_at_s = self._loop.time() + self._resend_s
        if link is None:
            return
        if link.channel is None:
            if link.refusal is not None:
                _fail(question, link.refusal)
            return
        version = link.channel.version
        if version < FIRST_WITH_TIME:
            _fail(question, TimesNotSupportedError(self._partition_id, storages=False))
            return
        question.req_id = self._next_req_id()
        link.channel.send(encode(TimeRequest(question.req_id, question.wanted, question.value), version))
        link.expect_answer()


def _fail(question: _Question, error: Exception) -> None:
    if not question.waiter.done():
        question.waiter.set_exception(error)
