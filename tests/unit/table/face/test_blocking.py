"""Tables for threads, and as a dictionary."""

import threading
from collections.abc import Container, Iterator
from pathlib import Path

import pytest

import waltz
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.table.envelope import Row
from waltz.table.errors import CursorConflict, PropertiesError, VersionConflict
from waltz.table.face.blocking import BlockingTable
from waltz.table.face.sweeping import SweepCheck
from waltz.table.face.threads import BlockingTransaction
from waltz.table.properties import PartitionProperties
from waltz.table.rows import Version
from waltz.table.view import KeyRange

pytestmark = pytest.mark.timeout(60)

TABLE = PartitionProperties(format="table")


@pytest.fixture
def partitions() -> list[MockServerPartition]:
    return MockServerPartition.create(1)


@pytest.fixture
def client(partitions: list[MockServerPartition]) -> Iterator[waltz.blocking.Client]:
    with waltz.blocking.connect(MockDriver(partitions)) as client:
        yield client


@pytest.fixture
def table(client: waltz.blocking.Client) -> Iterator[BlockingTable]:
    with client.table(0, properties=TABLE) as table:
        yield table


def test_properties_are_those_of_the_cluster(client: waltz.blocking.Client, tmp_path: Path) -> None:
    with pytest.raises(PropertiesError, match="not a table"), client.table(0):
        pass
    assert client.configure_table(0, {"format": "table", "rowType": "zlib"}).row_type == "zlib"
    for round_ in range(2):
        with client.table(0, store="sqlite", directory=str(tmp_path)) as table:
            assert table.properties.row_type == "zlib"
            table.put(b"%d" % round_, b"v")
            assert len(list(table.scan_keys())) == round_ + 1


def test_every_call(table: BlockingTable) -> None:
    assert table.put(b"a", b"long value", prefix=b"p") == 0
    assert table.batch([Row(b"", b"%03d" % number, b"v") for number in range(1001)]) == 1
    assert table.delete(b"000") == 2
    table.refresh()
    (row,) = table.get([b"a"], prefix=b"p", fresh=True)
    assert row is not None
    assert (row.value, row.version) == (b"long value", Version(0, 0))
    assert table.get_slice(b"a", 5, 3, prefix=b"p") == b"val"
    assert len(list(table.scan([KeyRange()]))) == 1000
    assert len(list(table.scan())) == table.approximate_count() == 1001
    assert list(table.scan_keys(reverse=True, limit=1)) == [(b"p", b"a")]
    assert table.put_if(b"a", b"2", Version(0, 0), prefix=b"p") == 3
    with pytest.raises(VersionConflict):
        table.put_if(b"a", b"3", Version(0, 0), prefix=b"p")
    assert [row.version.transaction_id for row in table.take(-1, prefix=b"p").rows] == [0, 3]
    assert next(iter(table.follow(2))).rows[0].value == b"2"
    assert table.sweep() is None
    assert table.sweep_if_due() is None
    assert table.check_sweep() == SweepCheck(0, due=False)
    assert table.truncate() == table.high_water_mark() == 4
    table.refresh()
    assert table.applied == 4
    assert list(table.scan()) == []


def test_no_update_of_threads_is_lost(table: BlockingTable) -> None:
    threads: set[threading.Thread] = set()

    def increment(transaction: BlockingTransaction) -> None:
        threads.add(threading.current_thread())
        row = transaction.get(b"counter")
        transaction.put(b"counter", b"%d" % (1 + int(row.value or b"0") if row else 1))
        transaction.put(b"scratch", b"")
        transaction.delete(b"scratch")

    def work() -> None:
        for _ in range(10):
            assert table.transaction(increment) is not None

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    (row,) = table.get([b"counter"])
    assert row is not None
    assert row.value == b"40"
    assert threads == set(workers)
    assert table.transaction(lambda _: None) is None


def test_work_that_fails_writes_nothing(table: BlockingTable) -> None:
    def fail(transaction: BlockingTransaction) -> None:
        transaction.put(b"k", b"v")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        table.transaction(fail)
    assert table.get([b"k"], fresh=True) == [None]


def test_a_scan_that_is_left_gives_up_its_snapshot(table: BlockingTable) -> None:
    table.batch([Row(b"", b"%04d" % number, b"v") for number in range(2000)])
    rows = table.scan()
    assert next(rows).key == b"0000"
    table.put(b"0001", b"later")
    assert next(rows).value == b"v"
    rows.close()
    assert not list(table._table._partition.store._snapshots)  # type: ignore[attr-defined]


@pytest.mark.filterwarnings("ignore:NamedCursor is deprecated:DeprecationWarning")
def test_cursors(client: waltz.blocking.Client) -> None:
    one, two = client.named_cursor("mails", 0), client.named_cursor("mails", 0)
    assert [one.read(), two.read()] == [-1, -1]
    one.advance(3)
    with pytest.raises(CursorConflict):
        two.advance(4)
    assert two.read() == 3


def test_a_dictionary(table: BlockingTable) -> None:
    table.put(b"of another prefix", b"v", prefix=b"q")
    people = table.mapping(b"p")
    model: dict[bytes, bytes | None] = {}
    for mapping in (people, model):
        mapping[b"b"] = b"2"
        mapping[b"a"] = b"1"
        mapping[b"c"] = None
        del mapping[b"b"]
        mapping.update({b"d": b"4", b"e": b"5"})
        assert mapping.pop(b"e") == b"5"
        assert mapping.setdefault(b"d", b"-") == b"4"
        with pytest.raises(KeyError):
            del mapping[b"b"]
        with pytest.raises(KeyError):
            _ = mapping[b"b"]
    assert dict(people) == model
    assert list(people) == sorted(model)
    assert list(reversed(people)) == sorted(model, reverse=True)
    assert list(people.items()) == sorted(model.items())
    assert list(people.values()) == [model[key] for key in sorted(model)]
    assert len(people) == len(people.items()) == 3
    assert b"a" in people
    assert b"b" not in people
    others: Container[object] = people
    assert "a" not in others
    assert (b"a", b"1") in people.items()
    people.clear()
    assert not people
    assert len(table.mapping(b"q")) == 1
