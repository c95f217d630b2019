"""What a peer may send: frames, hellos, and the messages of the three protocols; and a request to the HTTP port."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tests.fuzz import seeds
from tests.fuzz.target import Target
from waltz.common.errors import ProtocolError
from waltz.common.metrics.registry import Registry
from waltz.common.net.http import HttpError, Pages, RequestParser
from waltz.common.wire import admin_version1 as admin_wire
from waltz.common.wire import client_server, storage, storage_version1
from waltz.common.wire.append_request import AppendRequest
from waltz.common.wire.connection import WireConnection
from waltz.common.wire.frames import CLIENT_SERVER, FRAME_HEADER, STORAGE_ADMIN, Bounds, FrameSplitter
from waltz.server.requests.appends import AppendLimits, Runs, Unacceptable, take_appends

VERSION = 4
MAX_PAYLOAD_BYTES = 1 << 16
OPENING_BYTES = 64
VERSIONS = len(CLIENT_SERVER.versions)


Decode = Callable[[bytes, int, int], Any]


def pieces(data: bytes) -> Iterator[bytes]:
    """The rest of ``data``, in reads whose sizes its first byte decides."""
    step = data[0] if data else 0
    rest = data[1:]
    if step == 0:
        yield rest
        return
    for start in range(0, len(rest), step):
        yield rest[start : start + step]


def collect(feed: Callable[[bytes], tuple[bytes, Bounds]], reads: Iterator[bytes]) -> tuple[list[bytes], bool]:
    """The payloads before the first error, and whether there was one."""
    payloads = []
    try:
        for read in reads:
            buffer, bounds = feed(read)
            for start, end in bounds:
                assert 0 <= start < end <= len(buffer)
                payloads.append(buffer[start:end])
    except ProtocolError:
        return payloads, True
    return payloads, False


def split_frames(data: bytes) -> None:
    """However the bytes are cut into reads, the payloads are the same; after an error there are only errors."""
    splitter = FrameSplitter(CLIENT_SERVER.magic, VERSION, MAX_PAYLOAD_BYTES)
    payloads, failed = collect(splitter.feed, pieces(data))
    whole, whole_failed = collect(FrameSplitter(CLIENT_SERVER.magic, VERSION, MAX_PAYLOAD_BYTES).feed, iter([data[1:]]))
    assert failed == whole_failed
    assert failed or payloads == whole
    assert sum(map(len, payloads)) <= len(data)
    if failed:
        assert collect(splitter.feed, iter([b"", data])) == ([], True)
    else:
        _split_with_opening_limit(data, payloads)


class Watcher:
    """Knows how much of an incomplete frame is held."""

    held_bytes = 0

    def begun(self, size_bytes: int) -> None:
        assert self.held_bytes == 0 < size_bytes
        self.held_bytes = size_bytes

    def grown(self, size_bytes: int) -> None:
        assert self.held_bytes > 0
        self.held_bytes += size_bytes

    def ended(self) -> None:
        self.held_bytes = 0


def _split_with_opening_limit(data: bytes, payloads: list[bytes]) -> None:
    """Only a first frame that is too large is refused; what is held is known."""
    watcher = Watcher()
    splitter = FrameSplitter(
        CLIENT_SERVER.magic, VERSION, MAX_PAYLOAD_BYTES, opening_payload_bytes=OPENING_BYTES, watcher=watcher
    )
    found: list[bytes] = []
    for read in pieces(data):
        try:
            buffer, bounds = splitter.feed(read)
        except ProtocolError:
            assert not found
            return
        found += [buffer[start:end] for start, end in bounds]
        if bounds and splitter.allow_large():
            buffer, bounds = splitter.feed(b"")
            found += [buffer[start:end] for start, end in bounds]
    assert found == payloads
    complete = sum(FRAME_HEADER.size + len(payload) for payload in payloads)
    assert watcher.held_bytes <= max(len(data) - 1 - complete, 0)


def receive(data: bytes) -> None:
    """A whole connection, the hello included."""
    wire = WireConnection(CLIENT_SERVER, "fuzzing", max_payload_bytes=MAX_PAYLOAD_BYTES)
    payloads, failed = collect(wire.receive, pieces(data))
    assert wire.version in (None, *CLIENT_SERVER.versions)
    assert not payloads or wire.version is not None
    whole = WireConnection(CLIENT_SERVER, "fuzzing", max_payload_bytes=MAX_PAYLOAD_BYTES)
    assert collect(whole.receive, iter([data[1:]]))[1] == failed


def check_message(
    payload: bytes,
    decode: Decode,
    decode_batch: Callable[[bytes, Bounds], list[Any]],
    encode: Callable[[Any], bytes],
) -> None:
    """Whatever is decoded can be encoded, and decoded again to the same; the fast path agrees with the slow one."""
    buffer = b"behind" + payload + b"before"
    start, end = 6, 6 + len(payload)
    try:
        message = decode(buffer, start, end)
    except ProtocolError:
        if payload:  # frames without payload are keep-alives, which no decoder sees
            try:
                decode_batch(buffer, [(start, end)])
            except ProtocolError:
                return
            raise AssertionError("the decoder of batches takes what the other one refuses") from None
        return
    assert decode_batch(buffer, [(start, end), (start, end)]) == [message, message]
    try:
        frame = encode(message)
    except ProtocolError:
        return  # what the original reads and would never write
    assert decode(frame, FRAME_HEADER.size, len(frame)) == message


def decode_client_server(data: bytes) -> None:
    """The first byte chooses the version."""
    if not data:
        return
    version, payload = data[0] % VERSIONS, data[1:]
    check_message(
        payload,
        lambda buffer, start, end: client_server.decode(buffer, start, end, version),
        lambda buffer, bounds: client_server.decode_batch(buffer, bounds, version),
        lambda message: client_server.encode(message, version),
    )
    if payload:
        _take(payload, version)


_NO_LIMITS = AppendLimits(MAX_PAYLOAD_BYTES, MAX_PAYLOAD_BYTES)


def _take(payload: bytes, version: int) -> None:
    """The server's own way of reading appends agrees with the general one."""
    runs: Runs = {}
    try:
        ended_by = take_appends(
            payload, iter([(0, len(payload))]), version, AppendLimits(MAX_PAYLOAD_BYTES, MAX_PAYLOAD_BYTES), runs
        )
    except ProtocolError:
        assert not runs
        return
    if ended_by is not None:
        assert isinstance(ended_by, Unacceptable) or not runs
        return
    message = client_server.decode(payload, 0, len(payload), version)
    assert isinstance(message, AppendRequest)
    ((call,),) = runs.values()
    assert (call.req_id, call.client_high_water_mark, call.header) == (*message[:2], message.header)
    assert (call.write_locks, call.read_locks, call.append_locks) == message[2:5]
    assert call.encode_body(message.header, message.data, message.checksum) == call.body


