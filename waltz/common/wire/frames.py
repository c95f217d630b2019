"""Frames, the units of every Waltz connection, independent of the messages in them.

A frame is a magic byte, a codec version (2 bytes), the length of the payload (4 bytes, signed) and the payload. A frame
without payload is a keep-alive.
"""

import re
import struct
from functools import lru_cache
from typing import NamedTuple, Protocol

from waltz.common.errors import ProtocolError

FRAME_HEADER = struct.Struct(">Bhi")
"""Magic, codec version, payload size in bytes."""

FRAME_HEADER_SIZE_BYTES = FRAME_HEADER.size

MAX_PAYLOAD_SIZE_BYTES = (1 << 31) - 1
"""Largest value of the length field; the original has no smaller limit."""

Bounds = list[tuple[int, int]]
"""Start and end of each payload in a buffer."""

ABRIDGED_BYTES = 17
"""Bytes of an abridged payload: the type and the request id of a message between client and server."""

_PIECE_BYTES = 4096
"""Reads of at least this size are kept as they are until the frame is complete. Smaller reads are joined."""

_PREFIX = struct.Struct(">Bh")
_PREFIX_AND_LENGTH = struct.Struct(">3si")
_LENGTH = struct.Struct(">i")


class Run(NamedTuple):
    """The most frequent frames of a connection: the first byte of their payloads, and their common size.

    Consecutive frames of this kind are delivered as one piece, from the first payload to the last.
    """

    first_byte: int
    payload_bytes: int


class Family(NamedTuple):
    """A protocol: its name for messages, its magic byte, and the codec versions offered in the hello."""

    name: str
    magic: int
    versions: tuple[int, ...]
    run: Run | None = None


CLIENT_SERVER = Family("client-server", ord("L"), (0, 1, 2, 3, 4, 5, 6))
"""Versions 5 and 6 are extensions of this implementation; the original knows 0 to 4."""
STORAGE = Family("storage", ord("S"), (0, 1))
STORAGE_ADMIN = Family("storage admin", ord("A"), (0, 1))
"""Version 1 of both protocols of storages is an extension of this implementation; the original knows 0."""


def encode_frame(magic: int, version: int, payload: bytes) -> bytes:
    """Put the header before ``payload``; an empty payload makes a keep-alive."""
    return FRAME_HEADER.pack(magic, version, len(payload)) + payload


@lru_cache(maxsize=64)
def _run_pattern(prefix: bytes, payload_bytes: int, first_byte: int) -> re.Pattern[bytes]:
    """An expression for a whole run; matching costs a tenth of a loop over frames.

    The expression is possessive: it does not backtrack, and so needs no memory for the matched frames.
    """
    head = re.escape(prefix + _LENGTH.pack(payload_bytes) + bytes([first_byte]))
    return re.compile(b"(?:%s.{%d})++" % (head, payload_bytes - 1), re.DOTALL)


_NO_RUN = Run(-1, -1)  # never matches


class FrameWatcher(Protocol):
    """Receives reports about the incomplete frame. Sizes are those of the received part, with the header."""

    def begun(self, size_bytes: int) -> None:
        """A read ended inside a frame."""

    def grown(self, size_bytes: int) -> None:
        """A read brought ``size_bytes`` more of the frame, but not its end."""

    def ended(self) -> None:
        """The frame is complete; also called, before another ``begun``, when a read completed its header only."""


