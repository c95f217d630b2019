"""Values that are not bytes, in both plain faces, over the mock."""

import json
import math

import pytest
from pydantic import BaseModel

import waltz
from waltz.client.mock import MockDriver


class Order(BaseModel):
    customer: str
    amount: int


LOCK = waltz.PartitionLocalLock("customer", "ann")


async def test_models_are_appended_and_read() -> None:
    driver = MockDriver(2)
    async with waltz.connect(driver) as client:
        orders = client.with_serializer(waltz.ModelSerializer(Order))
        assert (
            await orders.append(1, Order(customer="ann", amount=1), header=7, write_locks=[LOCK], high_water_mark=-1)
            == 0
        )
        items: list[Order | waltz.Append[Order]] = [
            Order(customer="bob", amount=2),
            waltz.Append(Order(customer="ann", amount=3), header=8),
        ]
        assert await orders.append_many(1, items) == [1, 2]

        def decide(basis: waltz.Basis) -> waltz.Append[Order] | None:
            if basis.high_water_mark != 2:
                return None
            return waltz.Append(Order(customer="ann", amount=4), write_locks=[LOCK])

        async def decide_later(basis: waltz.Basis) -> Order:
            return Order(customer="eve", amount=basis.high_water_mark)

        assert await orders.transact(1, decide, reads_log=True) == 3
        assert await orders.transact(1, decide) is None
        assert await orders.transact(1, decide_later) == 4
        read = [(each.header, orders.value(each)) async for each in client.feed(1, after=-1, until=4)]
    assert [(header, order.customer, order.amount) for header, order in read] == [
        (7, "ann", 1),
        (0, "bob", 2),
        (8, "ann", 3),
        (0, "ann", 4),
        (0, "eve", 3),
    ]


async def test_locks_of_values_conflict() -> None:
    async with waltz.connect(MockDriver()) as client:
        values = client.with_serializer(waltz.JsonSerializer())
        await values.append(0, {"n": 1}, append_locks=[LOCK])
        with pytest.raises(waltz.LockConflict):
            await values.append(0, {"n": 2}, write_locks=[LOCK], high_water_mark=-1)


async def test_what_cannot_be_serialized_is_not_sent() -> None:
    driver = MockDriver()
    async with waltz.connect(driver) as client:
        values = client.with_serializer(waltz.JsonSerializer())
        with pytest.raises(ValueError, match="JSON"):
            await values.append(0, math.nan)
        with pytest.raises(TypeError, match="not JSON serializable"):
            await values.append_many(0, ["good", b"bad"])
        assert driver.partitions[0].high_water_mark == -1


def test_for_threads() -> None:
    driver = MockDriver()
    with waltz.blocking.connect(driver) as client:
        values = client.with_serializer(waltz.JsonSerializer())
        assert values.append(0, [1]) == 0
        assert values.append_many(0, ["two", waltz.Append({"three": 3}, header=3)]) == [1, 2]
        assert values.transact(0, lambda basis: basis.high_water_mark) == 3
        assert values.transact(0, lambda basis: None) is None
        assert [values.value(each) for each in client.feed(0, after=-1, until=3)] == [[1], "two", {"three": 3}, 2]
        assert client.partition_for("key") == 0
    assert json.loads(driver.partitions[0].transactions[2].data) == {"three": 3}


class Callbacks(waltz.WaltzClientCallbacks):
    def client_high_water_mark(self, partition_id: int) -> int:
        return -1

    def apply_transaction(self, transaction: waltz.Transaction) -> None: ...

    def uncaught_exception(self, partition_id: int, transaction_id: int, error: BaseException) -> None:
        raise error


class Note(waltz.TransactionContext):
    def partition_id(self, partition_count: int) -> int:
        return 0

    def execute(self, builder: waltz.TransactionBuilder) -> bool:
        builder.set_transaction_data(["noted"])
        return True


async def test_clients_with_callbacks_have_a_serializer_for_all() -> None:
    driver = MockDriver()
    async with await waltz.open_client(Callbacks(), driver, serializer=waltz.JsonSerializer()) as client:
        await client.submit(Note())
        await client.flush_transactions()
    async with await waltz.open_client(Callbacks(), driver) as client:
        with pytest.raises(waltz.ClientError, match="was given a serializer"):
            await client.submit(Note())
    assert [each.data for each in driver.partitions[0].transactions] == [b'["noted"]']


async def test_partitions_by_key_in_all_faces() -> None:
    keys: list[object] = [f"customer-{number}" for number in range(50)]
    expected = [waltz.partition_for(key, 8) for key in keys]
    assert set(expected) == set(range(8))
    async with waltz.connect(MockDriver(8)) as client:
        assert [client.partition_for(key) for key in keys] == expected
    async with await waltz.open_client(Callbacks(), MockDriver(8)) as with_callbacks:
        assert [with_callbacks.partition_for(key) for key in keys] == expected
