"""The layout byte by byte, round trips, and everything that is no envelope."""

import sys
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.table.strategies import LONG_MAX, envelopes
from waltz.common.ids import LONG_MIN
from waltz.table import codecs
from waltz.table.codecs import Codec
from waltz.table.envelope import (
    Batch,
    Envelope,
    Row,
    SweepMark,
    Truncate,
    announced_body_bytes,
    decode,
    encode,
    envelope_of,
)
from waltz.table.errors import CodecUnavailableError, EnvelopeError

START = "5754 01 00 "
WRITTEN_AT = "0000018bcfe56800 "
WRITTEN_AT_MS = 1_700_000_000_000

GOLDEN: dict[str, tuple[str, Envelope]] = {
    "no rows": (START + WRITTEN_AT + "00 00000000", Batch(WRITTEN_AT_MS, [])),
    "key and value": (
        START + WRITTEN_AT + "00 00000001  08 00000003 6b6579 00000005 76616c7565",
        Batch(WRITTEN_AT_MS, [Row(b"", b"key", b"value")]),
    ),
    "everything a row can have": (
        START + WRITTEN_AT + "00 00000001  0e 0002 7066 00000001 6b 0000000000000007 00000001 76",
        Batch(WRITTEN_AT_MS, [Row(b"pf", b"k", b"v", 7)]),
    ),
    "null value, empty value, tombstone, empty key": (
        START + WRITTEN_AT + "00 00000004  00 00000001 61  08 00000001 62 00000000  01 00000001 63  01 00000000",
        Batch(
            WRITTEN_AT_MS,
            [
                Row(b"", b"a", None),
                Row(b"", b"b", b""),
                Row(b"", b"c", None, tombstone=True),
                Row(b"", b"", None, tombstone=True),
            ],
        ),
    ),
    "a tombstone with prefix and timestamp": (
        START + WRITTEN_AT + "00 00000001  07 0001 70 00000001 6b ffffffffffffffff",
        Batch(WRITTEN_AT_MS, [Row(b"p", b"k", None, -1, tombstone=True)]),
    ),
    "truncate": (START + WRITTEN_AT + "01", Truncate(WRITTEN_AT_MS)),
    "sweep mark": (
        START + WRITTEN_AT + "02 0000000000000001 8000000000000000 0000000000000003 ffffffffffffffff",
        SweepMark(WRITTEN_AT_MS, 1, LONG_MIN, 3, -1),
    ),
}


@pytest.mark.parametrize(("hexadecimal", "envelope"), GOLDEN.values(), ids=GOLDEN)
def test_the_layout_is_the_published_one(hexadecimal: str, envelope: Envelope) -> None:
    data = bytes.fromhex(hexadecimal)
    assert encode(envelope) == data
    assert decode(data) == envelope


COMPRESSED = {
    "zlib, one stored block": "5754 01 01 0000000d  7801 01 0d00 f2ff" + WRITTEN_AT + "00 00000000 16cd02a9",
    "Snappy, one literal": "5754 01 02 0000000d  0d 30" + WRITTEN_AT + "00 00000000",
}


@pytest.mark.parametrize("hexadecimal", COMPRESSED.values(), ids=COMPRESSED)
def test_compressed_bodies_are_read_from_the_published_formats(hexadecimal: str) -> None:
    assert decode(bytes.fromhex(hexadecimal)) == Batch(WRITTEN_AT_MS, [])


def test_a_compressed_body_stands_behind_its_size() -> None:
    envelope = Batch(WRITTEN_AT_MS, [Row(b"", b"k", b"v" * 400)])
    plain = encode(envelope)
    for codec in Codec:
        data = encode(envelope, codec)
        assert decode(data) == envelope
        if codec is not Codec.NONE:
            assert data[:4] == b"WT\x01" + bytes([codec])
            assert int.from_bytes(data[4:8], "big") == len(plain) - 4


def test_what_compression_does_not_make_smaller_goes_plain() -> None:
    envelope = Batch(WRITTEN_AT_MS, [Row(b"", b"k", b"v" * 100)])
    assert encode(envelope, Codec.ZSTD) == encode(envelope)


def test_the_empty_prefix_is_no_prefix() -> None:
    with_empty = bytes.fromhex(START + WRITTEN_AT + "00 00000001  02 0000 00000001 6b")
    assert decode(with_empty) == Batch(WRITTEN_AT_MS, [Row(b"", b"k", None)])


@given(envelopes(), st.sampled_from(Codec))
def test_what_was_encoded_comes_back(envelope: Envelope, codec: Codec) -> None:
    assert decode(encode(envelope, codec)) == envelope


@given(envelopes(), st.data())
def test_every_cut_and_every_tail_is_refused(envelope: Envelope, data: st.DataObject) -> None:
    whole = encode(envelope)
    cut = data.draw(st.integers(0, len(whole) - 1))
    for broken in (whole[:cut], whole + data.draw(st.binary(min_size=1, max_size=9))):
        with pytest.raises(EnvelopeError):
            decode(broken)


