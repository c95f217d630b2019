"""Times as people write them: ISO 8601 with a time zone."""

from datetime import datetime


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
