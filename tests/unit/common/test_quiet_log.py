"""Messages that are repeated for as long as something is away."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.common.quiet_log import BURST, FIRST_REPEAT_S, LAST_REPEAT_S, MAX_KINDS, OutageLog, QuietLog

logger = logging.getLogger(__name__)


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_a_trouble_is_told_at_once_and_then_ever_more_rarely(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    outage = OutageLog(logger, clock)
    for _ in range(2 * 3600):
        outage.failed("refused")
        clock.now_s += 0.5
    texts = [record.getMessage() for record in caplog.records]
    assert texts[:2] == [
        "refused; trying again",
        "refused; still trying after 21 attempts; next message in 20 s at the earliest",
    ]
    assert len(texts) == 1 + 10  # after 10, 30, 70, 150, 310, 630 s, and then every 600 s of an hour


def test_another_trouble_and_another_outage_are_news(caplog: pytest.LogCaptureFixture) -> None:
    outage = OutageLog(logger, Clock())
    for trouble in ("refused", "no such host", "refused", "no such host"):
        outage.failed(trouble)
    assert [record.getMessage() for record in caplog.records] == ["refused; trying again", "no such host; trying again"]
    outage.over()
    caplog.clear()
    outage.failed("refused")
    assert [record.getMessage() for record in caplog.records] == ["refused; trying again"]


@given(st.lists(st.tuples(st.text(max_size=2), st.floats(0, 60)), max_size=200))
def test_messages_are_bounded_by_the_time_whatever_is_said(attempts: list[tuple[str, float]]) -> None:
    clock, told = Clock(), 0

    def count(record: logging.LogRecord) -> bool:
        nonlocal told
        told += 1
        return False

    counting = logging.Logger("counting")
    counting.addFilter(count)
    outage = OutageLog(counting, clock)
    for trouble, pause_s in attempts:
        outage.failed(trouble)
        clock.now_s += pause_s
    assert told <= MAX_KINDS + (clock.now_s - 1000.0) / FIRST_REPEAT_S
    assert FIRST_REPEAT_S < LAST_REPEAT_S


async def test_messages_that_others_provoke_are_bounded_whatever_their_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    quiet = QuietLog(logger)
    for number in range(BURST):
        quiet.info("message %d", number)
        quiet.warning("message %d", number)
    assert len(caplog.records) == BURST
    assert {record.levelname for record in caplog.records} == {"INFO", "WARNING"}
    quiet._window_end_s = 0.0
    quiet.info("another")
    assert [record.getMessage() for record in caplog.records[BURST:]] == [
        f"{BURST} more messages like these were left out",
        "another",
    ]
