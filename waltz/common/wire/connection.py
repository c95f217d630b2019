"""One connection without its socket: the hello of both sides, then frames of the negotiated version."""

from collections.abc import Callable
from typing import NamedTuple

from waltz.common.errors import ProtocolError
from waltz.common.wire.fields import NULLABLE_STRING, SHORT, list_of, structure
from waltz.common.wire.frames import (
    FRAME_HEADER,
    FRAME_HEADER_SIZE_BYTES,
    MAX_PAYLOAD_SIZE_BYTES,
    Bounds,
    Family,
    FrameSplitter,
    FrameWatcher,
    encode_frame,
)

HELLO_MAGIC = ord("H")
HELLO_VERSION = 0

MAX_HELLO_SIZE_BYTES = 4 * 1024
"""Limit of a hello's payload, since its sender is still unknown. A hello of the original has about 30 bytes."""


class Hello(NamedTuple):
    """The first message of each side, sent at once: the codec versions of the side, and a text for logs."""

    versions: list[int]
    text: str | None


_HELLO = structure(Hello, list_of(SHORT, 2), NULLABLE_STRING)


def encode_hello(hello: Hello) -> bytes:
    """The whole frame of ``hello``."""
    return encode_frame(HELLO_MAGIC, HELLO_VERSION, _HELLO.encode(hello))


def decode_hello(buffer: bytes, start: int, end: int) -> Hello:
    """Decode a hello from the payload ``buffer[start:end]``.

    Raises:
        ProtocolError: The payload is not a valid hello.
    """
    hello, position = _HELLO.decode(buffer, start, end)
    if position != end:
        raise ProtocolError(f"Hello: {end - position} bytes left over")
    return hello


class WireConnection:
    """Hello and frames of one connection: bytes in, payloads out, no I/O.

    ``hello`` has to be sent at once. ``version`` is ``None`` until the peer's hello has come; only ``hello`` and
    :meth:`keep_alive` may be sent before.
    """

    __slots__ = (
        "_abridged_type",
        "_early",
        "_family",
        "_max_payload_bytes",
        "_opening_payload_bytes",
        "_splitter",
        "_versions",
        "_watcher",
        "hello",
        "peer_text",
        "version",
    )

    def __init__(
        self,
        family: Family,
        hello_text: str,
        *,
        versions: tuple[int, ...] | None = None,
        max_payload_bytes: int = MAX_PAYLOAD_SIZE_BYTES,
        opening_payload_bytes: int | None = None,
        abridged_type: int | None = None,
        watcher: FrameWatcher | None = None,
    ) -> None:
        """Limits, ``abridged_type`` and ``watcher`` are those of :class:`~waltz.common.wire.frames.FrameSplitter`."""
        self._family = family
        self._versions = family.versions if versions is None else versions
        self._max_payload_bytes = max_payload_bytes
        self._opening_payload_bytes = opening_payload_bytes
        self._abridged_type = abridged_type
        self._watcher = watcher
        self._early = bytearray()
        self._splitter: FrameSplitter | None = None
        self.hello = encode_hello(Hello(sorted(self._versions), hello_text))
        self.version: int | None = None
        self.peer_text: str | None = None

    def receive(self, data: bytes) -> tuple[bytes, Bounds]:
        """Take the bytes of one read. One call may both set ``version`` and return payloads.

        Returns:
            A buffer, and the bounds of every payload that is now complete.

        Raises:
            ProtocolError: The peer breaks the protocol, or has no version in common. The connection has to be closed.
        """
        if self._splitter is None:
            data = self._receive_hello(data)
            if self._splitter is None:
                return b"", []
        return self._splitter.feed(data)

    @property
    def split(self) -> Callable[[bytes], tuple[bytes, Bounds]]:
        """The function to use instead of :meth:`receive` once ``version`` is set; saves one call per read."""
        assert self._splitter is not None, "the peer's hello has come"
        return self._splitter.feed

    @property
    def receiving(self) -> bool:
        """Whether the beginning of a frame has arrived and the rest has not."""
        return self._splitter is not None and self._splitter.receiving

    def receiving_head(self, size_bytes: int) -> bytes:
        """The first payload bytes, at most ``size_bytes``, of the frame of :attr:`receiving`."""
        return b"" if self._splitter is None else self._splitter.receiving_head(size_bytes)

    def keep_alive(self) -> bytes:
        """A keep-alive for the present phase of the connection: a frame without payload."""
        if self.version is None:
            return encode_frame(HELLO_MAGIC, HELLO_VERSION, b"")
        return encode_frame(self._family.magic, self.version, b"")

    def allow_large_frames(self) -> bool:
        """Lift the opening limit.

        Returns:
            Whether a frame was waiting for that. If so, call :meth:`receive`, even with no bytes.
        """
        return self._splitter is not None and self._splitter.allow_large()

    def _receive_hello(self, data: bytes) -> bytes:
        """Look for the peer's hello; returns the bytes after it."""
        early = self._early
        early += data
        while len(early) >= FRAME_HEADER_SIZE_BYTES:
            magic, version, length = FRAME_HEADER.unpack_from(early)
            if magic != HELLO_MAGIC or version != HELLO_VERSION:
                raise ProtocolError(
                    f"the peer does not speak the {self._family.name} protocol "
                    f"(magic 0x{magic:02x} and version {version} instead of a hello)"
                )
            if not 0 <= length <= MAX_HELLO_SIZE_BYTES:
                raise ProtocolError(f"a hello of {length} bytes, at most {MAX_HELLO_SIZE_BYTES} are allowed")
            end = FRAME_HEADER_SIZE_BYTES + length
            if len(early) < end:
                break
            if length:
                self._agree(decode_hello(bytes(early[:end]), FRAME_HEADER_SIZE_BYTES, end))
                self._early = bytearray()
                return bytes(early[end:])
            del early[:end]
        return b""

    def _agree(self, hello: Hello) -> None:
        common = set(self._versions).intersection(hello.versions)
        if not common:
            raise ProtocolError(
                f"no common version of the {self._family.name} protocol: "
                f"we know {sorted(self._versions)}, the peer knows {sorted(set(hello.versions))[:16]}"
            )
        self.peer_text = hello.text
        self.version = max(common)
        self._splitter = FrameSplitter(
            self._family.magic,
            self.version,
            self._max_payload_bytes,
            opening_payload_bytes=self._opening_payload_bytes,
            abridged_type=self._abridged_type,
            watcher=self._watcher,
            run=self._family.run,
        )
