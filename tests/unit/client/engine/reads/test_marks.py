"""Questions for marks: whom an answer is for, and what is asked of servers that do not confirm their mark."""

import asyncio
import itertools
from typing import cast

import pytest

from waltz.client.engine.links.links import ServerLink
from waltz.client.engine.reads.marks import MarkQuestions
from waltz.client.errors import ClientClosedError, ConfirmedMarkNotSupportedError
from waltz.common.ids import ReqId
from waltz.common.wire.client_server import HighWaterMarkRequest, Message, decode
from waltz.common.wire.confirmed_marks import ConfirmedMarkRequest
from waltz.common.wire.frames import FRAME_HEADER_SIZE_BYTES


class Line:
    """A link and its channel."""

    def __init__(self, version: int = 6) -> None:
        self.version = version
        self.channel = self
        self.requests: list[Message] = []
        self.expected = 0

    def send(self, frame: bytes) -> None:
        self.requests.append(decode(frame, FRAME_HEADER_SIZE_BYTES, len(frame), self.version))

    def expect_answer(self) -> None:
        self.expected += 1


class Setup:
    def __init__(self, *, confirmed: bool = True) -> None:
        self.line: Line | None = Line()
        numbers = itertools.count(1)
        self.questions = MarkQuestions(
            3,
            confirmed=confirmed,
            resend_s=2.0,
            next_req_id=lambda: ReqId.of(7, 1, 3, next(numbers)),
            present_link=lambda: cast("ServerLink | None", self.line),
        )

    @property
    def sent(self) -> list[Message]:
        assert self.line is not None
        return self.line.requests

    async def ask(self) -> asyncio.Task[int]:
        asking = asyncio.create_task(self.questions.mark())
        await asyncio.sleep(0)
        return asking


@pytest.mark.parametrize(("confirmed", "kind"), [(False, HighWaterMarkRequest), (True, ConfirmedMarkRequest)])
async def test_who_waits_when_it_is_sent_shares_a_question_and_who_comes_later_has_another(
    confirmed: bool, kind: type[Message]
) -> None:
    setup = Setup(confirmed=confirmed)
    first, second, third = await setup.ask(), await setup.ask(), await setup.ask()
    assert [type(request) for request in setup.sent] == [kind]
    setup.questions.answered(setup.sent[0].req_id, 7)
    assert await first == 7
    assert not second.done()
    assert len(setup.sent) == 2, "for both that came while the first was under way"
    setup.questions.answered(setup.sent[0].req_id, 7)
    await asyncio.sleep(0)
    assert not second.done(), "an answer that was on its way before they asked"
    setup.questions.answered(setup.sent[1].req_id, 9)
    assert (await second, await third) == (9, 9)
    assert setup.questions.idle


async def give_up(*calls: asyncio.Task[int]) -> None:
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


async def test_an_answer_to_a_call_that_was_given_up_is_none_for_a_later_call() -> None:
    setup = Setup()
    await give_up(await setup.ask())
    asking = await setup.ask()
    assert len(setup.sent) == 2
    setup.questions.answered(setup.sent[0].req_id, 7)
    await asyncio.sleep(0)
    assert not asking.done(), "more may have been committed between the two questions"
    setup.questions.answered(setup.sent[1].req_id, 9)
    assert await asking == 9
    assert setup.questions.idle


async def test_calls_that_wait_for_the_next_question_get_theirs_when_the_callers_of_the_last_give_up() -> None:
    setup = Setup()
    first, second, third = await setup.ask(), await setup.ask(), await setup.ask()
    await give_up(first, second)
    assert len(setup.sent) == 2
    setup.questions.answered(setup.sent[0].req_id, 7)
    await asyncio.sleep(0)
    assert not third.done()
    setup.questions.answered(setup.sent[1].req_id, 9)
    assert await third == 9
    assert setup.questions.idle


async def test_what_is_not_answered_is_asked_again() -> None:
    setup = Setup()
    asking = await setup.ask()
    now_s = asyncio.get_running_loop().time()
    setup.questions.sweep(now_s)
    assert len(setup.sent) == 1
    setup.questions.sweep(now_s + 3)
    assert len(setup.sent) == 2
    setup.questions.answered(setup.sent[1].req_id, None)
    setup.questions.sweep(asyncio.get_running_loop().time())
    assert len(setup.sent) == 3, "the server had no mark to tell"
    setup.line = Line()
    setup.questions.resend()
    assert len(setup.sent) == 1, "over the new connection"
    setup.questions.answered(setup.sent[0].req_id, 5)
    assert await asking == 5


async def test_a_server_that_cannot_confirm_is_not_asked_for_less() -> None:
    setup = Setup()
    setup.line = None
    first, second = await setup.ask(), await setup.ask()
    setup.line = Line(5)
    setup.questions.resend()
    assert setup.sent == []
    for asking in (first, second):
        with pytest.raises(ConfirmedMarkNotSupportedError, match="partition 3 is too old to confirm"):
            await asking
    assert setup.questions.idle
    with pytest.raises(ConfirmedMarkNotSupportedError):
        await setup.questions.mark()


async def test_the_end() -> None:
    setup = Setup()
    asking, cancelled = await setup.ask(), await setup.ask()
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    setup.questions.close()
    with pytest.raises(ClientClosedError):
        await asking
    assert setup.questions.idle
