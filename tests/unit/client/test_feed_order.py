"""Whatever callbacks raise, and whenever: every transaction is applied, in order, and never one before its turn."""

import asyncio
import random
from collections.abc import Awaitable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.client.application import AsyncCallbacks, AsyncContext, Callbacks, Context, World
from tests.unit.client.fake_server import until
from waltz.client.context import TransactionContext, WaltzClientCallbacks
from waltz.client.errors import ClientError
from waltz.client.mock import MockDriver
from waltz.client.options import ClientOptions
from waltz.client.retry_policy import RetryPolicy
from waltz.client.transaction import Transaction
from waltz.common.wire.append_request import AppendRequest
from waltz.common.wire.client_server import LockFailure

pytestmark = pytest.mark.timeout(60)


class Odd(BaseException):
    """No ``Exception``, as those of test frameworks and of other task libraries are."""


_ERRORS: tuple[type[BaseException], ...] = (ValueError, RuntimeError, Odd, asyncio.CancelledError, StopAsyncIteration)
_COUNT = 12


class Trouble:
    """Raises now and then, in all callbacks; plain or async by chance as well."""

    def __init__(self, seed: int, rate: float, kinds: str) -> None:
        self.random = random.Random(seed)
        self.rate = rate
        self.kinds = kinds

    def __call__(self, result: Any = None) -> Any:
        kind = self.random.choice(self.kinds)
        if kind == "s":
            self._raise()
            return result
        return self._later(kind, result)

    async def _later(self, kind: str, result: Any) -> Any:
        if kind == "w":
            await asyncio.sleep(0)
        self._raise()
        return result

    def _raise(self) -> None:
        if self.random.random() < self.rate:
            raise self.random.choice(_ERRORS)


class TroubledCallbacks(WaltzClientCallbacks):
    def __init__(self, trouble: Trouble) -> None:
        self.trouble = trouble
        self.applied: list[int] = []

    def client_high_water_mark(self, partition_id: int) -> int:
        return -1

    def apply_transaction(self, transaction: Transaction) -> Awaitable[None] | None:
        result = self.trouble()
        if result is None:
            self.applied.append(transaction.transaction_id)
            return None
        return self._apply(transaction, result)

    async def _apply(self, transaction: Transaction, result: Awaitable[None]) -> None:
        await result
        self.applied.append(transaction.transaction_id)

    def uncaught_exception(
        self, partition_id: int, transaction_id: int, error: BaseException
    ) -> Awaitable[None] | None:
        assert transaction_id == len(self.applied) or transaction_id == len(self.applied) - 1
        result: Awaitable[None] | None = self.trouble()
        return result


class TroubledContext(TransactionContext):
    def __init__(self, trouble: Trouble) -> None:
        self.trouble = trouble
        self.ends: list[str] = []

    @property
    def retry_policy(self) -> RetryPolicy | None:  # type: ignore[override]  # a constant elsewhere
        self.trouble._raise()
        return None

    def partition_id(self, partition_count: int) -> int:
        return 0

    def execute(self, builder: Any) -> bool:
        builder.set_data(b"x")
        return True

    def on_completion(self, committed: bool) -> Awaitable[None] | None:
        if not committed:
            self.ends.append("given up")
        result: Awaitable[None] | None = self.trouble()
        return result

    def on_application(self) -> Awaitable[None] | None:
        self.ends.append("applied")
        result: Awaitable[None] | None = self.trouble()
        return result

    def on_exception(self, error: Exception) -> Awaitable[None] | None:
        self.ends.append("error")
        result: Awaitable[None] | None = self.trouble()
        return result

    def on_lock_failure(self) -> Awaitable[None] | None:
        result: Awaitable[None] | None = self.trouble()
        return result


async def _play(seed: int, rate: float, kinds: str) -> None:
    driver = MockDriver(1, random_source=random.Random(seed))
    driver.silent_faults = False
    driver.fault_rate = 0.2
    trouble = Trouble(seed, rate, kinds)
    callbacks = TroubledCallbacks(trouble)
    options = ClientOptions(apply_retry_initial_s=1e-6, apply_retry_maximum_s=1e-6, reconnect_initial_s=1e-3)
    client = await driver.open_client(callbacks, options=options, max_concurrent_transactions=_COUNT)
    contexts = [TroubledContext(trouble) for _ in range(_COUNT)]
    try:
        for context in contexts:
            if trouble.random.random() < 0.5:
                driver.partitions[0].add(b"of another client")
            if trouble.random.random() < 0.1:
                driver.force_next_lock_fail()
            await client.submit(context)
        await until(lambda: all(context.ends for context in contexts))
        await until(lambda: len(callbacks.applied) == len(driver.partitions[0].transactions))
        trouble.rate = 0.0
        assert callbacks.applied == list(range(len(callbacks.applied)))
        assert all(len(context.ends) == 1 for context in contexts)
    finally:
        await client.close()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from([0.05, 0.3, 0.7]), st.sampled_from(["s", "n", "w", "sn", "snw"]))
