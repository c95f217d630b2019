"""Times as people write them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.common.iso_time import from_milliseconds, parse_time, to_milliseconds

ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.datetimes(timezones=ZONES))
def test_what_python_writes_is_read(time: datetime) -> None:
    assert parse_time(time.isoformat()) == time


@given(st.datetimes(timezones=ZONES, min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1)))
def test_milliseconds_are_never_later(time: datetime) -> None:
    assert timedelta(0) <= time - from_milliseconds(to_milliseconds(time)) < timedelta(milliseconds=1)


def test_utc_is_written_as_a_letter_or_as_a_number() -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    for text in ("2026-03-01T12:00:00Z", "2026-03-01 13:00+01:00", " 2026-03-01T12:00:00.000+00:00 "):
        assert parse_time(text) == noon


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01T12:00:00Z", "1700000000"])
def test_what_is_no_time_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="expected a time with its zone, such as") as refused:
        parse_time(text)
    assert repr(text) in str(refused.value)


@pytest.mark.parametrize("text", ["2026-03-01T12:00:00", "2026-03-01"])
def test_a_zone_is_needed(text: str) -> None:
    with pytest.raises(ValueError, match="the time zone is missing"):
        parse_time(text)
