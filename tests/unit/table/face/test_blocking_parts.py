"""The rows of one prefix, for threads."""

import threading
from collections.abc import Iterator

import pytest

import waltz
from waltz.client.mock import MockDriver
from waltz.common.serializers import JsonSerializer
from waltz.table.errors import VersionConflict
from waltz.table.face.blocking import BlockingTable
from waltz.table.properties import PartitionProperties
from waltz.table.view import KeyRange

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def table() -> Iterator[BlockingTable]:
    with (
        waltz.blocking.connect(MockDriver(1)) as client,
        client.table(0, properties=PartitionProperties(format="table")) as table,
    ):
        yield table


def test_tables_of_different_prefixes_do_not_meet(table: BlockingTable) -> None:
    users, orders = table.prefixed(b"users"), table.prefixed(b"orders")
    assert users.put(b"1", b"ann") == 0
    assert orders.put(b"1", b"hat") == 1
    assert orders.put_if(b"2", b"bag", None) == 2
    assert users.delete(b"1") == 3
    assert users.get([b"1"]) == [None]
    assert [row.key for row in users.get([b"1"], raw=True, fresh=True) if row] == [b"1"]
    assert [row.value for row in orders.scan()] == [b"hat", b"bag"]
    assert [row.value for row in orders.scan(KeyRange(start=b"2"), reverse=True)] == [b"bag"]
    assert [row.value for row in orders.scan(KeyRange(start=b"1", end=b"2"))] == [b"hat"]
    assert [row.value for row in orders.take(-1).rows] == [b"hat", b"bag"]
    assert next(users.follow(2)).rows[0].tombstone


class OfThisThread(JsonSerializer):
    """Refuses to be used anywhere else."""

    def __init__(self) -> None:
        self._thread = threading.current_thread()

    def serialize(self, value: object) -> bytes:
        assert threading.current_thread() is self._thread
        return super().serialize(value)

    def deserialize(self, data: bytes) -> object:
        assert threading.current_thread() is self._thread
        return super().deserialize(data)


def test_values_are_those_of_the_serializer_on_the_thread_of_the_caller(table: BlockingTable) -> None:
    typed = table.typed(OfThisThread(), b"p")
    assert typed.put(b"a", {"n": 1}) == 0
    table.put(b"null", None, prefix=b"p")
    assert typed.get([b"a", b"b", b"null"]) == [{"n": 1}, None, None]
    (row,) = table.get([b"a"], prefix=b"p")
    assert row is not None
    assert row.value == b'{"n":1}'
    typed.put_if(b"a", [2], row.version)
    with pytest.raises(VersionConflict):
        typed.put_if(b"a", [3], row.version)
    assert list(typed.scan(KeyRange(start=b"a", end=b"n"), fresh=True)) == [(b"a", [2])]
    assert list(typed.scan(reverse=True, limit=1)) == [(b"null", None)]
    typed.delete(b"a")
    assert typed.get([b"a"]) == [None]
    with pytest.raises(ValueError, match="Out of range float"):
        typed.put(b"a", float("nan"))


def test_updates_replace_make_and_remove(table: BlockingTable) -> None:
    typed = table.typed(OfThisThread())

    def count(value: object) -> object:
        return 1 if not isinstance(value, int) else value + 1

    assert typed.update(b"k", count) == 0
    assert typed.update(b"k", count) == 1
    assert typed.get([b"k"]) == [2]
    assert typed.update(b"k", lambda _: None) == 2
    assert typed.update(b"k", lambda _: None) is None
    assert typed.get([b"k"]) == [None]
