"""What the requests of a view node may cost: their number, the memory of their bodies, and their time."""

import contextlib
from collections.abc import Iterator

from waltz.table.served.problems import refused, refused_now

MAX_SCANS = 32
"""Scans at a time: each keeps a state of the table."""
BODY_SHARE = 8
"""A body may be this part of the memory of all bodies."""


class Room:
    """A number of things that may be there at a time."""

    def __init__(self, size: int, what: str) -> None:
        self.used = 0
        self._size = size
        self._what = what

    @contextlib.contextmanager
    def taken(self, amount: int = 1) -> Iterator[None]:
        """Take a part for a while. Raises :class:`~waltz.table.served.problems.Refused` if it is not there."""
        if self.used + amount > self._size:
            raise refused_now(503, "overloaded", f"too many {self._what}; ask again later, or another view node")
        self.used += amount
        try:
            yield
        finally:
            self.used -= amount


class Limits:
    """The limits of one view node."""

    def __init__(self, max_requests: int, max_watches: int, request_memory_bytes: int) -> None:
        self.requests = Room(max_requests, "requests")
        self.watches = Room(max_watches, "watches")
        self.scans = Room(MAX_SCANS, "scans")
        self.max_body_bytes = request_memory_bytes // BODY_SHARE
        self._memory = Room(request_memory_bytes, "bytes of requests")

    @contextlib.contextmanager
    def body(self, announced_bytes: int | None) -> Iterator[None]:
        """Take memory for a body; one of unknown size counts as the largest. Raises like :meth:`Room.taken`."""
        size = self.max_body_bytes if announced_bytes is None else announced_bytes
        if size > self.max_body_bytes:
            raise refused(413, "too-large", f"a body may have {self.max_body_bytes} bytes, by view.requestMemory")
        with self._memory.taken(size):
            yield
