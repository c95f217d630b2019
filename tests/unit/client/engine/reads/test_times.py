"""Questions about times: repeated until they are answered, and refused where nobody can answer."""

import asyncio
import itertools
from typing import cast

import pytest

from tests.unit.client.engine.reads.test_marks import Line
from waltz.client.engine.links.links import ServerLink
from waltz.client.engine.reads.times import Entry, TimeQuestions
from waltz.client.errors import ClientClosedError, TimesNotSupportedError
from waltz.common.errors import WaltzError
from waltz.common.ids import ReqId
from waltz.common.wire.client_times import TimeRequest, TimeResponse, TimeStatus
from waltz.common.wire.storage_times import TimeQuestion

AT, COVERING = TimeQuestion
OK, NOT_READY, NOT_ANSWERED, NOT_KEPT = TimeStatus


class Setup:
    def __init__(self, version: int = 6) -> None:
        self.line: Line | None = Line(version)
        numbers = itertools.count(1)
        self.questions = TimeQuestions(
            3,
            resend_s=2.0,
            next_req_id=lambda: ReqId.of(7, 1, 3, next(numbers)),
            present_link=lambda: cast("ServerLink | None", self.line),
        )

    @property
    def sent(self) -> list[TimeRequest]:
        assert self.line is not None
        return cast("list[TimeRequest]", self.line.requests)

    async def ask(self, value: int = 1000, wanted: TimeQuestion = AT) -> asyncio.Task[Entry]:
        asking = asyncio.create_task(self.questions.entry(wanted, value))
        await asyncio.sleep(0)
        return asking


async def test_each_call_gets_the_answer_to_its_question() -> None:
    setup = Setup()
    first, second = await setup.ask(1000), await setup.ask(5, COVERING)
    assert [request[1:] for request in setup.sent] == [(AT, 1000), (COVERING, 5)]
    setup.questions.answered(TimeResponse(setup.sent[1].req_id, OK, 9, 90))
    setup.questions.answered(TimeResponse(setup.sent[0].req_id, OK, -1, -1))
    setup.questions.answered(TimeResponse(setup.sent[0].req_id, OK, 8, 80))
    setup.questions.answered(TimeResponse(ReqId.of(7, 1, 3, 99), OK, 8, 80))
    assert (await first, await second) == ((-1, -1), (9, 90))
    assert setup.questions.idle


@pytest.mark.parametrize("status", [NOT_READY, NOT_ANSWERED])
async def test_who_cannot_answer_is_asked_again_soon(status: TimeStatus) -> None:
    setup = Setup()
    asking = await setup.ask()
    now_s = asyncio.get_running_loop().time()
    setup.questions.sweep(now_s + 1)
    assert len(setup.sent) == 1
    setup.questions.answered(TimeResponse(setup.sent[0].req_id, status, -1, -1))
    setup.questions.sweep(now_s + 1)
    assert len(setup.sent) == 2
    setup.questions.sweep(now_s + 10)
    setup.questions.resend()
    assert len(setup.sent) == 4
    setup.questions.answered(TimeResponse(setup.sent[3].req_id, OK, 8, 80))
    assert await asking == (8, 80)


async def test_who_does_not_know_times_is_named() -> None:
    setup = Setup(version=5)
    with pytest.raises(TimesNotSupportedError, match="the server of partition 3 is too old"):
        await (await setup.ask())
    setup = Setup()
    asking = await setup.ask()
    setup.questions.answered(TimeResponse(setup.sent[0].req_id, NOT_KEPT, -1, -1))
    with pytest.raises(TimesNotSupportedError, match="no storage of partition 3 keeps times"):
        await asking


async def test_who_lacks_the_right_is_told() -> None:
    setup = Setup()
    asking = await setup.ask()
    assert not setup.questions.refused(ReqId.of(7, 1, 3, 99), WaltzError("no"))
    assert setup.questions.refused(setup.sent[0].req_id, WaltzError("may not"))
    with pytest.raises(WaltzError, match="may not"):
        await asking


async def test_calls_end_with_the_client_and_without_a_caller() -> None:
    setup = Setup()
    setup.line = None
    first, second = await setup.ask(), await setup.ask()
    first.cancel()
    await asyncio.wait([first])
    setup.questions.close()
    with pytest.raises(ClientClosedError):
        await second
    assert setup.questions.idle
