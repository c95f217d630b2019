"""Times as people write them (ISO 8601 with a time zone), and as messages and files hold them (milliseconds)."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime.fromtimestamp(0, UTC)
_MILLISECOND = timedelta(milliseconds=1)


def parse_time(text: str) -> datetime:
    """The time that ``text`` tells. Raises ``ValueError`` with what is expected, also without a time zone."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        found = None
    if found is None or found.utcoffset() is None:
        lacks = "" if found is None else ": the time zone is missing"
        raise ValueError(
            f"expected a time with its zone, such as 2026-03-01T12:00:00Z or 2026-03-01T12:00:00+02:00, found {text!r}"
            + lacks
        )
    return found


def to_milliseconds(time: datetime) -> int:
    """Whole milliseconds since the epoch, not later than a time, which has a time zone."""
    return (time - _EPOCH) // _MILLISECOND


def from_milliseconds(time_ms: int) -> datetime:
    """The time in UTC. Raises ``OverflowError`` for one that no calendar has."""
    return _EPOCH + time_ms * _MILLISECOND
