"""Codecs: round trips, the sizes that are worth it, hostile bodies, and a library that is missing."""

import gc
import mmap
import os
import sys
import tracemalloc
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.table import codecs
from waltz.table.codecs import MIN_COMPRESSED_BODY_BYTES, Codec, check_available, compress, decompress
from waltz.table.errors import CodecUnavailableError, EnvelopeError

COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]


@pytest.mark.parametrize("codec", COMPRESSING)
@given(st.binary(max_size=40), st.integers(1, 60))
def test_what_was_compressed_comes_back(codec: Codec, piece: bytes, times: int) -> None:
    body = (piece + b"-") * times
    compressed = compress(codec, body)
    if compressed is None:
        assert len(body) < MIN_COMPRESSED_BODY_BYTES or len(body) < 3 * len(piece) + 400
    else:
        assert len(compressed) + 4 <= 0.9 * len(body)
        assert decompress(codec, compressed, len(body)) == body


@pytest.mark.parametrize("codec", COMPRESSING)
def test_only_what_is_large_and_becomes_smaller_is_compressed(codec: Codec) -> None:
    assert compress(codec, b"a" * 256) is None
    assert compress(codec, b"a" * 257) is not None
    assert compress(codec, bytes(range(256)) * 2) is not None
    assert compress(codec, bytes(number * number * 40503 >> 5 & 255 for number in range(600))) is None
    assert compress(Codec.NONE, b"a" * 10_000) is None


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("announced", [0, 1, 999, 1001, 5000])
def test_a_body_of_another_size_is_refused(codec: Codec, announced: int) -> None:
    compressed = compress(codec, b"ab" * 500)
    assert compressed is not None
    with pytest.raises(EnvelopeError, match="body"):
        decompress(codec, compressed, announced)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_damage_is_refused(codec: Codec) -> None:
    compressed = compress(codec, b"ab" * 500)
    assert compressed is not None
    for damaged in (b"", compressed[:-1], compressed + b"x", compressed + compressed, b"\xff" * 50):
        with pytest.raises(EnvelopeError, match="body"):
            decompress(codec, damaged, 1000)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_bomb_takes_no_more_than_announced(codec: Codec) -> None:
    bomb = compress(codec, bytes(32 << 20))
    assert bomb is not None
    tracemalloc.start()
    try:
        with pytest.raises(EnvelopeError, match="body"):
            decompress(codec, bomb, 1000)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def resident_bytes() -> int:
    """The resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


IMPOSSIBLE = {
    "lz4, one byte": (Codec.LZ4, b"\x00"),
    "lz4, a ratio above 255": (Codec.LZ4, bytes((64 << 20) // 256)),
    "Snappy, a ratio above 22": (Codec.SNAPPY, bytes((64 << 20) // 23)),
    "zlib, a ratio above 1032": (Codec.ZLIB, bytes((64 << 20) // 1033)),
    "zstd, a frame of 1 byte": (Codec.ZSTD, b"\x28\xb5\x2f\xfd\x20\x01\x09\x00\x00a"),
    "zstd, a frame of 1000 bytes": (Codec.ZSTD, bytes(compress(Codec.ZSTD, b"ab" * 500) or b"")),
    "zstd, a frame of 4 MiB": (Codec.ZSTD, bytes(compress(Codec.ZSTD, bytes(4 << 20)) or b"")),
}


@pytest.mark.parametrize(("codec", "data"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_a_size_that_the_bytes_cannot_make_is_refused_before_anything_is_read(
    codec: Codec, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise AssertionError("it was read")

    monkeypatch.setattr(codecs, "_functions", fail)
    monkeypatch.setattr(codecs, "_decompress_zlib", fail)
    with pytest.raises(EnvelopeError, match="cannot hold it"):
        decompress(codec, data, 64 << 20)


@pytest.mark.parametrize("size_bytes", [1 << 20, 60 << 20])
@pytest.mark.parametrize("codec", COMPRESSING)
def test_what_compresses_best_is_possible(codec: Codec, size_bytes: int) -> None:
    """Zeros come next to the ratio that the format allows."""
    body = bytes(size_bytes)
    compressed = compress(codec, body)
    assert compressed is not None
    assert decompress(codec, compressed, size_bytes) == body


def test_a_frame_of_zstd_may_be_silent_about_its_content() -> None:
    silent = b"\x28\xb5\x2f\xfd\x00\x58\x09\x00\x00a"
    assert decompress(Codec.ZSTD, silent, 1) == b"a"
    with pytest.raises(EnvelopeError, match="announced as"):
        decompress(Codec.ZSTD, silent, 64 << 20)


@pytest.mark.parametrize("codec", [Codec.SNAPPY, Codec.ZSTD, Codec.LZ4])
def test_a_body_that_fails_takes_the_memory_of_what_was_read_only(codec: Codec) -> None:
    """Megabytes that are no body at all, and might be one of 64 MiB by their number."""
    garbage = b"\x04\x22\x4d\x18" + bytes(3 << 20)
    before = resident_bytes()
    peak = 0

    class Watched(mmap.mmap):
        def __del__(self) -> None:
            nonlocal peak
            peak = max(peak, resident_bytes())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mmap, "mmap", Watched)
        with pytest.raises(EnvelopeError, match="cannot decompress"):
            decompress(codec, garbage, 64 << 20)
    gc.collect()
    assert 0 < peak < before + (16 << 20)


def test_formats_are_those_of_the_layout() -> None:
    """Each begins as other implementations expect it; Snappy's block begins with the size as a varint."""
    body = b"ab" * 500
    for codec, start in (
        (Codec.SNAPPY, b"\xe8\x07"),
        (Codec.ZSTD, b"\x28\xb5\x2f\xfd"),
        (Codec.LZ4, b"\x04\x22\x4d\x18"),
    ):
        compressed = compress(codec, body)
        assert compressed is not None
        assert compressed.startswith(start)
    compressed = compress(Codec.ZLIB, body)
    assert compressed is not None
    assert zlib.decompress(compressed) == body


def test_a_missing_library_is_named_and_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)
    codecs._functions.cache_clear()
    check_available(Codec.NONE)
    check_available(Codec.ZLIB)
    for codec in (Codec.SNAPPY, Codec.ZSTD, Codec.LZ4):
        with pytest.raises(CodecUnavailableError, match="needs cramjam: install waltz-log with its extra 'table'"):
            decompress(codec, b"anything", 10)
        with pytest.raises(CodecUnavailableError):
            check_available(codec)
    with pytest.raises(EnvelopeError, match="cannot hold it"):  # nobody can read it
        decompress(Codec.LZ4, b"anything", 64 << 20)
