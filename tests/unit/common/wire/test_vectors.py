"""Every message of the original's codecs, byte for byte, and what is left of it when it is damaged."""

import tracemalloc
from collections import Counter
from collections.abc import Iterable

import crcmod.predefined
import pytest

from tests.unit.common.wire import vectors
from tests.unit.common.wire.vectors import Vector
from waltz.common.checksum import checksum
from waltz.common.errors import ProtocolError
from waltz.common.wire.client_server import MountResponse, PartitionState
from waltz.common.wire.frames import FRAME_HEADER

ALL = vectors.message_vectors()
ENCODED = [(vector, vector.frame) for vector in ALL if vector.frame is not None]
START = FRAME_HEADER.size


def describe(value: object) -> str:
    return f"{value.codec}-{value.name}" if isinstance(value, Vector) else ""


def expected(vector: Vector) -> object:
    """What decoding must give: the message, as far as its version can say it."""
    if isinstance(vector.message, MountResponse) and vector.version < 3:
        ready = vector.message.state is PartitionState.READY
        return vector.message._replace(state=PartitionState.READY if ready else PartitionState.NOT_READY)
    return vector.message


def test_all_codecs_are_there() -> None:
    counts = Counter(vector.codec for vector in ALL)
    assert set(counts) == {f"MessageCodecV{version}" for version in range(5)} | {
        "StorageMessageCodecV0",
        "AdminMessageCodecV0",
    }
    assert len(ENCODED) > 400


@pytest.mark.parametrize(("vector", "frame"), ENCODED, ids=describe)
def test_vector(vector: Vector, frame: bytes) -> None:
    assert vectors.encode(vector.codec, vector.version, vector.message) == frame
    message = vectors.decode(vector.codec, vector.version, frame, START, len(frame))
    assert message == expected(vector)
    assert type(message) is type(vector.message)
    assert vectors.encode(vector.codec, vector.version, message) == frame


def test_batch_of_a_codec_equals_the_plain_decoder() -> None:
    for codec in {vector.codec for vector in ALL}:
        chosen = [(vector, frame) for vector, frame in ENCODED if vector.codec == codec]
        buffer, bounds = b"", []
        for _, frame in chosen:
            bounds.append((len(buffer) + START, len(buffer) + len(frame)))
            buffer += frame
        messages = vectors.decode_batch(codec, chosen[0][0].version, buffer, bounds)
        assert messages == [expected(vector) for vector, _ in chosen]
        assert list(map(type, messages)) == [type(vector.message) for vector, _ in chosen]


@pytest.mark.parametrize("vector", [vector for vector in ALL if vector.error is not None], ids=describe)
def test_vector_that_cannot_be_encoded(vector: Vector) -> None:
    with pytest.raises(ProtocolError) as raised:
        vectors.encode(vector.codec, vector.version, vector.message)
    assert vector.error is not None
    if "not supported" in vector.error:
        kind = vector.error.split()[1]
        assert f"{kind} locks not supported" in str(raised.value)
        assert "upgrade servers" in str(raised.value)
    else:
        assert vector.name in str(raised.value)


def some(limit_bytes: int) -> list[tuple[Vector, bytes]]:
    """One vector of each codec, message and size."""
    found = {(vector.codec, vector.name, len(frame)): (vector, frame) for vector, frame in ENCODED}
    return [(vector, frame) for vector, frame in found.values() if len(frame) <= limit_bytes]


def test_truncated_at_every_byte() -> None:
    """Both where the buffer ends and where another frame follows."""
    for vector, frame in some(1000):
        for end in range(START, len(frame)):
            for buffer in (frame[:end], frame + frame):
                with pytest.raises(ProtocolError):
                    vectors.decode(vector.codec, vector.version, buffer, START, end)
                if end > START:
                    with pytest.raises(ProtocolError):
                        vectors.decode_batch(vector.codec, vector.version, buffer, [(START, end)])


def test_left_over_bytes() -> None:
    for vector, frame in some(100_000):
        for extra in (b"\x00", b"\x01", b"\x00" * 8):
            longer = frame + extra
            with pytest.raises(ProtocolError):
                vectors.decode(vector.codec, vector.version, longer, START, len(longer))
            with pytest.raises(ProtocolError):
                vectors.decode_batch(vector.codec, vector.version, longer, [(START, len(longer))])


