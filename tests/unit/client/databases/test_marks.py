"""The statements about marks, and tables of earlier versions."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from waltz.client.databases.marks import LAST, Mark, MarkTable, bound, execute_with, request_id_of

KEY = {"PARTITION_ID": 3}
REQUEST_ID = b"0123456789abcdef"

Table = MarkTable[sqlite3.Connection]


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        yield connection


def table() -> Table:
    columns = {"PARTITION_ID": "INTEGER NOT NULL"}
    return MarkTable("marks", columns, tuple(columns), "HIGH_WATER_MARK", execute_with("qmark"))


@pytest.mark.parametrize(
    ("style", "statement", "values"),
    [
        ("qmark", "a = ? AND b = ?", (1, 2)),
        ("numeric", "a = :1 AND b = :2", (1, 2)),
        ("named", "a = :one AND b = :two", {"one": 1, "two": 2}),
        ("format", "a = %s AND b = %s", (1, 2)),
        ("pyformat", "a = %s AND b = %s", (1, 2)),
    ],
)
def test_parameter_styles(style: str, statement: str, values: object) -> None:
    assert bound(style, "a = :one AND b = :two", {"two": 2, "one": 1}) == (statement, values)
    assert bound(style, "SELECT 1", {}) == ("SELECT 1",)


def test_a_mark_says_which_transaction_it_is(connection: sqlite3.Connection) -> None:
    marks = table()
    marks.create(connection)
    marks.create(connection)
    assert marks.read(connection, KEY) is None
    marks.insert(connection, KEY, Mark(-1))
    assert marks.read(connection, KEY) == Mark(-1)
    assert not marks.move(connection, KEY, 0, Mark(5, REQUEST_ID))
    assert marks.move(connection, KEY, -1, Mark(5, REQUEST_ID))
    assert marks.read(connection, KEY) == Mark(5, REQUEST_ID)
    assert marks.move(connection, KEY, 5, Mark(6))
    assert marks.read(connection, KEY) == Mark(6)
    marks.delete(connection, KEY)
    assert marks.read(connection, KEY) is None


def test_a_mark_that_was_moved_by_an_earlier_version_is_another_transaction(connection: sqlite3.Connection) -> None:
    marks = table()
    marks.create(connection)
    marks.insert(connection, KEY, Mark(5, REQUEST_ID))
    connection.execute("UPDATE marks SET HIGH_WATER_MARK = 6")
    assert marks.read(connection, KEY) == Mark(6)


def test_a_table_of_an_earlier_version(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE marks (PARTITION_ID INTEGER NOT NULL PRIMARY KEY, HIGH_WATER_MARK BIGINT NOT NULL)"
    )
    connection.execute("INSERT INTO marks VALUES (3, 7)")
    marks = table()
    assert not marks.look(connection)
    assert marks.read(connection, KEY) == Mark(7)
    assert marks.move(connection, KEY, 7, Mark(8, REQUEST_ID))
    claim = marks.claim(connection, KEY, 8, 9)
    assert claim is not None
    assert marks.finish(connection, KEY, 9, claim, Mark(9, REQUEST_ID))
    claim = marks.claim(connection, KEY, 9, 10)
    assert claim is not None
    assert marks.finish(connection, KEY, 10, claim, Mark(12, REQUEST_ID))
    marks.insert(connection, {"PARTITION_ID": 4}, Mark(-1))
    assert marks.read(connection, KEY) == Mark(12)
    marks.create(connection)
    assert marks.look(connection)
    assert marks.move(connection, KEY, 12, Mark(13, REQUEST_ID))
    assert marks.read(connection, KEY) == Mark(13, REQUEST_ID)


def test_a_claim_is_seen_until_it_is_finished(connection: sqlite3.Connection) -> None:
    marks = table()
    marks.create(connection)
    marks.insert(connection, KEY, Mark(4, REQUEST_ID))
    assert marks.claim(connection, KEY, 3, 4) is None
    claim = marks.claim(connection, KEY, 4, 5)
    assert claim is not None
    assert marks.read(connection, KEY) == Mark(5, claimed=True)
    assert marks.claim(connection, KEY, 5, 6) is None, "nobody goes on behind it"
    assert not marks.finish(connection, KEY, 5, "~another", Mark(5, REQUEST_ID))
    assert marks.finish(connection, KEY, 5, claim, Mark(7, REQUEST_ID))
    assert marks.read(connection, KEY) == Mark(7, REQUEST_ID)
    assert not marks.finish(connection, KEY, 5, claim, Mark(7, REQUEST_ID))


@pytest.mark.parametrize("text", [None, 5, "", "zz" * 16, "00" * 15, "~" + "0" * 31])
def test_what_is_no_request_id(text: object, connection: sqlite3.Connection) -> None:
    assert request_id_of(text) == b""
    marks = table()
    marks.create(connection)
    marks.insert(connection, KEY, Mark(5))
    connection.execute(f"UPDATE marks SET {LAST} = ?", (f"5:{text}",))
    assert marks.read(connection, KEY) == Mark(5)