def test_random_errors_at_random_points_never_make_a_gap(seed: int, rate: float, kinds: str) -> None:
    asyncio.run(_play(seed, rate, kinds))


class MethodForPolicy(Context):
    """An application's mistake: a method where a value is expected."""

    def retry_policy(self) -> None:  # type: ignore[override]
        return None


class RaisingPolicy(Context):
    @property
    def retry_policy(self) -> RetryPolicy | None:  # type: ignore[override]
        raise Odd("no policy today")


@pytest.mark.parametrize("context_class", [MethodForPolicy, RaisingPolicy])
@pytest.mark.parametrize("callbacks_class", [Callbacks, AsyncCallbacks])
async def test_a_policy_that_cannot_be_had_ends_its_context_and_nothing_else(
    world: World, callbacks_class: type[Callbacks], context_class: type[Context]
) -> None:
    server = await world.server()
    callbacks = callbacks_class()
    client = await world.client(callbacks, server, maxConcurrentTransactions=1)
    first = Context()
    await client.submit(first)
    await until(lambda: first.done)
    held = server.hold(AppendRequest, count=1)
    bad = context_class()
    await client.submit(bad)
    await until(lambda: held)
    connection, message = held[0]
    connection.send(LockFailure(message.req_id, 3))
    for number in range(1, 8):
        world.logs[0].add(b"%d" % number)
    server.feed_all(0)
    await until(lambda: len(bad.events) == 2)
    for number in range(8, 11):
        world.logs[0].add(b"%d" % number)
        server.feed_all(0)
    await until(lambda: callbacks.applied[0] == list(range(11)))
    assert bad.events[0] == "lock failure"
    assert isinstance(bad.events[1], TypeError | ClientError)
    last = Context()
    await client.submit(last)
    await until(lambda: last.done, "its place was given back")


@pytest.mark.parametrize("context_class", [Context, AsyncContext])
async def test_a_feed_whose_task_somebody_cancels_begins_again_where_it_was(
    world: World, context_class: type[Context], caplog: pytest.LogCaptureFixture
) -> None:
    tasks: list[asyncio.Task[Any]] = []
    go_on = asyncio.Event()

    class Slow(AsyncCallbacks):
        async def apply_transaction(self, transaction: Transaction) -> None:
            if transaction.transaction_id == 2 and not tasks:
                task = asyncio.current_task()
                assert task is not None
                tasks.append(task)
                await go_on.wait()
            self.record(transaction)

    server = await world.server()
    callbacks = Slow()
    client = await world.client(callbacks, server)
    contexts = [context_class() for _ in range(5)]
    for context in contexts:
        await client.submit(context)
    await until(lambda: tasks)
    server.commit(0)
    tasks[0].cancel()
    await until(lambda: all(context.done for context in contexts))
    await until(lambda: callbacks.applied == {0: list(range(6))})
    assert all(context.events == [("completed", True), "applied"] for context in contexts)
    assert "broke off behind transaction 1 and begins again there" in caplog.text


@pytest.mark.parametrize("callbacks_class", [Callbacks, AsyncCallbacks])
async def test_a_defect_in_the_library_does_not_skip_a_transaction(
    world: World, callbacks_class: type[Callbacks], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await world.server()
    callbacks = callbacks_class()
    client = await world.client(callbacks, server)
    await until(lambda: client._engine.partitions[0].mount.channel is not None)
    feed = client._engine.partitions[0].feed
    take_committed = feed._take_committed
    failures = iter(range(3))

    def failing(req_id: bytes) -> Any:
        if callbacks.applied.get(0) == [0, 1] and next(failures, None) is not None:
            raise AssertionError("a defect")
        return take_committed(req_id)

    monkeypatch.setattr(feed, "_take_committed", failing)
    for _ in range(10):
        server.commit(0)
    await until(lambda: callbacks.applied == {0: list(range(10))})
    assert next(failures, None) is None
