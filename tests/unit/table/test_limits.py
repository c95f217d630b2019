import pytest

from waltz.table.envelope import Row
from waltz.table.errors import KeyTooLongError
from waltz.table.limits import check_rows
from waltz.table.rows import row_key


def test_what_is_within_the_limits() -> None:
    rows = [Row(b"p", b"k", b"v", 10), Row(b"", b"k", None, None, True)]
    check_rows(rows, max_key_bytes=len(row_key(b"p", b"k")), latest_ms=10)
    check_rows(rows, max_key_bytes=None, latest_ms=None)


@pytest.mark.parametrize(
    ("row", "error", "complaint"),
    [
        (Row(b"\x00", b"k", b""), KeyTooLongError, "more than the 4 bytes that this table allows"),
        (Row(b"", b"", b"", 0), ValueError, "a timestamp must be positive, not 0"),
        (Row(b"", b"", b"", 11), ValueError, "the timestamp 11 is too far ahead of this clock; at most 10"),
    ],
)
def test_what_is_not(row: Row, error: type[Exception], complaint: str) -> None:
    with pytest.raises(error, match=complaint):
        check_rows([Row(b"", b"", b""), row], max_key_bytes=4, latest_ms=10)
