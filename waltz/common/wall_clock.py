"""The wall clock. Decisions take the time as an argument; processes take this function as the default source."""

import time


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
