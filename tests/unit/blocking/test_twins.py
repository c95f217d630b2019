"""Each blocking class has the methods of its asynchronous twin, with the same parameters and defaults.

Some modules for threads are made of asynchronous ones.
"""

import inspect

import pytest

import waltz
import waltz.table
from tests.twins import TWINS as MADE
from tests.twins import Calls, Twin
from waltz import blocking
from waltz.client.plain import feed
from waltz.table.face import blocking as table_blocking
from waltz.table.face import blocking_parts, blocking_several
from waltz.table.served import blocking as served_blocking

TWINS: list[tuple[type, type]] = [
    (waltz.Client, blocking.Client),
    (waltz.ValueClient, blocking.ValueClient),
    (feed.TransactionFeed, blocking.TransactionFeed),
    (feed.BatchFeed, blocking.BatchFeed),
    (waltz.MergedFeed, blocking.MergedFeed),
    (waltz.Consumer, blocking.Consumer),
    (waltz.table.Table, table_blocking.BlockingTable),
    (waltz.table.ServedTable, served_blocking.BlockingServedTable),
    (waltz.table.NamedCursor, table_blocking.BlockingCursor),
    (waltz.table.PrefixedTable, blocking_parts.BlockingPrefixedTable),
    (waltz.table.TypedTable, blocking_parts.BlockingTypedTable),
    (waltz.table.PartitionedTable, blocking_several.BlockingPartitionedTable),
]
OF_THE_LIBRARY = {
    "Client": {"cluster_key", "library_feed", "open_feed", "transacting"},
    "TransactionFeed": {
        "begin",
        "begin_at_last",
        "done",
        "expect",
        "since",
        "fetch",
        "passed",
        "read_on",
        "read_result",
        "take",
        "wake",
    },
    "BatchFeed": {
        "begin",
        "begin_at_last",
        "done",
        "expect",
        "since",
        "fetch",
        "passed",
        "read_on",
        "read_result",
        "take",
        "wake",
    },
    "MergedFeed": {"add", "client_closed", "drop", "request_id", "turn", "withdraw"},
    "Consumer": {"add", "client_closed", "drop", "request_id", "turn", "withdraw"},
    "Table": {"transacting"},
    "ServedTable": {"transacting"},
    "PartitionedTable": {"place_of", "table_of_all"},
}
"""What other parts of the library call, on the loop."""

OTHER_NAMES = {"aclose": "close"}


def methods(of: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(inspect.unwrap(value))
        for name, value in inspect.getmembers(of, inspect.isfunction)
        if not name.startswith("_")
    }


def shape(signature: inspect.Signature) -> list[tuple[str, object, object]]:
    return [(each.name, each.kind, each.default) for each in signature.parameters.values()]


@pytest.mark.parametrize(("asynchronous", "blocked"), TWINS, ids=[blocked.__name__ for _, blocked in TWINS])
def test_the_same_methods_with_the_same_parameters(asynchronous: type, blocked: type) -> None:
    ours = {OTHER_NAMES.get(name, name): signature for name, signature in methods(asynchronous).items()}
    twins = methods(blocked)
    wanted = ours.keys() - OF_THE_LIBRARY.get(asynchronous.__name__, set())
    assert wanted - twins.keys() == set()
    shapes = {name: shape(ours[name]) for name in wanted}
    assert {name: shape(twins[name]) for name in wanted} == shapes


@pytest.mark.parametrize("twin", MADE, ids=[twin.made for twin in MADE])
def test_what_is_made_is_that_of_its_source(twin: Twin | Calls) -> None:
    """Renewed by ``make twins``."""
    written = twin.written()
    assert twin.path.read_text() == written
    assert "await " not in written
