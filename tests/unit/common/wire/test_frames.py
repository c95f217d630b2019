import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.common.errors import ProtocolError
from waltz.common.wire.frames import FRAME_HEADER, FrameSplitter, Run, encode_frame

MAGIC, VERSION = ord("L"), 4
PAYLOADS = [b"a", b"", b"bc" * 10, b"", b"", b"d" * 300, b"e"]
STREAM = b"".join(encode_frame(MAGIC, VERSION, payload) for payload in PAYLOADS)
WANTED = [payload for payload in PAYLOADS if payload]


def split(splitter: FrameSplitter, *reads: bytes) -> list[bytes]:
    payloads = []
    for read in reads:
        buffer, bounds = splitter.feed(read)
        payloads += [buffer[start:end] for start, end in bounds]
    return payloads


def test_frame_layout() -> None:
    assert encode_frame(ord("S"), 0, b"") == bytes.fromhex("53000000000000")
    assert encode_frame(ord("L"), 0x0102, b"xyz") == bytes.fromhex("4c010200000003") + b"xyz"


def test_many_frames_in_one_read_are_not_copied() -> None:
    buffer, bounds = FrameSplitter(MAGIC, VERSION).feed(STREAM)
    assert buffer is STREAM
    assert [buffer[start:end] for start, end in bounds] == WANTED


def test_split_at_every_place() -> None:
    for first in range(len(STREAM) + 1):
        assert split(FrameSplitter(MAGIC, VERSION), STREAM[:first], STREAM[first:]) == WANTED


def test_split_at_every_two_places_of_a_short_stream() -> None:
    stream = STREAM[:44]
    for first in range(len(stream) + 1):
        for second in range(first, len(stream) + 1):
            reads = stream[:first], stream[first:second], stream[second:] + STREAM[44:]
            assert split(FrameSplitter(MAGIC, VERSION), *reads) == WANTED


def test_byte_by_byte() -> None:
    assert split(FrameSplitter(MAGIC, VERSION), *[STREAM[i : i + 1] for i in range(len(STREAM))]) == WANTED


