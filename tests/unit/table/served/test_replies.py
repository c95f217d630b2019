"""Answers are what they should be, or are refused."""

import pytest

from waltz.client.errors import NotAuthorizedError
from waltz.table.errors import TableError, ViewUnavailableError
from waltz.table.rows import TableRow, Version
from waltz.table.served.replies import bytes_in, check_end, fields_of, number_of, row_in, rows_in
from waltz.table.served.texts import row_text

ROW = TableRow(b"p", b"k", b"v", 1, Version(2, 3), 4, tombstone=False)


def test_what_is_told_is_read() -> None:
    assert number_of(-1) == -1
    assert bytes_in({"key": "k"}, "key") == b"k"
    assert row_in(row_text(ROW)) == ROW
    assert rows_in({"rows": [row_text(ROW)]}, None) == rows_in({"rows": [row_text(ROW)]}, b"p") == [ROW]
    assert rows_in({"rows": [row_text(ROW)]}, b"other") == []
    assert rows_in({"truncate": True}, None) == []


def test_anything_else_is_refused() -> None:
    for wrong in (None, -2, True, 1.5, "1", 1 << 63):
        with pytest.raises(ViewUnavailableError):
            number_of(wrong)
    value: object
    for value in (None, [], "x"):
        with pytest.raises(ViewUnavailableError):
            fields_of(value)
        with pytest.raises(ViewUnavailableError):
            row_in(value)
    with pytest.raises(ViewUnavailableError):
        bytes_in({}, "key")
    rows: object
    for rows in (5, {}, [5]):
        with pytest.raises(ViewUnavailableError):
            rows_in({"rows": rows}, None)


def test_some_ends_of_watches_are_ends_of_all() -> None:
    with pytest.raises(NotAuthorizedError, match="may not"):
        check_end({"reason": "forbidden", "detail": "may not"})
    with pytest.raises(TableError, match="a codec"):
        check_end({"reason": "failed", "detail": "a codec"})
    for reason in ("slow", "closed", None):
        check_end({"reason": reason})
