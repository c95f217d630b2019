"""Snapshots page by page. What they show beside the dictionary: ``test_ordered``."""

from tests.unit.table.stores.cases import feed, joined
from waltz.table.envelope import Batch, Row, Truncate
from waltz.table.stores.interface import PAGE_ROWS
from waltz.table.stores.memory import MemoryEngine
from waltz.table.stores.ordered import OrderedStore


def test_a_page_has_no_more_rows_than_a_loop_can_be_held_for() -> None:
    """Also where there are only rows that are still to be taken out: then it is empty."""
    store = OrderedStore(MemoryEngine())
    count = 3 * PAGE_ROWS
    feed(store, [Batch(5, [Row(b"", b"%05d" % number, b"") for number in range(count)])])
    before = store.snapshot()
    feed(store, [Truncate(6)], take_out=False)
    assert store.removing
    for reverse in (False, True):
        sizes = [len(page) for page in before.pages(b"", None, reverse=reverse)]
        assert sizes == [PAGE_ROWS] * 3 + [0]
        assert [len(page) for page in store.snapshot().pages(b"", None, reverse=reverse)] == [0] * 4
    assert before.get(joined(b"00000")) != [None]
    assert store.get(joined(b"00000")) == store.snapshot().get(joined(b"00000")) == [None]