@given(envelopes(), st.data())
def test_damage_is_refused_or_another_envelope(envelope: Envelope, data: st.DataObject) -> None:
    damaged = bytearray(encode(envelope, data.draw(st.sampled_from(Codec))))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = decode(bytes(damaged))
    except EnvelopeError:
        return
    assert decode(encode(decoded)) == decoded


@given(st.binary(max_size=60))
def test_other_data_is_no_envelope(data: bytes) -> None:
    if not data.startswith(b"WT\x01"):
        with pytest.raises(EnvelopeError):
            decode(data)


NO_ENVELOPES = {
    "nothing": "",
    "another mark": "5755 01 00" + WRITTEN_AT + "01",
    "another version": "5754 02 00" + WRITTEN_AT + "01",
    "an unknown codec": "5754 01 05 00000009" + WRITTEN_AT + "01",
    "a compressed body without its size": "5754 01 01 0000",
    "an unknown kind": START + WRITTEN_AT + "03",
    "an unknown flag": START + WRITTEN_AT + "00 00000001  10 00000001 6b",
    "a tombstone with a value": START + WRITTEN_AT + "00 00000001  09 00000001 6b 00000001 76",
    "a truncate with more": START + WRITTEN_AT + "01 00",
    "a sweep mark with three bounds": START + WRITTEN_AT + "02" + 24 * "00",
    "more rows than bytes": START + WRITTEN_AT + "00 ffffffff  00 00000001 6b",
    "a key longer than the rest": START + WRITTEN_AT + "00 00000001  00 ffffffff 6b",
    "a value longer than the rest": START + WRITTEN_AT + "00 00000001  08 00000001 6b 7fffffff 76",
    "a prefix that is too long": START + WRITTEN_AT + "00 00000001  02 8000" + 0x8000 * "70" + "00000001 6b",
    "a body larger than allowed": "5754 01 01 04000001" + 10 * "00",
}


@pytest.mark.parametrize("hexadecimal", NO_ENVELOPES.values(), ids=NO_ENVELOPES)
def test_it_is_no_envelope(hexadecimal: str) -> None:
    data = bytes.fromhex(hexadecimal)
    tracemalloc.start()
    try:
        with pytest.raises(EnvelopeError):
            decode(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "envelope",
    [
        Batch(0, [Row(b"", b"k", b"v", tombstone=True)]),
        Batch(0, [Row(b"p" * 0x8000, b"k", b"v")]),
        Batch(LONG_MAX + 1, []),
        Batch(0, [Row(b"", b"k", b"v", LONG_MIN - 1)]),
        Truncate(LONG_MAX + 1),
    ],
)
def test_what_does_not_fit_is_not_written(envelope: Envelope) -> None:
    with pytest.raises(EnvelopeError):
        encode(envelope)


def test_what_nobody_would_read_is_not_written() -> None:
    envelope = Batch(0, [Row(b"", b"k", bytes(1000))])
    for codec in (Codec.NONE, Codec.ZLIB):
        with pytest.raises(EnvelopeError, match="at most 1000"):
            encode(envelope, codec, max_body_bytes=1000)
    with pytest.raises(EnvelopeError, match="more than 1000"):
        decode(encode(envelope, Codec.ZLIB), max_body_bytes=1000)


def test_the_size_of_a_body_is_known_before_it_is_read() -> None:
    envelope = Batch(0, [Row(b"", b"k", bytes(1000))])
    assert announced_body_bytes(encode(envelope)) == 0
    for codec in (Codec.ZLIB, Codec.SNAPPY, Codec.ZSTD, Codec.LZ4):
        assert announced_body_bytes(encode(envelope, codec)) == len(encode(envelope)) - 4
    for data in (b"", b"WT", b"WT\x01\x01\x00\x00\x00", b"anything else that is no envelope"):
        assert announced_body_bytes(data) == 0


def test_a_transaction_is_an_envelope_or_none() -> None:
    assert envelope_of(3, encode(Truncate(7))) == Truncate(7)
    assert envelope_of(3, b"anything") is None
    assert envelope_of(3, encode(Batch(0, [Row(b"", b"k", bytes(1000))]), Codec.ZLIB), max_body_bytes=100) is None


def test_a_codec_that_is_missing_is_named_with_the_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode(Batch(0, [Row(b"", b"k", bytes(1000))]), Codec.ZSTD)
    monkeypatch.setitem(sys.modules, "cramjam", None)
    codecs._functions.cache_clear()
    with pytest.raises(
        CodecUnavailableError, match="transaction 3 is compressed: the codec zstd needs cramjam: install "
    ):
        envelope_of(3, data)


def test_the_longest_prefix_goes() -> None:
    envelope = Batch(0, [Row(b"p" * 0x7FFF, b"k", b"v")])
    assert decode(encode(envelope)) == envelope
