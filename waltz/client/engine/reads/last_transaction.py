"""Questions for the last transaction of one partition, with or without a fence (version 5)."""

import asyncio
from collections.abc import Callable

from waltz.client.engine.links.links import ServerLink
from waltz.client.errors import ClientClosedError, SessionNotSupportedError
from waltz.common.errors import WaltzError
from waltz.common.wire.client_server import encode
from waltz.common.wire.versions import FIRST_WITH_WRITE_SESSION
from waltz.common.wire.write_sessions import FenceOption, LastTransactionIdRequest, LastTransactionIdResponse

Answer = asyncio.Future[LastTransactionIdResponse]


class _Question:
    __slots__ = ("answer", "expected_session", "fence")

    def __init__(self, fence: FenceOption, expected_session: int, answer: Answer) -> None:
        self.fence = fence
        self.expected_session = expected_session
        self.answer = answer


class LastTransactionQuestions:
    """Sends the questions, and matches the answers by request id.

    When a connection breaks, its questions are sent again over the next connection, so a fence may be carried out
    twice. Over one connection a question is never sent twice: a server answers each question, and a slow server would
    fence again.
    """

    def __init__(self, partition_id: int, next_req_id: Callable[[], bytes]) -> None:
        self._partition_id = partition_id
        self._next_req_id = next_req_id
        self._unsent: list[_Question] = []
        self._sent: dict[bytes, _Question] = {}

    @property
    def unsent(self) -> bool:
        """Whether a question waits for a connection."""
        return bool(self._unsent)

    @property
    def idle(self) -> bool:
        """Whether there is no question."""
        return not (self._unsent or self._sent)

    def add(self, fence: FenceOption, expected_session: int) -> Answer:
        """Add a question. It may end with ``SessionNotSupportedError`` or ``ClientClosedError``."""
        answer: Answer = asyncio.get_running_loop().create_future()
        self._unsent.append(_Question(fence, expected_session, answer))
        return answer

    def sent(self, answer: Answer) -> bool:
        """Whether the question of this answer may have reached a server."""
        return any(question.answer is answer for question in self._sent.values())

    def send(self, link: ServerLink) -> None:
        """Send waiting questions with a caller."""
        channel = link.channel
        assert channel is not None
        unsent, self._unsent = self._unsent, []
        for question in unsent:
            if question.answer.done():
                continue
            if channel.version < FIRST_WITH_WRITE_SESSION:
                question.answer.set_exception(SessionNotSupportedError(self._partition_id))
                continue
            req_id = self._next_req_id()
            self._sent[req_id] = question
            message = LastTransactionIdRequest(req_id, question.fence, question.expected_session)
            channel.send(encode(message, channel.version))
            link.expect_answer()

    def unsend(self) -> None:
        """There is a new connection: all questions have to be sent again."""
        self._unsent = [*self._sent.values(), *self._unsent]
        self._sent.clear()

    def response(self, message: LastTransactionIdResponse) -> None:
        """Take an answer of the server. An answer without a waiting call is ignored."""
        question = self._sent.pop(message.req_id, None)
        if question is not None and not question.answer.done():
            question.answer.set_result(message)

    def refused(self, req_id: bytes, error: WaltzError) -> bool:
        """The client lacks the right to the answer. False if that concerns another request."""
        question = self._sent.pop(req_id, None)
        if question is not None and not question.answer.done():
            question.answer.set_exception(error)
        return question is not None

    def close(self) -> None:
        """End all questions with ``ClientClosedError``."""
        for question in (*self._sent.values(), *self._unsent):
            if not question.answer.done():
                question.answer.set_exception(ClientClosedError())
        self._sent.clear()
        self._unsent.clear()