@pytest.mark.parametrize(
    ("codec", "known"),
    [
        ("MessageCodecV0", range(13)),
        ("MessageCodecV1", range(15)),
        ("MessageCodecV2", range(21)),
        ("MessageCodecV3", range(21)),
        ("MessageCodecV4", range(23)),
        ("StorageMessageCodecV0", range(1, 19)),
        ("AdminMessageCodecV0", [1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14]),
    ],
)
def test_unknown_types(codec: str, known: Iterable[int]) -> None:
    version = int(codec[-1])
    for number in known:
        with pytest.raises(ProtocolError) as raised:
            vectors.decode(codec, version, bytes([number]), 0, 1)
        assert "unknown" not in str(raised.value)
    for number in set(range(256)).difference(known):
        payload = bytes([number]) + bytes(64)
        with pytest.raises(ProtocolError, match=f"unknown message type {number} "):
            vectors.decode(codec, version, payload, 0, len(payload))
        with pytest.raises(ProtocolError):
            vectors.decode_batch(codec, version, payload, [(0, len(payload))])
    with pytest.raises(ProtocolError):
        vectors.decode(codec, version, b"", 0, 0)


def test_any_four_bytes_replaced_by_extreme_counts() -> None:
    """Wherever a count or size may stand: a protocol error or a message, at once and without memory for the count."""
    sources = [(vector, frame) for vector, frame in some(300) if vector.codec in _NEWEST]
    tracemalloc.start()
    try:
        for vector, frame in sources:
            for position in range(START + 1, len(frame) - 3):
                for extreme in (b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff", b"\x10\x00\x00\x00"):
                    damaged = frame[:position] + extreme + frame[position + 4 :]
                    plain = batch = None
                    try:
                        plain = vectors.decode(vector.codec, vector.version, damaged, START, len(frame))
                    except ProtocolError:
                        plain = None
                    try:
                        (batch,) = vectors.decode_batch(vector.codec, vector.version, damaged, [(START, len(frame))])
                    except ProtocolError:
                        batch = None
                    assert plain == batch
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4_000_000


_NEWEST = {"MessageCodecV4", "StorageMessageCodecV0", "AdminMessageCodecV0"}


def test_checksum_vectors() -> None:
    independent = crcmod.predefined.mkCrcFun("crc-32")
    lines = [line for line in vectors.wire_lines() if line["codec"] == "checksum"]
    assert lines
    for line in lines:
        data = bytes.fromhex(line["fields"]["data"]["bytes_hex"])
        assert checksum(data) == line["crc32_signed"]
        assert checksum(data) & 0xFFFF_FFFF == independent(data)


@pytest.mark.parametrize(
    ("codec", "frame_hex"),
    [
        (
            "MessageCodecV0",
            "4c00000000003202000000070000000300000002000001020000000000000029000000010033398bfffffffe0000000568656c6c6f3610a686",
        ),
        (
            "MessageCodecV4",
            "4c00040000003e020000000700000003000000020000010200000000000000290000000100000001000000010000000200000000fffffffe0000000568656c6c6f3610a686",
        ),
        ("MessageCodecV4", "4c0004000000190c000000070000000300000002000001028000000000000000"),
        (
            "StorageMessageCodecV0",
            "53000000000041060000000000000005000000000000000900000001000000010000000000000000000000010000000200000003000000040000000700000003616263352441c200",
        ),
        ("StorageMessageCodecV0", "5300000000001e040000000000000005000000000000000900000001ffffffffffffffff01"),
        ("AdminMessageCodecV0", "410000000000170600000000000000030000000200000000000000010100"),
    ],
)
def test_frames_of_the_specification(codec: str, frame_hex: str) -> None:
    frame = bytes.fromhex(frame_hex)
    assert FRAME_HEADER.unpack_from(frame) == (frame[0], int(codec[-1]), len(frame) - START)
    message = vectors.decode(codec, int(codec[-1]), frame, START, len(frame))
    assert vectors.encode(codec, int(codec[-1]), message) == frame
