"""Questions for confirmed marks, against storages that confirm when they are told to."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.unit.server.fakes import PartitionSetup, channel_of, new_link, req_id, take
from waltz.common.ids import LONG_MIN, NO_TRANSACTION
from waltz.common.wire.client_server import HighWaterMarkRequest, HighWaterMarkResponse
from waltz.common.wire.confirmed_marks import ConfirmedMarkRequest, ConfirmedMarkResponse, ConfirmedMarkStatus
from waltz.server.partition.confirmed_marks import ConfirmedMarks

OK, NOT_READY, NOT_CONFIRMED = ConfirmedMarkStatus


def question(number: int) -> ConfirmedMarkRequest:
    return ConfirmedMarkRequest(req_id(number))


def told(number: int, status: ConfirmedMarkStatus, mark: int = NO_TRANSACTION) -> ConfirmedMarkResponse:
    return ConfirmedMarkResponse(req_id(number), status, mark)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Storages:
    """What a confirmation finds out is decided by the test."""

    def __init__(self) -> None:
        self.rounds: list[asyncio.Future[int | None]] = []

    async def confirmed_mark(self) -> int | None:
        self.rounds.append(asyncio.get_running_loop().create_future())
        return await self.rounds[-1]


class Setup:
    def __init__(self) -> None:
        self.storages = Storages()
        self.marks = ConfirmedMarks(0, self.storages.confirmed_mark, max_waiting=3)
        self.link = new_link(version=6)

    def ask(self, *numbers: int) -> None:
        for number in numbers:
            self.marks.ask(self.link, question(number))


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    made = Setup()
    yield made
    await made.marks.close()


async def test_who_asks_in_one_turn_shares_a_confirmation_and_who_comes_later_gets_the_next(setup: Setup) -> None:
    setup.ask(1, 2)
    await settle()
    setup.ask(3)
    await settle()
    (first,) = setup.storages.rounds
    first.set_result(7)
    await settle()
    assert take(setup.link) == [told(1, OK, 7), told(2, OK, 7)]
    setup.storages.rounds[1].set_result(9)
    await settle()
    assert take(setup.link) == [told(3, OK, 9)]
    setup.ask(4)
    await settle()
    assert len(setup.storages.rounds) == 3, "nothing that was confirmed before"


async def test_a_mark_that_is_not_confirmed_is_not_told(setup: Setup) -> None:
    setup.ask(1)
    await settle()
    setup.storages.rounds[0].set_result(None)
    await settle()
    assert take(setup.link) == [told(1, NOT_CONFIRMED)]


async def test_not_more_wait_than_allowed(setup: Setup) -> None:
    setup.ask(1)
    await settle()
    setup.ask(2, 3, 4, 5)
    assert take(setup.link) == [told(5, NOT_CONFIRMED)]


async def test_everybody_is_told_when_the_partition_goes(setup: Setup) -> None:
    setup.ask(1)
    await settle()
    setup.ask(2)
    await setup.marks.close()
    assert take(setup.link) == [told(1, NOT_READY), told(2, NOT_READY)]


async def test_a_defect_is_told_to_those_who_wait_and_to_nobody_else(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    setup.ask(1)
    await settle()
    setup.ask(2)
    setup.storages.rounds[0].set_exception(ArithmeticError("planted"))
    await settle()
    assert take(setup.link) == [told(1, NOT_READY), told(2, NOT_READY)]
    assert "planted" in caplog.text
    setup.ask(3)
    await settle()
    setup.storages.rounds[1].set_result(7)
    await settle()
    assert take(setup.link) == [told(3, OK, 7)]


async def test_a_client_that_has_gone_is_not_answered(setup: Setup) -> None:
    other = new_link(version=6, client_id=2)
    setup.ask(1)
    setup.marks.ask(other, question(2))
    await settle()
    channel_of(setup.link).abort()
    setup.storages.rounds[0].set_result(7)
    await settle()
    assert take(other) == [told(2, OK, 7)]


async def test_a_partition_tells_what_its_log_confirms() -> None:
    setup, link = PartitionSetup(3), new_link(version=6)
    setup.partition.start()
    setup.log.open_session()
    for number, is_owner in ((1, True), (2, False), (3, True)):
        setup.log.is_owner = is_owner
        setup.partition.ask_confirmed_mark(link, question(number))
        await settle()
    assert take(link) == [told(1, OK, 2), told(2, NOT_CONFIRMED), told(3, OK, 2)]
    setup.partition.ask_confirmed_mark(link, question(4))
    await setup.partition.close()
    assert take(link) == [told(4, NOT_READY)]


async def test_a_server_in_doubt_tells_no_mark_without_a_confirmation() -> None:
    setup, link = PartitionSetup(3), new_link(version=0)
    setup.partition.start()
    setup.log.open_session()
    setup.partition.in_doubt = True
    for number, is_owner in ((1, True), (2, False)):
        setup.log.is_owner = is_owner
        setup.partition.ask_high_water_mark(link, HighWaterMarkRequest(req_id(number)))
        await settle()
    assert take(link) == [HighWaterMarkResponse(req_id(1), 2), HighWaterMarkResponse(req_id(2), LONG_MIN)]
    setup.partition.in_doubt = False
    setup.partition.ask_high_water_mark(link, HighWaterMarkRequest(req_id(3)))
    assert take(link) == [HighWaterMarkResponse(req_id(3), 2)]
    await setup.partition.close()
