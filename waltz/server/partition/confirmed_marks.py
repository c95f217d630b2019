"""Questions for a high-water mark that is confirmed by a quorum of the storages.

A mark from before a question is no answer to the question: another server may have owned the partition and committed
more transactions meanwhile. So the questions of one turn of the event loop share one confirmation. Questions that
arrive during a confirmation wait for the next one.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from waltz.common.ids import LONG_MIN, NO_TRANSACTION
from waltz.common.tasks import owned
from waltz.common.wire.client_server import HighWaterMarkRequest, HighWaterMarkResponse
from waltz.common.wire.confirmed_marks import ConfirmedMarkRequest, ConfirmedMarkResponse, ConfirmedMarkStatus
from waltz.server.requests.link import ClientLink

logger = logging.getLogger(__name__)

_Question = tuple[ClientLink, ConfirmedMarkRequest | HighWaterMarkRequest]


class ConfirmedMarks:
    """The questions of one partition. Each is answered once, within the time limit."""

    def __init__(
        self, partition_id: int, confirmed_mark: Callable[[], Awaitable[int | None]], max_waiting: int
    ) -> None:
        """``confirmed_mark`` returns, in limited time, the mark at a moment after the call; ``None``: the mark could
        not be confirmed. Questions beyond ``max_waiting`` at a time are answered "not confirmed"."""
        self._partition_id = partition_id
        self._confirmed_mark = confirmed_mark
        self._max_waiting = max_waiting
        self._questions: list[_Question] = []
        self._rounds: asyncio.Task[None] | None = None

    def ask(self, link: ClientLink, request: ConfirmedMarkRequest | HighWaterMarkRequest) -> None:
        """Answer with a mark from after this moment, or with "not confirmed". Also for questions about unconfirmed
        marks."""
        if len(self._questions) >= self._max_waiting:
            _refuse([(link, request)], ConfirmedMarkStatus.NOT_CONFIRMED)
            return
        self._questions.append((link, request))
        if self._rounds is None:
            self._rounds = owned(self._answer(), f"confirmation of the mark of partition {self._partition_id}")

    async def close(self) -> None:
        """The partition has left this server; answer all questions with that."""
        rounds, self._rounds = self._rounds, None
        if rounds is not None:
            rounds.cancel()
            await asyncio.gather(rounds, return_exceptions=True)
        self._refuse_all()

    def _refuse_all(self) -> None:
        questions, self._questions = self._questions, []
        _refuse(questions, ConfirmedMarkStatus.NOT_READY)

    async def _answer(self) -> None:
        questions: list[_Question] = []
        try:
            while self._questions:
                questions, self._questions = self._questions, []
                mark = await self._confirmed_mark()
                if mark is None:
                    _refuse(questions, ConfirmedMarkStatus.NOT_CONFIRMED)
                else:
                    for question in questions:
                        _tell(question, ConfirmedMarkStatus.OK, mark)
                questions = []
        finally:
            _refuse(questions, ConfirmedMarkStatus.NOT_READY)
            if self._rounds is asyncio.current_task():
                self._rounds = None
                self._refuse_all()  # after a defect


def refuse_confirmed_mark(link: ClientLink, request: ConfirmedMarkRequest) -> None:
    """Refuse: the partition is not at this server, or the client may not read its marks."""
    _refuse([(link, request)], ConfirmedMarkStatus.NOT_READY)


def _refuse(questions: list[_Question], status: ConfirmedMarkStatus) -> None:
    for question in questions:
        _tell(question, status, None)


def _tell(question: _Question, status: ConfirmedMarkStatus, mark: int | None) -> None:
    link, request = question
    if isinstance(request, ConfirmedMarkRequest):
        link.send(ConfirmedMarkResponse(request.req_id, status, NO_TRANSACTION if mark is None else mark))
    else:
        link.send(HighWaterMarkResponse(request.req_id, LONG_MIN if mark is None else mark))
