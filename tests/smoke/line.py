"""What a line does to bytes, as arithmetic: when those that are put on it now come out at the other end."""

from typing import NamedTuple

QUEUE_BYTES = 64 << 10
"""What waits before a slow line, beside what is on it."""

FAST_IN_FLIGHT_BYTES = 16 << 20
"""What may be on a line that has a delay and no limit of its rate."""


class Shape(NamedTuple):
    """The properties of a line, the same in both directions."""

    rate: float | None = None
    """Bytes per second; ``None``: as many as one likes."""
    delay_s: float = 0.0
    """From one end to the other."""

    @classmethod
    def of(cls, megabits: float, round_trip_s: float = 0.0) -> "Shape":
        """As people speak of lines: Mbit/s, and the time there and back."""
        return cls(megabits * 1e6 / 8, round_trip_s / 2)

    def __str__(self) -> str:
        rate = "any rate" if self.rate is None else f"{self.rate * 8 / 1e6:g} Mbit/s"
        return f"{rate}, {2000 * self.delay_s:g} ms"

    @property
    def in_flight_bytes(self) -> int:
        """How much may be taken from the sender before it has come out: more, and he would not feel the line."""
        if self.rate is None:
            return FAST_IN_FLIGHT_BYTES if self.delay_s else QUEUE_BYTES
        return int(self.rate * self.delay_s) + QUEUE_BYTES


class Line:
    """One direction of a line, shared by all connections that go over it."""

    __slots__ = ("_free_at_s", "shape")

    def __init__(self) -> None:
        self.shape = Shape()
        self._free_at_s = 0.0

    def put(self, size_bytes: int, now_s: float) -> float:
        """Put bytes on the line, behind all that is on it; when the last of them comes out."""
        left_at_s = now_s
        if self.shape.rate is not None:
            left_at_s = max(now_s, self._free_at_s) + size_bytes / self.shape.rate
        self._free_at_s = left_at_s
        return left_at_s + self.shape.delay_s
