"""The limits of submissions, and the queue of those that failed."""

import asyncio
import random

import pytest

from tests.unit.client.application import Context
from tests.unit.client.fake_server import until
from waltz.client.callbacks import ContextSubmission
from waltz.client.engine.submission import AppendFields, Limits, RetryQueue, Submission, tell_failure
from waltz.client.errors import TransactionTooLargeError
from waltz.client.locks import PartitionLocalLock, lock_array
from waltz.client.options import ClientOptions
from waltz.client.retry_policy import RetryPolicy


def test_limits_hold_for_data_and_for_all_locks_together() -> None:
    one = lock_array([PartitionLocalLock("a", 1)])
    fields = AppendFields(b"12", 0, -1, one, one, one)
    Limits(2, 3).check(fields)
    with pytest.raises(TransactionTooLargeError, match="has 2 bytes; client.maxTransactionSize is 1"):
        Limits(1, 3).check(fields)
    with pytest.raises(TransactionTooLargeError, match="names 3 locks; client.maxLocksPerTransaction is 2"):
        Limits(2, 2).check(fields)


def submission(failures: int = 1) -> Submission:
    result = ContextSubmission(Context())
    result.failures = failures
    result.first_failed_at_s = asyncio.get_running_loop().time()
    return result


async def test_the_order_is_kept_and_one_is_attempted_at_a_time() -> None:
    attempted: list[Submission] = []
    active = 0

    async def attempt(each: Submission, since_s: float) -> None:
        nonlocal active
        active += 1
        assert active == 1
        await asyncio.sleep(0)
        active -= 1
        attempted.append(each)

    queue = RetryQueue(attempt, ClientOptions(), random.Random(0))
    wanted = [submission() for _ in range(10)]
    for each in wanted:
        queue.add(each)
    await until(lambda: len(attempted) == 10)
    assert attempted == wanted
    assert await queue.close(None) == []


async def test_who_fails_again_and_again_waits() -> None:
    attempted: list[Submission] = []

    async def attempt(each: Submission, since_s: float) -> None:
        attempted.append(each)

    options = ClientOptions(retry_policy=RetryPolicy(initial_delay_s=1000.0, maximum_delay_s=1000.0))
    queue = RetryQueue(attempt, options, random.Random(0))
    patient, quick = submission(3), submission(2)
    queue.add(patient)
    queue.add(quick)
    await until(lambda: attempted == [quick])
    assert await queue.close(None) == [patient]


async def test_delays_grow_to_a_limit() -> None:
    async def attempt(each: Submission, since_s: float) -> None:
        raise AssertionError("nothing is attempted here")

    loop = asyncio.get_running_loop()
    options = ClientOptions(retry_policy=RetryPolicy(initial_delay_s=1000.0, maximum_delay_s=5000.0))
    queue = RetryQueue(attempt, options, random.Random(0))
    now_s = loop.time()
    for failures, at_most_s in ((3, 2000), (4, 4000), (5, 5000), (1000, 5000)):
        each = submission(failures)
        queue.add(each)
        delay_s = queue._delayed[each].when() - now_s
        assert at_most_s / 2 <= delay_s <= at_most_s + 60
    assert len(await queue.close(None)) == 4


async def test_closing_cancels_the_attempt_under_way() -> None:
    cancelled = asyncio.Event()

    async def attempt(each: Submission, since_s: float) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    queue = RetryQueue(attempt, ClientOptions(), random.Random(0))
    first, second = submission(), submission()
    queue.add(first)
    queue.add(second)
    await asyncio.sleep(0)
    assert await queue.close(None) == [second]
    assert cancelled.is_set()


async def test_a_defect_in_one_attempt_does_not_hold_up_those_behind_it(caplog: pytest.LogCaptureFixture) -> None:
    attempted: list[Submission] = []
    first, *rest = [submission() for _ in range(3)]

    async def attempt(each: Submission, since_s: float) -> None:
        if each is first:
            raise ArithmeticError("planted")
        attempted.append(each)

    queue = RetryQueue(attempt, ClientOptions(), random.Random(0))
    for each in (first, *rest):
        queue.add(each)
    await until(lambda: attempted == rest)
    assert "planted" in caplog.text
    assert await queue.close(None) == []


async def test_an_attempt_that_cancels_its_task_does_not_hold_up_those_behind_it() -> None:
    attempted: list[Submission] = []
    first, *rest = [submission() for _ in range(3)]

    async def attempt(each: Submission, since_s: float) -> None:
        if each is first:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
        attempted.append(each)

    queue = RetryQueue(attempt, ClientOptions(), random.Random(0))
    for each in (first, *rest):
        queue.add(each)
    await until(lambda: attempted == rest)
    assert await queue.close(None) == []


async def test_a_context_is_not_blamed_when_the_loop_is_closed_under_it(caplog: pytest.LogCaptureFixture) -> None:
    class Slow(Context):
        def on_exception(self, error: Exception) -> asyncio.Future[None]:
            return asyncio.get_running_loop().create_future()

    telling = tell_failure(ContextSubmission(Slow()), ValueError("on purpose"))
    telling.send(None)
    telling.close()
    assert not caplog.records
