"""Frames as they went between the original's processes: split, decoded, encoded again."""

from collections import defaultdict

from tests.unit.common.wire import vectors
from waltz.common.wire.connection import WireConnection, decode_hello, encode_hello
from waltz.common.wire.frames import CLIENT_SERVER, FRAME_HEADER, STORAGE, STORAGE_ADMIN

_LINKS = {
    "client-server": (CLIENT_SERVER, "MessageCodecV4"),
    "storage": (STORAGE, "StorageMessageCodecV0"),
    "storage-admin": (STORAGE_ADMIN, "AdminMessageCodecV0"),
}


def test_every_frame_is_encoded_identically() -> None:
    lines = vectors.transcript_lines()
    assert len(lines) > 1000
    for line in lines:
        frame = bytes.fromhex(line["frame_hex"])
        start, end = FRAME_HEADER.size, len(frame)
        if line["type"] == "hello":
            assert encode_hello(decode_hello(frame, start, end)) == frame
            continue
        _, codec = _LINKS[line["link"]]
        message = vectors.decode(codec, line["version"], frame, start, end)
        assert vectors.encode(codec, line["version"], message) == frame
        assert vectors.decode_batch(codec, line["version"], frame, [(start, end)]) == [message]


def test_every_connection_is_split_into_its_frames() -> None:
    streams: dict[tuple[str, int, str], list[bytes]] = defaultdict(list)
    for line in vectors.transcript_lines():
        streams[line["link"], line["conn"], line["dir"]].append(bytes.fromhex(line["frame_hex"]))
    for (link, _, _), frames in streams.items():
        for read_size in (1, 3, 8, 29, 1000, 1 << 20):
            connection = WireConnection(_LINKS[link][0], "test")
            stream = b"".join(frames)
            payloads = []
            for position in range(0, len(stream), read_size):
                buffer, bounds = connection.receive(stream[position : position + read_size])
                payloads += [buffer[start:end] for start, end in bounds]
            assert payloads == [frame[FRAME_HEADER.size :] for frame in frames[1:]]
            assert connection.version == FRAME_HEADER.unpack_from(frames[-1])[1]