def decode_storage(data: bytes) -> None:
    """Requests and answers of the data port, in both versions."""
    check_message(data, storage.decode, storage.decode_batch, storage.encode)
    if data[:1] == bytes([storage_version1.APPEND_MANY_REQUEST]):
        _take_many(data)


def _take_many(payload: bytes) -> None:
    """The storage's own way of reading appends of many partitions takes no more than the general one, and the same."""
    decode = partial(storage_version1.decode, version=storage_version1.OUR_VERSION)
    try:
        taken = storage_version1.decode_many(payload, 0, len(payload))
    except ProtocolError:
        return
    message = decode(payload, 0, len(payload))
    assert isinstance(message, storage_version1.AppendManyRequest)
    assert [request.seq_num - message.seq_num for request, _ in taken] == list(range(len(message.appends)))
    assert [(request.session_id, request.partition_id, request.records) for request, _ in taken] == message.appends
    frame = storage_version1.encode(message, storage_version1.OUR_VERSION)
    assert frame[FRAME_HEADER.size :] == payload


def decode_admin(data: bytes) -> None:
    """Requests and answers of the admin port, in both versions."""
    for version in STORAGE_ADMIN.versions:
        decode = partial(admin_wire.decode, version=version)

        def batch(buffer: bytes, bounds: Bounds, decode: Decode = decode) -> list[Any]:
            return [decode(buffer, start, end) for start, end in bounds]

        check_message(data, decode, batch, partial(admin_wire.encode, version=version))


def answer_http(data: bytes) -> None:
    """One request in reads of any size, and the page it asks for."""
    parser = RequestParser()
    pages = Pages(Registry(), None, "1")
    for read in pieces(data):
        try:
            request = parser.feed(read)
        except HttpError as error:
            answer = error.response.encode()
            break
        if request is not None:
            response = pages.answer(request)
            assert response.status in (200, 404, 405, 501)
            answer = response._replace(body="".join(response.body)).encode()
            break
    else:
        return
    assert answer.startswith(b"HTTP/1.1 ")


def _client_server_seeds() -> list[bytes]:
    return [bytes([version]) + payload for version, payload in (*seeds.payloads("MessageCodec"), *seeds.own_payloads())]


def _frame_seeds() -> list[bytes]:
    frames = [
        FRAME_HEADER.pack(CLIENT_SERVER.magic, VERSION, len(payload)) + payload
        for _, payload in seeds.payloads("MessageCodecV4")
    ]
    return [bytes([step]) + b"".join(frames[start : start + 4]) for step in (0, 1, 13) for start in (0, 20, 40)]


def _storage_seeds() -> list[bytes]:
    return [*(payload for _, payload in seeds.payloads("StorageMessage")), seeds.append_many_payload()]


TARGETS = {
    "frames": Target(split_frames, _frame_seeds),
    "connection": Target(receive, lambda: [bytes([step]) + side for step in (0, 7) for side in seeds.conversations()]),
    "client-server": Target(decode_client_server, _client_server_seeds, 8192),
    "storage": Target(decode_storage, _storage_seeds),
    "storage-admin": Target(decode_admin, lambda: [payload for _, payload in seeds.payloads("AdminMessage")]),
    "http": Target(answer_http, lambda: [bytes([step]) + text for step in (0, 9) for text in seeds.HTTP_REQUESTS]),
}
