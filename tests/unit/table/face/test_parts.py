"""Values that are not bytes, there and back."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from pydantic import BaseModel, Field, ValidationError

import waltz
from waltz.client.mock import MockDriver
from waltz.common.serializers import JsonSerializer, ModelSerializer, StringSerializer
from waltz.table.errors import VersionConflict
from waltz.table.face.parts import TypedTable
from waltz.table.face.table import Table
from waltz.table.properties import PartitionProperties
from waltz.table.rows import Version
from waltz.table.view import KeyRange

pytestmark = pytest.mark.timeout(60)


class Account(BaseModel):
    owner: str
    balance: int = Field(alias="amount", ge=0)


@pytest.fixture
async def table() -> AsyncIterator[Table]:
    async with (
        waltz.connect(MockDriver()) as client,
        client.table(0, properties=PartitionProperties(format="table")) as table,
    ):
        yield table


async def test_models(table: Table) -> None:
    accounts = TypedTable(table, ModelSerializer(Account), b"accounts")
    assert await accounts.put(b"1", Account(owner="Ann", amount=5)) == 0
    assert await accounts.get([b"1", b"2"]) == [Account(owner="Ann", amount=5), None]
    (row,) = await table.get([b"1"], prefix=b"accounts")
    assert row is not None
    assert row.value == b'{"owner":"Ann","amount":5}'
    await table.put(b"1", b'{"owner":"Ann","amount":-1}', prefix=b"accounts")
    with pytest.raises(ValidationError, match="amount"):
        await accounts.get([b"1"])


async def test_calls_are_those_of_the_table(table: Table) -> None:
    names = TypedTable(table, StringSerializer(), b"names")
    await table.put(b"of another prefix", b"\xff")
    assert await names.put_if(b"a", "Ä", None) == 1
    with pytest.raises(VersionConflict):
        await names.put_if(b"a", "A", Version(0, 0))
    await names.put(b"b", "B")
    await table.put(b"null", None, prefix=b"names")
    assert [pair async for pair in names.scan()] == [(b"a", "Ä"), (b"b", "B"), (b"null", None)]
    assert [pair async for pair in names.scan(KeyRange(start=b"b", end=b"c"), fresh=True)] == [(b"b", "B")]
    assert [key async for key, _ in names.scan(reverse=True, limit=1)] == [b"null"]
    assert await names.get([b"null", b"b"], fresh=True) == [None, "B"]
    await names.delete(b"b")
    assert await names.get([b"b"]) == [None]


async def test_updates_are_transactions(table: Table) -> None:
    counts: TypedTable[object] = TypedTable(table, JsonSerializer(), b"counts")

    def increment(value: object) -> object:
        return 1 if value is None else int(str(value)) + 1

    await asyncio.gather(*(counts.update(b"k", increment) for _ in range(20)))
    assert await counts.get([b"k"]) == [20]
    assert await counts.update(b"k", lambda _: None) is not None
    assert await counts.get([b"k"]) == [None]
    assert await counts.update(b"k", lambda _: None) is None
