import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.common.wire import vectors
from waltz.common.errors import ProtocolError
from waltz.common.wire.connection import (
    MAX_HELLO_SIZE_BYTES,
    Hello,
    WireConnection,
    decode_hello,
    encode_hello,
)
from waltz.common.wire.frames import CLIENT_SERVER, FRAME_HEADER, STORAGE, STORAGE_ADMIN, Family, encode_frame

KEEP_ALIVE = bytes.fromhex("48000000000000")


def test_hello_vectors() -> None:
    lines = [line for line in vectors.wire_lines() if line["codec"] == "HelloCodec"]
    assert len(lines) == 16
    for line in lines:
        hello = Hello(line["fields"]["versions"], line["fields"]["message"])
        frame = bytes.fromhex(line["frame_header_hex"] + line["hex"])
        assert encode_hello(hello) == frame
        assert decode_hello(frame, FRAME_HEADER.size, len(frame)) == hello
        for end in range(FRAME_HEADER.size, len(frame)):
            with pytest.raises(ProtocolError):
                decode_hello(frame, FRAME_HEADER.size, end)
        with pytest.raises(ProtocolError, match="left over"):
            decode_hello(frame + b"\0", FRAME_HEADER.size, len(frame) + 1)


def test_frame_vectors() -> None:
    frames = {line["message"]: bytes.fromhex(line["hex"]) for line in vectors.wire_lines() if line["codec"] == "frame"}
    client = WireConnection(CLIENT_SERVER, "Waltz Client", versions=(0, 1, 2, 3, 4))
    assert client.hello == frames.pop("Hello(Waltz Client, versions 0-4)")
    assert client.keep_alive() == frames.pop("KeepAlive before the handshake (HelloCodec)")
    client.receive(client.hello)
    assert client.version == 4
    assert client.keep_alive() == frames.pop("KeepAlive in MessageCodecV4")
    mount = frames.pop("MountRequest in MessageCodecV4")
    assert client.receive(mount) == (mount, [(7, len(mount))])
    assert not frames


@pytest.mark.parametrize("family", [CLIENT_SERVER, STORAGE, STORAGE_ADMIN])
def test_both_sides_agree_on_the_newest_version(family: Family) -> None:
    left, right = WireConnection(family, "left"), WireConnection(family, "right")
    left.receive(right.hello)
    right.receive(left.hello)
    assert left.version == right.version == max(family.versions)
    assert (left.peer_text, right.peer_text) == ("right", "left")


@pytest.mark.parametrize(
    ("ours", "theirs", "agreed"),
    [((0, 1, 2, 3, 4), (0, 1, 2), 2), ((0, 1), (1, 4), 1), ((3,), (3,), 3), ((0, 1, 2, 3, 4), (-1, 0, 32767), 0)],
)
def test_newest_common_version(ours: tuple[int, ...], theirs: tuple[int, ...], agreed: int) -> None:
    left = WireConnection(CLIENT_SERVER, "left", versions=ours)
    right = WireConnection(CLIENT_SERVER, "right", versions=theirs)
    left.receive(right.hello)
    right.receive(left.hello)
    assert left.version == right.version == agreed


@pytest.mark.parametrize("theirs", [[], [99], [-1, 32767]])
def test_no_common_version(theirs: list[int]) -> None:
    connection = WireConnection(CLIENT_SERVER, "us")
    with pytest.raises(ProtocolError, match="no common version of the client-server protocol"):
        connection.receive(encode_hello(Hello(theirs, "them")))
    assert connection.version is None
    with pytest.raises(ProtocolError):
        connection.receive(encode_hello(Hello([4], "them")))


def test_cut_at_every_place_with_keep_alives_and_frames_behind_the_hello() -> None:
    stream = (
        KEEP_ALIVE * 2
        + encode_hello(Hello([0, 1, 2], None))
        + encode_frame(ord("L"), 2, b"one")
        + encode_frame(ord("L"), 2, b"")
        + encode_frame(ord("L"), 2, b"two")
    )
    for cut in range(len(stream) + 1):
        connection = WireConnection(CLIENT_SERVER, "us")
        payloads = []
        for read in (stream[:cut], stream[cut:]):
            buffer, bounds = connection.receive(read)
            payloads += [buffer[start:end] for start, end in bounds]
        assert payloads == [b"one", b"two"]
        assert connection.version == 2
        assert connection.peer_text is None


def test_a_second_hello_is_refused() -> None:
    connection = WireConnection(CLIENT_SERVER, "us")
    with pytest.raises(ProtocolError, match="magic 0x48"):
        connection.receive(connection.hello * 2)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"GET / HTTP/1.1\r\n", "does not speak the client-server protocol"),
        (encode_frame(ord("L"), 4, b"x"), "magic 0x4c and version 4 instead of a hello"),
        (encode_frame(ord("H"), 1, b"x"), "version 1 instead of a hello"),
        (FRAME_HEADER.pack(ord("H"), 0, -1), "a hello of -1 bytes"),
        (FRAME_HEADER.pack(ord("H"), 0, MAX_HELLO_SIZE_BYTES + 1), "a hello of 4097 bytes"),
        (encode_frame(ord("H"), 0, bytes.fromhex("ffffffff00000000")), "negative count -1"),
        (encode_frame(ord("H"), 0, bytes.fromhex("7fffffff0000")), "count of 2147483647"),
        (encode_frame(ord("H"), 0, bytes.fromhex("0000000100040000000a")), "count of 10"),
    ],
)
def test_bad_hello(data: bytes, text: str) -> None:
    connection = WireConnection(CLIENT_SERVER, "us")
    for read in (data, b"", connection.hello):
        with pytest.raises(ProtocolError, match=text):
            connection.receive(read)


def test_payload_limit() -> None:
    connection = WireConnection(CLIENT_SERVER, "us", max_payload_bytes=10)
    connection.receive(connection.hello)
    assert connection.receive(encode_frame(ord("L"), 6, bytes(10)))[1] == [(7, 17)]
    with pytest.raises(ProtocolError, match="at most 10"):
        connection.receive(encode_frame(ord("L"), 6, bytes(11)))


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_awaited(data: bytes) -> None:
    for prefix in (b"", b"H\0\0", FRAME_HEADER.pack(ord("H"), 0, 20)):
        connection = WireConnection(CLIENT_SERVER, "us")
        try:
            connection.receive(prefix + data)
        except ProtocolError:
            continue
        assert connection.version is None or connection.version in CLIENT_SERVER.versions
