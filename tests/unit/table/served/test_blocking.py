"""Served tables for threads, over a cluster in memory and over a view node."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import waltz
from tests.unit.view.node import view_node
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.table import (
    AtLeast,
    JsonSerializer,
    KeyRange,
    LeaseHeldError,
    LeaseLostError,
    Row,
    SweepCheck,
    VersionConflict,
)
from waltz.table.face.threads import BlockingTransaction
from waltz.table.served.blocking import BlockingServedTable

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def partitions() -> list[MockServerPartition]:
    return MockServerPartition.create(2)


@pytest.fixture
def client(partitions: list[MockServerPartition]) -> Iterator[waltz.blocking.Client]:
    with waltz.blocking.connect(MockDriver(partitions)) as client:
        for partition_id in (0, 1):
            client.configure_table(partition_id, {"format": "table"})
        yield client


@pytest.fixture(params=["in memory", "served"])
def table(
    request: pytest.FixtureRequest,
    client: waltz.blocking.Client,
    partitions: list[MockServerPartition],
    tmp_path: Path,
) -> Iterator[BlockingServedTable]:
    if request.param == "in memory":
        with client.table(0, view="served") as table:
            yield table
        return
    serving = view_node(partitions, tmp_path)
    node = client.run(serving.__aenter__())
    try:
        client.run(node.served())
        with client.table(0, view="served", timeout_s=20) as table:
            yield table
    finally:
        client.run(serving.__aexit__(None, None, None))


def test_every_call(table: BlockingServedTable) -> None:
    assert table.put(b"a", b"long value", prefix=b"p") == 0
    assert table.batch([Row(b"", b"%03d" % number, b"v") for number in range(1001)]) == 1
    assert table.delete(b"000") == 2
    table.refresh()
    (row,) = table.get([b"a"], prefix=b"p", consistency=AtLeast(2))
    assert row is not None
    assert row.value == b"long value"
    assert table.get_slice(b"a", 5, 5, prefix=b"p") == b"value"
    assert [row.key for row in table.scan(KeyRange(start=b"998"), limit=2)] == [b"998", b"999"]
    assert len(list(table.scan_keys())) == 1001
    assert table.approximate_count() == 1001
    taken = table.take(-1, 1)
    assert ([row.key for row in taken.rows], taken.cursor) == ([b"a"], 0)
    follow = table.follow(0, until=2)
    assert [row.key for taken in follow for row in taken.rows][-1] == b"000"
    with pytest.raises(VersionConflict):
        table.put_if(b"001", b"v", None)
    assert table.sweep() is None
    assert table.check_sweep() == SweepCheck(0, due=False)
    assert table.truncate() == 3
    assert list(table.scan()) == []
    assert table.applied == table.high_water_mark() == 3


def test_the_work_of_a_transaction_is_on_the_threads_of_its_callers(table: BlockingServedTable) -> None:
    def count() -> None:
        thread = threading.current_thread()

        def step(transaction: BlockingTransaction) -> None:
            assert threading.current_thread() is thread
            row = transaction.get(b"n")
            transaction.put(b"n", b"%d" % (int((row and row.value) or b"0") + 1))

        for _ in range(5):
            table.transaction(step)

    threads = [threading.Thread(target=count) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    (row,) = table.get([b"n"])
    assert row is not None
    assert row.value == b"15"


def test_leases(table: BlockingServedTable) -> None:
    lease = table.acquire(b"mailer", "one", duration_s=3600)
    with pytest.raises(LeaseHeldError, match="'one'"):
        table.acquire(b"mailer", "two", duration_s=3600, timeout_s=0.05)
    lease = table.renew(lease)

    def work(transaction: BlockingTransaction) -> None:
        lease.check(transaction)
        transaction.put(b"sent", b"1")

    assert table.transaction(work) is not None
    assert table.release(lease) is not None
    with pytest.raises(LeaseLostError):
        table.transaction(work)


def test_parts(table: BlockingServedTable) -> None:
    colours = table.mapping(b"colours")
    colours.update({b"sky": b"blue", b"snow": b"white"})
    del colours[b"snow"]
    with pytest.raises(KeyError):
        del colours[b"snow"]
    assert dict(colours) == {b"sky": b"blue"}
    assert list(reversed(colours)) == [b"sky"]
    brushes = table.prefixed(b"brushes")
    brushes.put(b"1", b"flat")
    assert [row.value for row in brushes.scan()] == [b"flat"]
    strokes = table.typed(JsonSerializer(), b"strokes")
    strokes.update(b"flat", lambda count: count + 1 if isinstance(count, int) else 1)
    assert strokes.get([b"flat"]) == [1]


def test_several_partitions(client: waltz.blocking.Client) -> None:
    with client.partitioned_table([0, 1], view="served") as large:
        for number in range(10):
            large.put(b"%d" % number, b"v")
        assert [row.key for row in large.scan()] == [b"%d" % number for number in range(10)]


def test_arguments_have_a_place_with_one_view_only(client: waltz.blocking.Client) -> None:
    with pytest.raises(TypeError, match="no store"):
        client.table(0, view="served", store="memory")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="no store"):
        client.partitioned_table([0], view="served", store="memory")
    with pytest.raises(TypeError, match="only with view"):
        client.table(0, zone="a")  # type: ignore[call-overload]
    with pytest.raises(waltz.PartitionNotFoundError):
        client.table(7, view="served")
