"""What is told of appends whose outcome somebody awaits."""

import asyncio
from typing import cast

import pytest

import waltz
from tests.unit.client.fake_server import until
from waltz.client.awaited import AwaitedSubmission
from waltz.client.engine.partition.appends import PartitionAppends
from waltz.client.engine.submission import AppendFields
from waltz.client.errors import ClientClosedError, ClientTimeoutError
from waltz.client.mock import MockDriver
from waltz.common.errors import ProtocolError, WaltzError

SENT = AppendFields(b"data", 0, -1)


class Appends:
    """What keeps appends from being sent."""

    obstacle: WaltzError | None = None


class Awaited(AwaitedSubmission[int]):
    def build(self, high_water_mark: int) -> AppendFields:
        return SENT

    def withdrawn(self) -> None:
        raise AssertionError

    def refused(self, transaction_id: int) -> None:
        raise AssertionError


def awaited(appends: Appends | None = None, *, sent: bool = False) -> Awaited:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    made = Awaited(cast("PartitionAppends", appends or Appends()), future, now_s=10.0, timeout_s=0.5)
    if sent:
        made.sent = SENT.data
    return made


async def test_it_waits_until_its_deadline() -> None:
    assert awaited().waits_until_s == 10.5


async def test_what_was_sent_may_be_committed_and_what_was_not_is_not() -> None:
    for cause in (ClientClosedError(), ProtocolError("no such locks"), TimeoutError("late")):
        known, unknown = awaited().outcome(cause), awaited(sent=True).outcome(cause)
        assert isinstance(known, waltz.NotAppendedError)
        assert isinstance(unknown, waltz.OutcomeUnknownError)
        assert known.__cause__ is unknown.__cause__ is cause
        assert str(cause) in str(known)


async def test_errors_that_say_it_themselves_are_told_as_they_are() -> None:
    for cause in (waltz.LockConflict(0, 5), waltz.TransactionTooLargeError("large"), ValueError("wrong")):
        assert awaited().outcome(cause) is cause


async def test_at_the_deadline_it_is_told_what_was_in_the_way() -> None:
    appends = Appends()
    submission = awaited(appends)
    appends.obstacle = waltz.ConnectFailedError("refused")
    submission.failed(ClientTimeoutError("not mounted"))
    submission.expire()
    submission.failed(ClientClosedError())
    with pytest.raises(waltz.NotAppendedError, match=r"no outcome within 0.5 s: refused; .*not in the log") as raised:
        await submission.future
    assert isinstance(raised.value.__cause__, TimeoutError)
    assert raised.value.__cause__.__cause__ is appends.obstacle


async def test_what_is_abandoned_is_not_complained_of() -> None:
    pending, failed = awaited(), awaited()
    failed.failed(ClientClosedError())
    for submission in (pending, failed):
        submission.abandon()
        submission.abandon()
        assert submission.future.done()


async def test_one_that_is_cancelled_in_the_turn_of_its_commit_is_not_called_unsent() -> None:
    driver = MockDriver()
    async with waltz.connect(driver) as client:
        await client.append(0, b"a")
        driver.suspend_feed()
        task = asyncio.create_task(client.append(0, b"b"))
        assert client._engine is not None
        partition = client._engine.partitions[0]
        await until(lambda: partition.appends.monitor.oldest is not None)
        req_id = partition.appends.monitor.oldest
        assert req_id is not None
        submission = partition.appends.take_committed(req_id)
        assert submission is not None
        submission.committed(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as raised:
            await task
        assert raised.value.__notes__ == ["The transaction was sent; whether it is committed is not known."]
        driver.resume_feed()
