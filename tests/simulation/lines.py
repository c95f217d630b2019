"""The lines between hosts: how fast bytes leave, how long they are on their way, how many may be."""

from typing import NamedTuple

WINDOW_BYTES = 256 << 10
"""Bytes of one direction of a connection that may be between a write and the read on the other side, at least."""

WINDOW_MAX_BYTES = 6 << 20
"""Largest window on a long line (the default of Linux)."""

SLOW_START_BYTES = 16 << 10
"""What a connection over a long line may have on its way at first, and after it was idle."""

IDLE_S = 1.0
"""A connection that has sent nothing for so long starts slowly again."""

SEGMENT_BYTES = 16 << 10
"""Bytes leave over a line of limited rate in pieces of this size."""


class Line(NamedTuple):
    """The lasting properties of a line between two hosts, equal in both directions."""

    bytes_per_s: float | None = None
    """How fast bytes leave; ``None``: at once."""
    delay_s: float = 0.0
    """How long a byte is on its way, in one direction."""
    shared: bool = True
    """Whether all connections share the rate; else each has it for itself."""

    @property
    def window_bytes(self) -> int:
        """What a connection may have on its way once it has started: twice what fills the line."""
        if not self.delay_s:
            return WINDOW_BYTES
        if self.bytes_per_s is None:
            return WINDOW_MAX_BYTES
        return min(max(round(4 * self.delay_s * self.bytes_per_s), WINDOW_BYTES), WINDOW_MAX_BYTES)


class Condition:
    """How one direction between two hosts behaves: its line, and what faults do to it."""

    __slots__ = ("_free_at_s", "bytes_per_s", "cut", "extra_delay_s", "line")

    def __init__(self) -> None:
        self.cut = False
        self.extra_delay_s = 0.0
        self.bytes_per_s: float | None = None
        self.line: Line | None = None
        self._free_at_s: dict[int, float] = {}

    @property
    def rate(self) -> float | None:
        """Bytes per second that leave; ``None``: all at once."""
        line = None if self.line is None else self.line.bytes_per_s
        if line is None or self.bytes_per_s is None:
            return self.bytes_per_s if line is None else line
        return min(line, self.bytes_per_s)

    def left_at_s(self, now_s: float, connection: int, size_bytes: int) -> float:
        """When the last of these bytes has left, behind what is leaving already."""
        rate = self.rate
        if rate is None or not size_bytes:
            return now_s
        pipe = connection if self.line is not None and not self.line.shared else 0
        free_at_s = max(self._free_at_s.get(pipe, 0.0), now_s) + size_bytes / rate
        self._free_at_s[pipe] = free_at_s
        return free_at_s