@given(st.lists(st.binary(max_size=40), max_size=20), st.data())
def test_any_payloads_in_any_reads(payloads: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(encode_frame(MAGIC, VERSION, payload) for payload in payloads)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    reads = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert split(FrameSplitter(MAGIC, VERSION), *reads) == [payload for payload in payloads if payload]


@pytest.mark.parametrize(
    ("header", "text"),
    [
        (FRAME_HEADER.pack(ord("H"), VERSION, 1), "magic 0x48"),
        (FRAME_HEADER.pack(MAGIC, 3, 1), "version 3"),
        (FRAME_HEADER.pack(MAGIC, -1, 1), "version -1"),
        (FRAME_HEADER.pack(MAGIC, VERSION, -1), "negative length -1"),
        (FRAME_HEADER.pack(MAGIC, VERSION, -(1 << 31)), "negative length"),
        (FRAME_HEADER.pack(MAGIC, VERSION, 1001), "frame of 1001 bytes, at most 1000"),
        (b"GET / H", "magic 0x47"),
    ],
)
def test_bad_header(header: bytes, text: str) -> None:
    """Refused as soon as the header is there, wherever it was cut, and for ever after."""
    for before in (b"", encode_frame(MAGIC, VERSION, b"good")):
        for cut in range(len(header)):
            splitter = FrameSplitter(MAGIC, VERSION, max_payload_bytes=1000)
            assert len(split(splitter, before + header[:cut])) == (1 if before else 0)
            for more in (header[cut:], b"", STREAM):
                with pytest.raises(ProtocolError, match=text):
                    splitter.feed(more)


def test_largest_allowed_payload() -> None:
    frame = encode_frame(MAGIC, VERSION, b"x" * 1000)
    assert split(FrameSplitter(MAGIC, VERSION, max_payload_bytes=1000), frame) == [b"x" * 1000]


def test_memory_grows_with_the_bytes_received_not_with_the_length_field() -> None:
    splitter = FrameSplitter(MAGIC, VERSION)
    header = FRAME_HEADER.pack(MAGIC, VERSION, (1 << 31) - 1)
    tracemalloc.start()
    try:
        assert splitter.feed(header) == (header, [])
        for _ in range(50_000):
            assert splitter.feed(b"y") == (b"", [])
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 200_000


def test_a_large_frame_in_small_reads_is_joined_once() -> None:
    """Would take minutes if every read copied what came before."""
    frame = encode_frame(MAGIC, VERSION, bytes(32 << 20))
    reads = [frame[position : position + 1024] for position in range(0, len(frame), 1024)]
    payloads = split(FrameSplitter(MAGIC, VERSION), *reads, encode_frame(MAGIC, VERSION, b"next"))
    assert [len(payload) for payload in payloads] == [32 << 20, 4]


@given(st.lists(st.tuples(st.sampled_from([2, 8]), st.integers(17, 400)), max_size=12), st.data())
def test_large_frames_of_one_type_are_abridged_wherever_the_reads_end(
    frames: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Up to the first frame that is too large and of another type, which is refused."""
    limit = 100
    payloads = [bytes([kind]) + bytes([number]) * (size - 1) for number, (kind, size) in enumerate(frames)]
    stream = b"".join(encode_frame(MAGIC, VERSION, payload) for payload in payloads)
    refused = next((i for i, (kind, size) in enumerate(frames) if kind != 2 and size > limit), None)
    expected = [payload if len(payload) <= limit else payload[:17] for payload in payloads[:refused]]
    splitter = FrameSplitter(MAGIC, VERSION, limit, abridged_type=2)
    found: list[bytes] = []
    error: ProtocolError | None = None
    while stream and error is None:
        size = data.draw(st.integers(1, len(stream)))
        try:
            buffer, bounds = splitter.feed(stream[:size])
        except ProtocolError as refusal:
            error = refusal
            break
        found += [buffer[start:end] for start, end in bounds]
        stream = stream[size:]
    assert (error is not None) == (refused is not None)
    assert found == expected[: len(found)]
    if error is None:
        assert found == expected


@pytest.mark.parametrize("piece_bytes", [1, 5, 30, 5000])
def test_the_head_of_a_frame_that_is_not_complete(piece_bytes: int) -> None:
    payload = bytes(range(256)) * 40
    frame = encode_frame(ord("S"), 0, payload)
    splitter = FrameSplitter(ord("S"), 0)
    assert splitter.receiving_head(21) == b""
    for start in range(0, len(frame) - piece_bytes, piece_bytes):
        _, bounds = splitter.feed(frame[start : start + piece_bytes])
        assert not bounds
        assert splitter.receiving_head(21) == payload[: max(min(start + piece_bytes - 7, 21), 0)]


RUN_HEAD = FRAME_HEADER.pack(MAGIC, VERSION, 3) + b"r"
RUN_LIKE = st.sampled_from(
    [b"rab", b"rL\0", b"r\n\xff", b"rab", b"xab", b"r", b"ra", b"rabc", b"", RUN_HEAD + b"ab", b"r" * 10]
)


@given(st.lists(RUN_LIKE, max_size=30), st.data())
def test_runs_are_the_same_payloads_with_their_headers_between_them(payloads: list[bytes], data: st.DataObject) -> None:
    """Whatever comes between them, looks like them or is cut by the end of a read."""
    stream = b"".join(encode_frame(MAGIC, VERSION, payload) for payload in payloads)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=3)))
    splitter = FrameSplitter(MAGIC, VERSION, run=Run(ord("r"), 3))
    found: list[bytes] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        buffer, bounds = splitter.feed(stream[start:end])
        for first, last in bounds:
            if buffer[first - len(RUN_HEAD) + 1 : first + 1] != RUN_HEAD:
                found.append(buffer[first:last])
                continue
            for frame in range(first - 7, last, 10):
                assert buffer[frame : frame + 8] == RUN_HEAD
                found.append(buffer[frame + 7 : frame + 10])
    assert found == [payload for payload in payloads if payload]


def test_a_run_is_one_piece() -> None:
    frames = 5 * encode_frame(MAGIC, VERSION, b"rab")
    buffer, bounds = FrameSplitter(MAGIC, VERSION, run=Run(ord("r"), 3)).feed(STREAM + frames + STREAM)
    assert [buffer[start:end] for start, end in bounds] == [*WANTED, frames[7:], *WANTED]


def test_what_follows_a_run_is_refused_as_elsewhere() -> None:
    splitter = FrameSplitter(MAGIC, VERSION, run=Run(ord("r"), 3))
    with pytest.raises(ProtocolError, match="frame with magic 0x53"):
        splitter.feed(2 * encode_frame(MAGIC, VERSION, b"rab") + encode_frame(ord("S"), VERSION, b"rab"))
