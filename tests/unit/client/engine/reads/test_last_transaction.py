"""Questions for the last transaction: sent once per connection, matched by request id."""

import itertools
from typing import cast

import pytest

from waltz.client.engine.links.links import ServerLink
from waltz.client.engine.reads.last_transaction import LastTransactionQuestions
from waltz.client.errors import ClientClosedError, SessionNotSupportedError
from waltz.common.ids import ReqId
from waltz.common.wire.client_server import decode
from waltz.common.wire.frames import FRAME_HEADER_SIZE_BYTES
from waltz.common.wire.write_sessions import (
    FenceOption,
    LastTransactionIdRequest,
    LastTransactionIdResponse,
    LastTransactionStatus,
)


class Line:
    """A link and its channel."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.channel = self
        self.requests: list[LastTransactionIdRequest] = []
        self.expected = 0

    def send(self, frame: bytes) -> None:
        message = decode(frame, FRAME_HEADER_SIZE_BYTES, len(frame), self.version)
        assert isinstance(message, LastTransactionIdRequest)
        self.requests.append(message)

    def expect_answer(self) -> None:
        self.expected += 1

    @property
    def link(self) -> ServerLink:
        return cast("ServerLink", self)


def new() -> LastTransactionQuestions:
    numbers = itertools.count(1)
    return LastTransactionQuestions(3, lambda: ReqId.of(7, 1, 3, next(numbers)))


def answered(request: LastTransactionIdRequest) -> LastTransactionIdResponse:
    return LastTransactionIdResponse(request.req_id, LastTransactionStatus.OK, 9, 6)


async def test_each_is_sent_once_on_one_connection_and_again_on_the_next() -> None:
    questions, line = new(), Line(5)
    assert questions.idle
    answer = questions.add(FenceOption.FENCE, 4)
    assert questions.unsent
    questions.send(line.link)
    questions.send(line.link)
    assert [(request.fence, request.expected_session) for request in line.requests] == [(FenceOption.FENCE, 4)]
    assert line.expected == 1
    questions.unsend()
    other = Line(5)
    questions.send(other.link)
    questions.response(answered(line.requests[0]))
    assert not answer.done(), "an answer of the connection before"
    questions.response(answered(other.requests[0]))
    assert (await answer).transaction_id == 9
    assert questions.idle


async def test_what_nobody_waits_for_is_not_sent_again() -> None:
    questions, line = new(), Line(5)
    answer = questions.add(FenceOption(0), -1)
    questions.send(line.link)
    answer.cancel()
    questions.unsend()
    questions.send(line.link)
    assert len(line.requests) == 1
    questions.response(answered(line.requests[0]))


@pytest.mark.parametrize("version", range(5))
async def test_older_servers_are_not_asked(version: int) -> None:
    questions, line = new(), Line(version)
    answer = questions.add(FenceOption.FENCE, -1)
    questions.send(line.link)
    assert line.requests == []
    with pytest.raises(SessionNotSupportedError, match="partition 3"):
        await answer


async def test_closing_ends_what_was_sent_and_what_was_not() -> None:
    questions, line = new(), Line(5)
    sent = questions.add(FenceOption.FENCE, -1)
    questions.send(line.link)
    unsent = questions.add(FenceOption.FENCE, -1)
    questions.close()
    for answer in (sent, unsent):
        with pytest.raises(ClientClosedError):
            await answer
    assert questions.idle
