"""The codecs of envelope bodies.

zlib is Python's own. Snappy (the raw block format), zstd and LZ4 (its frame format) come with the extra ``table`` and
are loaded when they are first used.
"""

import enum
import zlib
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from waltz.table.errors import CodecUnavailableError, EnvelopeError

MIN_COMPRESSED_BODY_BYTES = 257
"""Smaller bodies are not worth the time."""

_WORTH = 0.9
"""Of the size of a body, what its compressed form may take at most; else the body goes as it is."""

_ZLIB_LEVEL = 6
_SIZE_FIELD_BYTES = 4


class Codec(enum.IntEnum):
    """How the body of an envelope is compressed, by the number that stands in it."""

    NONE = 0
    ZLIB = 1
    SNAPPY = 2
    ZSTD = 3
    LZ4 = 4


class _Functions(NamedTuple):
    """What cramjam has for one codec."""

    compress: Callable[[bytes], bytes]
    decompress_into: Callable[[bytes, bytearray], int]
    error: type[Exception]


def compress(codec: Codec, body: bytes) -> bytes | None:
    """The compressed body, or ``None`` when that is not worth it. Raises :class:`CodecUnavailableError`."""
    if codec is Codec.NONE or len(body) < MIN_COMPRESSED_BODY_BYTES:
        return None
    compressed = zlib.compress(body, _ZLIB_LEVEL) if codec is Codec.ZLIB else _functions(codec).compress(body)
    return compressed if len(compressed) + _SIZE_FIELD_BYTES <= _WORTH * len(body) else None


def decompress(codec: Codec, data: bytes, size_bytes: int) -> bytes:
    """The body of ``size_bytes``, which the caller has found acceptable.

    No more than that is reserved for it. Raises :class:`EnvelopeError` when the data is damaged or has another size,
    and :class:`CodecUnavailableError`.
    """
    if codec is Codec.ZLIB:
        return _decompress_zlib(data, size_bytes)
    functions = _functions(codec)
    body = bytearray(size_bytes)
    try:
        written = functions.decompress_into(data, body)
    except functions.error as error:
        raise EnvelopeError(f"a body that {codec.name} cannot decompress: {error}") from None
    if written != size_bytes:
        raise EnvelopeError(f"a body of {written} bytes, announced as {size_bytes}")
    return bytes(body)


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
        raise CodecUnavailableError(
            f"the codec {codec.name.lower()} needs cramjam: pip install 'waltz-log[table]'"
        ) from None
    error = cramjam.DecompressionError
    snappy, zstd, lz4 = cramjam.snappy, cramjam.zstd, cramjam.lz4
    if codec is Codec.SNAPPY:
        return _Functions(lambda body: bytes(snappy.compress_raw(body)), snappy.decompress_raw_into, error)
    if codec is Codec.ZSTD:
        return _Functions(lambda body: bytes(zstd.compress(body)), zstd.decompress_into, error)
    assert codec is Codec.LZ4
    return _Functions(lambda body: bytes(lz4.compress(body)), lz4.decompress_into, error)
