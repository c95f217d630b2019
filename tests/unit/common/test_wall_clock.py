"""The wall clock."""

import time

from waltz.common.wall_clock import now_ms


def test_it_counts_milliseconds_since_the_epoch() -> None:
    before_s = time.time()
    found_ms = now_ms()
    assert before_s * 1000 - 1 <= found_ms <= time.time() * 1000
