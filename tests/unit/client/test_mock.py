"""The mock driver with clients that have callbacks: what the original asserts of its own."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import pytest_asyncio

import waltz
from tests.unit.client.application import AsyncContext, Callbacks, Context
from tests.unit.client.examples import TESTS
from tests.unit.client.fake_server import until
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.client.mock.transport import MemoryTransport

pytestmark = pytest.mark.timeout(60)

LOCK = waltz.PartitionLocalLock("mock", 1)
OTHER = waltz.PartitionLocalLock("mock", 2)


class Clients:
    """Opens clients and closes them."""

    def __init__(self) -> None:
        self._open: list[waltz.WaltzClient] = []

    async def __call__(self, driver: MockDriver, callbacks: Callbacks, **options: int) -> waltz.WaltzClient:
        client = await driver.open_client(callbacks, **options)  # type: ignore[arg-type]  # booleans are integers
        self._open.append(client)
        return client

    async def close(self) -> None:
        for client in self._open:
            await client.close()


@pytest_asyncio.fixture
async def clients() -> AsyncIterator[Clients]:
    made = Clients()
    yield made
    await made.close()


def context_with(locks: dict[str, list[waltz.PartitionLocalLock]]) -> Context:
    return Context(attempts=1, write=locks.get("write", ()), read=locks.get("read", ()), append=locks.get("append", ()))


async def run(client: waltz.WaltzClient, *contexts: Context) -> None:
    for context in contexts:
        await client.submit(context)
    await until(lambda: all(context.done for context in contexts))


async def test_the_cluster_is_called_mock_and_partition_0_is_the_only_one(clients: Clients) -> None:
    client = await clients(MockDriver(client_id=42), Callbacks())
    assert (client.cluster_name, client.client_id, client.partition_count) == ("mock", 42, 1)
    assert client.partitions == {0}
    assert await client.check_server_connections([]) == {}


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        ({"write": [LOCK]}, {"write": [LOCK]}, False),
        ({"write": [LOCK]}, {"write": [OTHER]}, True),
        ({"read": [LOCK]}, {"read": [LOCK]}, True),
        ({"write": [LOCK]}, {"read": [LOCK]}, False),
        ({"read": [LOCK]}, {"write": [LOCK]}, True),
        ({"append": [LOCK]}, {"write": [LOCK]}, False),
        ({"write": [LOCK]}, {"append": [LOCK]}, True),
        ({"write": [OTHER, LOCK]}, {"write": [LOCK]}, False),
        ({"write": [OTHER]}, {"write": [LOCK, OTHER]}, False),
    ],
)
async def test_two_transactions_on_the_same_state(
    clients: Clients,
    first: dict[str, list[waltz.PartitionLocalLock]],
    second: dict[str, list[waltz.PartitionLocalLock]],
    both: bool,
) -> None:
    driver = MockDriver()
    callbacks = Callbacks()
    client = await clients(driver, callbacks)
    driver.suspend_feed()
    contexts = [context_with(first), context_with(second)]
    for context in contexts:
        await client.submit(context)
    driver.resume_feed()
    await until(lambda: all(context.done for context in contexts))
    assert contexts[0].events == [("completed", True), "applied"]
    assert (contexts[1].events[-1] == "applied") is both
    if not both:
        assert contexts[1].events == ["lock failure", ("completed", False)]


async def test_with_retries_everything_is_committed_in_the_end(clients: Clients) -> None:
    driver = MockDriver()
    callbacks = Callbacks()
    client = await clients(driver, callbacks)
    contexts = [Context(write=[LOCK]) for _ in range(30)]
    await run(client, *contexts)
    assert callbacks.applied == {0: list(range(30))}
    await client.flush_transactions()
    assert not client.has_pending_transactions()


async def test_a_retry_policy_has_the_last_word(clients: Clients) -> None:
    class Impatient(Context):
        retry_policy = waltz.RetryPolicy(max_attempts=3)

    class Hasty(Context):
        retry_policy = waltz.RetryPolicy(time_limit_s=0.0)

    driver = MockDriver()
    client = await clients(driver, Callbacks())
    for kind, attempts in ((Impatient, 3), (Hasty, 1)):
        for _ in range(attempts):
            driver.force_next_lock_fail()
        context = kind()
        await run(client, context)
        assert context.executed == attempts
        assert context.events == ["lock failure"] * attempts + [("completed", False)]
    for wrong in ({"max_attempts": 0}, {"initial_delay_s": 1.0, "maximum_delay_s": 0.5}):
        with pytest.raises(ValueError, match="must be"):
            waltz.RetryPolicy(**wrong)
    await run(client, Context())


async def test_a_context_that_cancels_the_task_it_is_attempted_in_is_told_and_the_next_one_attempted(
    clients: Clients,
) -> None:
    class Cancelling(AsyncContext):
        async def execute(self, builder: waltz.TransactionBuilder) -> bool:
            if self.executed:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            return await super().execute(builder)

    driver = MockDriver()
    driver.silent_faults = False
    client = await clients(driver, Callbacks())
    driver.suspend_feed()
    bad, good = Cancelling(), Context()
    for context in (bad, good):
        driver.force_next_append_fail()
        await client.submit(context)
    driver.resume_feed()
    await until(lambda: good.done)
    assert good.events == [("completed", True), "applied"]
    assert [type(event) for event in bad.events] == [waltz.ClientError]
    assert not client.has_pending_transactions()


async def test_the_conflicting_transaction_is_told(clients: Clients) -> None:
    conflicts: list[int] = []

    class Curious(Context):
        def on_lock_conflict(self, transaction_id: int) -> Awaitable[None] | None:
            conflicts.append(transaction_id)
            return super().on_lock_conflict(transaction_id)

    driver = MockDriver()
    client = await clients(driver, Callbacks())
    driver.suspend_feed()
    first, second = Context(write=[LOCK]), Curious(write=[LOCK])
    await client.submit(first)
    await client.submit(second)
    driver.resume_feed()
    await until(lambda: first.done and second.done)
    assert conflicts == [0]
    assert second.events == ["lock failure", ("completed", True), "applied"]


async def test_clients_that_start_behind_catch_up(clients: Clients) -> None:
    shared = MockServerPartition.create(1)
    first = await clients(MockDriver(shared), Callbacks())
    await run(first, *[Context(b"%d" % number) for number in range(100)])
    for behind in (50, 30):
        callbacks = Callbacks({0: 99 - behind})
        await clients(MockDriver(shared), callbacks)
        await until(lambda callbacks=callbacks: callbacks.applied)  # type: ignore[misc]  # a bound default
        assert callbacks.applied == {0: list(range(100 - behind, 100))}


@pytest.mark.parametrize("silent", [True, False])
async def test_a_forced_append_failure_is_noticed(clients: Clients, silent: bool) -> None:
    driver = MockDriver()
    driver.silent_faults = silent
    client = await clients(driver, Callbacks())
    driver.force_next_append_fail()
    context = Context(attempts=1)
    await run(client, context)
    assert context.events == [("completed", False)]
    assert driver.partitions[0].high_water_mark == -1


async def test_a_forced_lock_failure(clients: Clients) -> None:
    driver = MockDriver()
    client = await clients(driver, Callbacks())
    driver.force_next_lock_fail()
    once, again = Context(attempts=1), Context()
    await run(client, once)
    assert once.events == ["lock failure", ("completed", False)]
    driver.force_next_lock_fail()
    await run(client, again)
    assert again.events == ["lock failure", ("completed", True), "applied"]


async def test_fault_rate_and_delay(clients: Clients) -> None:
    driver = MockDriver()
    driver.fault_rate = 0.2
    driver.max_delay_s = 0.0002
    driver.silent_faults = False
    callbacks = Callbacks()
    client = await clients(driver, callbacks)
    await run(client, *[Context(b"%d" % number) for number in range(100)])
    assert callbacks.applied == {0: list(range(100))}
    assert sorted(int(each.data) for each in driver.partitions[0].transactions) == list(range(100))


async def test_the_feed_is_suspended_for_the_clients_of_one_driver_only(clients: Clients) -> None:
    shared = MockServerPartition.create(1)
    one, two = MockDriver(shared), MockDriver(shared)
    callbacks, others = Callbacks(), Callbacks()
    await clients(one, callbacks)
    client = await clients(two, others)
    one.suspend_feed()
    await run(client, Context(), Context())
    assert (callbacks.applied, others.applied) == ({}, {0: [0, 1]})
    one.resume_feed()
    await until(lambda: callbacks.applied == {0: [0, 1]})


async def test_a_failing_application_is_repeated(clients: Clients) -> None:
    class Failing(Callbacks):
        failures = 3

        def apply_transaction(self, transaction: waltz.Transaction) -> None:
            if self.failures:
                self.failures -= 1
                raise ValueError("no")
            self.record(transaction)

    callbacks = Failing()
    client = await clients(MockDriver(), callbacks)
    context = Context()
    await run(client, context)
    assert len(callbacks.uncaught) == 3
    assert context.events == [("completed", True), "applied"]


async def test_partitions_by_hand(clients: Clients) -> None:
    driver = MockDriver(3)
    callbacks = Callbacks()
    client = await clients(driver, callbacks, auto_mount=False)
    assert client.partitions == frozenset()
    with pytest.raises(waltz.PartitionInactiveError):
        await client.submit(Context())
    for chosen in ({1}, {1, 2}, {0, 2}, {0, 1, 2}):
        await client.set_partitions(chosen)
        assert client.partitions == chosen
        await run(client, *[Context(partition_id=partition_id) for partition_id in chosen])
    assert {partition: len(ids) for partition, ids in callbacks.applied.items()} == {0: 2, 1: 3, 2: 3}
    mounted = await clients(driver, Callbacks())
    with pytest.raises(waltz.InvalidOperationError, match="failed to set partitions"):
        await mounted.set_partitions({1})


async def test_a_client_that_is_ahead(clients: Clients) -> None:
    client = await clients(MockDriver(), Callbacks({0: 5}))
    with pytest.raises(waltz.ClientAheadError):
        await client.submit(Context())


class RaisingSerializer:
    """Fails."""

    def serialize(self, value: object) -> bytes:
        raise KeyError(value)

    def deserialize(self, data: bytes) -> object:
        raise KeyError(data)


async def test_what_execute_does_wrong_is_told_and_nothing_is_sent(clients: Clients) -> None:
    class Wrong(Context):
        def __init__(self, what: str) -> None:
            super().__init__()
            self.what = what

        def fill(self, builder: waltz.TransactionBuilder) -> bool:
            if self.what == "serializer":
                builder.set_transaction_data("x", RaisingSerializer())
            elif self.what == "header":
                builder.set_header("x")  # type: ignore[arg-type]
            elif self.what == "data":
                builder.set_data("x")  # type: ignore[arg-type]
            elif self.what == "locks":
                builder.set_write_locks(["x"])  # type: ignore[list-item]
            elif self.what == "result":
                builder.set_data(b"x")
                return 1  # type: ignore[return-value]
            return True

    driver = MockDriver()
    client = await clients(driver, Callbacks(), max_concurrent_transactions=1)
    for what, error in (
        ("serializer", KeyError),
        ("header", TypeError),
        ("data", TypeError),
        ("locks", TypeError),
        ("result", TypeError),
        ("nothing", waltz.ClientError),
    ):
        context = Wrong(what)
        with pytest.raises(error):
            await client.submit(context)
        assert len(context.events) == 1
        assert isinstance(context.events[0], error)
    with pytest.raises(TypeError):
        waltz.PartitionLocalLock(None, 1)  # type: ignore[arg-type]
    await run(client, Context())
    assert driver.partitions[0].high_water_mark == 0


def test_the_pytest_plugin(tmp_path: Path) -> None:
    """The example of the documentation, in a folder of its own."""
    (tmp_path / "test_it.py").write_text(TESTS["With pytest"])
    module = "waltz.client.pytest_plugin"
    installed = any(entry.value == module for entry in entry_points(group="pytest11"))
    command = [sys.executable, "-m", "pytest", "-q", "--strict-markers", "-p", "no:cacheprovider"]
    if not installed:
        command += ["-p", module]
    environment = dict(os.environ, PYTHONPATH=str(Path(waltz.__file__).parents[1]))
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


async def test_transactions_of_others(clients: Clients) -> None:
    driver = MockDriver()
    callbacks = Callbacks()
    await clients(driver, callbacks)
    await asyncio.to_thread(driver.partitions[0].add, b"from another thread")
    await until(lambda: callbacks.applied == {0: [0]})


async def test_what_is_written_arrives_in_order_however_often_reading_pauses() -> None:
    class Received(asyncio.Protocol):
        def __init__(self) -> None:
            self.chunks: list[bytes] = []

        def data_received(self, data: bytes) -> None:
            self.chunks.append(data)
            if data == b"2":
                there.pause_reading()

    received = Received()
    here, there = MemoryTransport(asyncio.Protocol()), MemoryTransport(received)
    here.peer, there.peer = there, here
    there.pause_reading()
    here.write(b"1")
    await asyncio.sleep(0)
    assert received.chunks == []
    here.write(b"2")
    there.resume_reading()
    here.write(b"3")
    await asyncio.sleep(0)
    assert received.chunks == [b"1", b"2"]
    there.resume_reading()
    here.write(b"4")
    await asyncio.sleep(0)
    assert received.chunks == [b"1", b"2", b"3", b"4"]
