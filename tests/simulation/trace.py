"""What happened in a simulation: readable lines, and one number that differs when anything differs."""

import struct
import zlib
from collections.abc import Callable

_EVENT = struct.Struct(">dI")


class Trace:
    """Events of one run, in order of virtual time."""

    def __init__(self, clock: Callable[[], float], echo: Callable[[str], None] | None = None) -> None:
        """``echo`` is given every line at once; without it lines are only collected."""
        self.lines: list[str] = []
        self.events = 0
        """Events that went into :attr:`digest`."""
        self.digest = 0
        """Two runs with the same digest delivered the same bytes at the same times."""
        self._clock = clock
        self._echo = echo

    def line(self, who: str, what: str) -> None:
        """One event for the reader."""
        text = f"{self._clock():11.6f}  {who:<10} {what}"
        self.lines.append(text)
        self.count(0, what.encode())
        if self._echo is not None:
            self._echo(text)

    def note(self, who: str, what: str) -> None:
        """A line that is no event: its text may differ between runs that are otherwise alike."""
        text = f"{self._clock():11.6f}  {who:<10} {what}"
        self.lines.append(text)
        if self._echo is not None:
            self._echo(text)

    def count(self, number: int, data: bytes) -> None:
        """One event for the digest: bytes that came out of connection, disk or session ``number``."""
        self.events += 1
        self.digest = zlib.crc32(data, zlib.crc32(_EVENT.pack(self._clock(), number & 0xFFFFFFFF), self.digest))