class FrameSplitter:
    """Cuts the bytes of one connection into payloads.

    Memory grows only with the bytes received: a length field reserves nothing. A frame that arrives in many reads is
    joined once, when its last byte is there.

    ``opening_payload_bytes`` is a smaller limit of frames until :meth:`allow_large` is called. A larger frame is
    refused only if no frame before it in the same read might lift the limit.

    Frames beyond the limit are abridged instead of refused if their payload begins with the byte ``abridged_type``:
    the first :data:`ABRIDGED_BYTES` are delivered as the whole payload, and the rest is skipped.

    Consecutive frames of ``run`` count as one payload. A run is longer than the length in its first header; a
    single frame is not.
    """

    __slots__ = (
        "_abridged_type",
        "_limit_bytes",
        "_max_payload_bytes",
        "_missing_bytes",
        "_pending",
        "_prefix",
        "_run",
        "_skip_bytes",
        "_watcher",
    )

    def __init__(
        self,
        magic: int,
        version: int,
        max_payload_bytes: int = MAX_PAYLOAD_SIZE_BYTES,
        *,
        opening_payload_bytes: int | None = None,
        abridged_type: int | None = None,
        watcher: FrameWatcher | None = None,
        run: Run | None = None,
    ) -> None:
        self._prefix = _PREFIX.pack(magic, version)
        self._run = run
        self._max_payload_bytes = max_payload_bytes
        self._limit_bytes = max_payload_bytes
        if opening_payload_bytes is not None:
            self._limit_bytes = min(opening_payload_bytes, max_payload_bytes)
        self._abridged_type = abridged_type
        self._watcher = watcher
        self._skip_bytes = 0  # number of bytes to skip of an abridged frame
        self._pending: list[bytes | bytearray] = []  # the start of a frame that is not complete
        self._missing_bytes = 0  # number of bytes to receive before pending has to be parsed again

    def feed(self, data: bytes) -> tuple[bytes, Bounds]:
        """Take the bytes of one read; skips keep-alives.

        Returns:
            A buffer, and the bounds of every payload that is now complete.

        Raises:
            ProtocolError: Magic or version is wrong, or a length is negative or above the limit. Every later call
                raises the error again.
        """
        pending = self._pending
        unpack = _PREFIX_AND_LENGTH.unpack_from
        size = len(data)
        if size > FRAME_HEADER_SIZE_BYTES and not pending and not self._skip_bytes:
            found, length = unpack(data)
            if length == size - FRAME_HEADER_SIZE_BYTES and found == self._prefix and length <= self._limit_bytes:
                return data, [(FRAME_HEADER_SIZE_BYTES, size)]  # exactly one frame, the usual read of light traffic
        if self._skip_bytes:
            skipped = min(self._skip_bytes, len(data))
            self._skip_bytes -= skipped
            data = data[skipped:]
        if pending:
            if len(data) < self._missing_bytes:
                self._grow(pending, data)
                return b"", []
            pending.append(data)
            data = b"".join(pending)
            self._pending = []
            if self._watcher is not None:
                self._watcher.ended()
        bounds: Bounds = []
        append = bounds.append
        prefix, limit, size = self._prefix, self._limit_bytes, len(data)
        run_first, run_length = self._run or _NO_RUN
        start = 7  # of the payload, after the seven bytes of the frame header
        while start <= size:
            found, length = unpack(data, start - 7)
            if found != prefix or length < 0 or length > limit:
                if bounds and found == prefix and limit < length <= self._max_payload_bytes:
                    self._keep(data, start - 7, 0)
                    return data, bounds
                if found == prefix and length > limit == self._max_payload_bytes and self._abridged_type is not None:
                    if start + ABRIDGED_BYTES > size:
                        self._keep(data, start - 7, start + ABRIDGED_BYTES - size)
                        return data, bounds
                    if data[start] == self._abridged_type:
                        append((start, start + ABRIDGED_BYTES))
                        self._skip_bytes = max(start + length - size, 0)
                        start += length + 7
                        continue
                self._refuse(data[start - 7 : start], length)
            end = start + length
            if end > size:
                self._keep(data, start - 7, end - size)
                return data, bounds
            if length == run_length and data[start] == run_first:
                found_run = _run_pattern(prefix, run_length, run_first).match(data, start - 7)
                end = found_run.end() if found_run else end
            if length:
                append((start, end))
            start = end + 7
        if start - 7 < size:
            self._keep(data, start - 7, start - size)
        return data, bounds

    @property
    def receiving(self) -> bool:
        """Whether the beginning of a frame has arrived and the rest has not."""
        return self._missing_bytes > 0 and bool(self._pending)

    def receiving_head(self, size_bytes: int) -> bytes:
        """The first bytes of the incomplete payload, ``size_bytes`` at most."""
        wanted_bytes = FRAME_HEADER_SIZE_BYTES + size_bytes
        head = b""
        for piece in self._pending if self.receiving else ():
            head += piece[: wanted_bytes - len(head)]
            if len(head) == wanted_bytes:
                break
        return head[FRAME_HEADER_SIZE_BYTES:]

    def allow_large(self) -> bool:
        """Lift the opening limit.

        Returns:
            Whether a frame was waiting for that. If so, call :meth:`feed`, even with no bytes.
        """
        self._limit_bytes = self._max_payload_bytes
        return bool(self._pending) and self._missing_bytes == 0

    def _grow(self, pending: list[bytes | bytearray], data: bytes) -> None:
        if len(data) >= _PIECE_BYTES:
            pending.append(data)
        elif isinstance(pending[-1], bytearray):
            pending[-1] += data  # no object for each byte of a peer that sends single bytes
        else:
            pending.append(bytearray(data))
        self._missing_bytes -= len(data)
        if self._watcher is not None:
            self._watcher.grown(len(data))

    def _keep(self, data: bytes, start: int, missing_bytes: int) -> None:
        self._pending = [data[start:]]
        self._missing_bytes = missing_bytes
        if self._watcher is not None:
            self._watcher.begun(len(data) - start)

    def _refuse(self, header: bytes, length: int) -> None:
        # The wrong header stays, so all later bytes are refused, too.
        self._pending = [header]
        self._missing_bytes = 0
        if header[:3] != self._prefix:
            magic, version = _PREFIX.unpack_from(header)
            expected_magic, expected_version = _PREFIX.unpack(self._prefix)
            raise ProtocolError(
                f"frame with magic 0x{magic:02x} and version {version}, "
                f"expected 0x{expected_magic:02x} and {expected_version}"
            )
        if length < 0:
            raise ProtocolError(f"frame with the negative length {length}")
        opening = " at first" if self._limit_bytes < self._max_payload_bytes else ""
        raise ProtocolError(f"frame of {length} bytes, at most {self._limit_bytes} are allowed{opening}")
