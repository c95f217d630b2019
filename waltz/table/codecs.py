"""The codecs of envelope bodies.

zlib is Python's own. Snappy (the raw block format), zstd and LZ4 (its frame format) come with the extra ``table`` and
are loaded at their first use.

Any writer of a log chooses the sizes that its envelopes announce. So a body gets memory as it is decompressed, and a
size that the compressed bytes cannot reach is refused before any library is loaded or memory reserved.
"""

import enum
import mmap
import zlib
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from waltz.common.version import with_extra
from waltz.table.errors import CodecUnavailableError, EnvelopeError

MIN_COMPRESSED_BODY_BYTES = 257
"""Smaller bodies are not compressed."""

_WORTH = 0.9
"""Greatest ratio of compressed to original size; above it the body is stored uncompressed."""

_ZLIB_LEVEL = 6
_SIZE_FIELD_BYTES = 4

_SMALL_BYTES = 64 << 10
"""Largest body whose memory is reserved at once."""

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


class Codec(enum.IntEnum):
    """Compression of an envelope's body, by its number in the envelope."""

    NONE = 0
    ZLIB = 1
    SNAPPY = 2
    ZSTD = 3
    LZ4 = 4


_MOST_PER_BYTE = {Codec.ZLIB: 1032, Codec.SNAPPY: 22, Codec.LZ4: 255}
"""Most bytes that one compressed byte can produce, by format. Frames of zstd contain the size of their content."""


class _Functions(NamedTuple):
    """The functions of cramjam for one codec."""

    compress: Callable[[bytes], bytes]
    decompress_into: Callable[[bytes, bytearray | mmap.mmap], int]
    error: type[Exception]


def compress(codec: Codec, body: bytes) -> bytes | None:
    """The compressed body, or ``None`` when compression saves too little. Raises :class:`CodecUnavailableError`."""
    if codec is Codec.NONE or len(body) < MIN_COMPRESSED_BODY_BYTES:
        return None
    compressed = zlib.compress(body, _ZLIB_LEVEL) if codec is Codec.ZLIB else _functions(codec).compress(body)
    return compressed if len(compressed) + _SIZE_FIELD_BYTES <= _WORTH * len(body) else None


def decompress(codec: Codec, data: bytes, size_bytes: int) -> bytes:
    """The body of ``size_bytes``, which the caller has found acceptable.

    Memory is used for the decompressed data, not for the announced size.

    Raises:
        EnvelopeError: The data is damaged, or has another size.
        CodecUnavailableError: The library is not installed.
    """
    _check_possible(codec, data, size_bytes)
    if codec is Codec.ZLIB:
        return _decompress_zlib(data, size_bytes)
    functions = _functions(codec)
    # A mapping gets its pages when they are written.
    body = bytearray(size_bytes) if size_bytes <= _SMALL_BYTES else mmap.mmap(-1, size_bytes)
    try:
        written = functions.decompress_into(data, body)
    except functions.error as error:
        raise EnvelopeError(f"a body that {codec.name} cannot decompress: {error}") from None
    if written != size_bytes:
        raise EnvelopeError(f"a body of {written} bytes, announced as {size_bytes}")
    return bytes(body)


def _check_possible(codec: Codec, data: bytes, size_bytes: int) -> None:
    """Refuse a size that the compressed data cannot reach."""
    most = _zstd_content_bytes(data) if codec is Codec.ZSTD else _MOST_PER_BYTE[codec] * len(data)
    if most is not None and size_bytes > most:
        raise EnvelopeError(f"a body announced as {size_bytes} bytes; {len(data)} bytes of {codec.name} cannot hold it")


def _zstd_content_bytes(data: bytes) -> int | None:
    """The size of the content by the frame's header; ``None`` if the header has none."""
    if len(data) == len(_ZSTD_MAGIC) or not data.startswith(_ZSTD_MAGIC):
        return None
    descriptor = data[len(_ZSTD_MAGIC)]
    is_single_segment = bool(descriptor & 0x20)
    size_field_bytes = (is_single_segment, 2, 4, 8)[descriptor >> 6]
    if not size_field_bytes:
        return None
    start = len(_ZSTD_MAGIC) + 1 + (not is_single_segment) + (0, 1, 2, 4)[descriptor & 3]
    size_bytes = int.from_bytes(data[start : start + size_field_bytes], "little")
    return size_bytes + 256 if size_field_bytes == 2 else size_bytes


def check_available(codec: Codec) -> None:
    """Raise :class:`CodecUnavailableError` when the library that the codec needs is not installed."""
    if codec not in (Codec.NONE, Codec.ZLIB):
        _functions(codec)


def _decompress_zlib(data: bytes, size_bytes: int) -> bytes:
    decompressor = zlib.decompressobj()
    try:
        body = decompressor.decompress(data, size_bytes + 1)
    except zlib.error as error:
        raise EnvelopeError(f"a body that ZLIB cannot decompress: {error}") from None
    if len(body) != size_bytes or not decompressor.eof or decompressor.unused_data:
        raise EnvelopeError(f"a body that is not one stream of zlib with {size_bytes} bytes in it")
    return body


@cache
def _functions(codec: Codec) -> _Functions:
    try:
        import cramjam
    except ImportError:
        raise CodecUnavailableError(f"the codec {codec.name.lower()} needs cramjam: {with_extra('table')}") from None
    error = cramjam.DecompressionError
    snappy, zstd, lz4 = cramjam.snappy, cramjam.zstd, cramjam.lz4
    if codec is Codec.SNAPPY:
        return _Functions(lambda body: bytes(snappy.compress_raw(body)), snappy.decompress_raw_into, error)
    if codec is Codec.ZSTD:
        return _Functions(lambda body: bytes(zstd.compress(body)), zstd.decompress_into, error)
    assert codec is Codec.LZ4
    return _Functions(lambda body: bytes(lz4.compress(body)), lz4.decompress_into, error)
