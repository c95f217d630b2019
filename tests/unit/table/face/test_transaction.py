"""What a transaction sees, writes and locks."""

from tests.unit.table.stores.cases import feed
from waltz.table.ages import NO_AGES, Ages
from waltz.table.envelope import Batch, Row
from waltz.table.face.locks import TABLE_LOCK, row_lock
from waltz.table.face.transaction import NOT_COMMITTED, TableTransaction, ViewState
from waltz.table.rows import Version
from waltz.table.stores.memory import MemoryEngine
from waltz.table.stores.ordered import OrderedStore
from waltz.table.view import Reading

NOW_MS = 1000


def begun(*rows: Row, ages: Ages = NO_AGES) -> TableTransaction:
    store = OrderedStore(MemoryEngine())
    feed(store, [Batch(500, rows)])
    return TableTransaction(ViewState(Reading(store, NOW_MS, ages, raw=True)))


def test_reads_see_the_table_and_own_writes() -> None:
    transaction = begun(Row(b"", b"a", b"old"), Row(b"", b"dead", None, tombstone=True), Row(b"p", b"a", b"other"))
    row = transaction.get(b"a")
    assert row is not None
    assert (row.value, row.version) == (b"old", Version(0, 0))
    assert transaction.get(b"dead") is None
    transaction.put(b"a", b"new")
    row = transaction.get(b"a")
    assert row is not None
    assert (row.value, row.version) == (b"new", NOT_COMMITTED)
    transaction.delete(b"a")
    assert transaction.get(b"a") is None
    other = transaction.get(b"a", prefix=b"p")
    assert other is not None
    assert other.value == b"other"


def test_what_is_written_is_locked_for_writing_and_what_is_read_for_reading() -> None:
    transaction = begun()
    assert transaction.intent() is None
    transaction.get(b"read")
    assert transaction.intent() is None
    transaction.get(b"both")
    transaction.put(b"both", b"1")
    transaction.put(b"written", b"1", prefix=b"p")
    transaction.put(b"written", b"2", prefix=b"p")
    intent = transaction.intent()
    assert intent is not None
    assert intent.rows == [Row(b"", b"both", b"1"), Row(b"p", b"written", b"2")]
    assert intent.write_locks == [row_lock(b"", b"both"), row_lock(b"p", b"written")]
    assert intent.read_locks == [TABLE_LOCK, row_lock(b"", b"read")]


def test_a_row_from_a_clock_that_is_ahead_is_won_over() -> None:
    """Also a tombstone, and a row that nobody sees any more."""
    for old in (Row(b"", b"a", b"", 5000), Row(b"", b"a", None, 5000, tombstone=True)):
        transaction = begun(old, ages=Ages(row_written_at_ms=100))
        transaction.put(b"a", b"new")
        transaction.delete(b"b")
        intent = transaction.intent()
        assert intent is not None
        assert [row.timestamp_ms for row in intent.rows] == [5000, None]
