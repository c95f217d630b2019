import itertools
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.common.wire.strategies import APPEND_REQUESTS, DATA, INTS, LONGS, REQ_IDS, damaged, messages
from waltz.common.checksum import checksum
from waltz.common.errors import ProtocolError
from waltz.common.ids import LONG_MIN, ReqId
from waltz.common.wire import client_server
from waltz.common.wire.append_request import AppendRequest
from waltz.common.wire.client_server import (
    CheckStorageConnectivityResponse,
    FeedData,
    FeedSuspended,
    HighWaterMarkResponse,
    MountRequest,
    MountResponse,
    PartitionState,
    ServerPartitionsHealthStatResponse,
    TransactionDataResponse,
)
from waltz.common.wire.frames import CLIENT_SERVER, Bounds, FrameSplitter
from waltz.common.wire.write_sessions import NO_WRITE_SESSION

REQ_ID = ReqId.of(7, 3, 2, 258)
APPEND = AppendRequest(REQ_ID, 41, (3357067,), (), (), -2, b"hello", 0x3610A686)
VERSIONS = CLIENT_SERVER.versions
NEWEST = max(VERSIONS)
Message = client_server.Message
FEED_DATA = st.builds(FeedData, REQ_IDS, LONGS, INTS)


def decode(frame: bytes, version: int = 4) -> Message:
    return client_server.decode(frame, 7, len(frame), version)


def split(stream: bytes, version: int = 4) -> tuple[bytes, Bounds]:
    return FrameSplitter(CLIENT_SERVER.magic, version).feed(stream)


def both(frame: bytes, version: int = 4) -> Message | None:
    """What the plain decoder and the batch decoder agree on; ``None`` when both refuse."""
    plain: Message | None
    try:
        plain = decode(frame, version)
    except ProtocolError as error:
        with pytest.raises(ProtocolError, match=f"^{re.escape(str(error))}$"):
            client_server.decode_batch(frame, [(7, len(frame))], version)
        return None
    (batch,) = client_server.decode_batch(frame, [(7, len(frame))], version)
    assert batch == plain
    assert type(batch) is type(plain)
    return plain


@given(st.lists(messages(Message), max_size=8))
def test_round_trip_through_a_batch(sent: list[Message]) -> None:
    buffer, bounds = split(b"".join([client_server.encode(message, NEWEST) for message in sent]), NEWEST)
    received = client_server.decode_batch(buffer, bounds, NEWEST)
    assert received == sent
    assert list(map(type, received)) == list(map(type, sent))
    assert [client_server.decode(buffer, start, end, NEWEST) for start, end in bounds] == sent


@given(APPEND_REQUESTS, st.sampled_from(VERSIONS))
def test_appends_of_all_versions(message: AppendRequest, version: int) -> None:
    if version < 5:
        message = message._replace(write_session=NO_WRITE_SESSION)
    if version < 2:
        message = message._replace(append_locks=())
    if version < 1:
        message = message._replace(read_locks=())
    assert both(client_server.encode(message, version), version) == message


@given(st.data(), messages(Message))
def test_damaged_messages(data: st.DataObject, message: Message) -> None:
    """Either refused, or a message that is the same again after another trip."""
    found = both(data.draw(damaged(client_server.encode(message, NEWEST))), NEWEST)
    if found is not None:
        assert decode(client_server.encode(found, NEWEST), NEWEST) == found


@given(st.binary(max_size=120), st.sampled_from(VERSIONS))
def test_any_bytes(payload: bytes, version: int) -> None:
    both(bytes(7) + b"\x02" + payload, version)
    if payload:
        both(bytes(7) + payload, version)


@given(st.lists(st.tuples(REQ_IDS, LONGS, INTS), max_size=8), st.sampled_from(VERSIONS))
def test_feed_data_of_a_batch_equals_single_frames(items: list[tuple[bytes, int, int]], version: int) -> None:
    single = [client_server.encode(FeedData(*item), version) for item in items]
    stream = client_server.encode_feed_data(version, iter(items))
    assert stream == b"".join(single)
    buffer, bounds = split(stream, version)
    assert client_server.decode_batch(buffer, bounds, version) == [FeedData(*item) for item in items]


@given(st.lists(st.one_of(FEED_DATA, FEED_DATA, messages(Message)), max_size=12))
def test_runs_of_feed_data_equal_single_messages(sent: list[Message]) -> None:
    family = client_server.FED_CLIENT_SERVER
    splitter = FrameSplitter(family.magic, NEWEST, run=family.run)
    buffer, bounds = splitter.feed(b"".join([client_server.encode(message, NEWEST) for message in sent]))
    received: list[object] = []
    runs = 0
    for start, end in bounds:
        if buffer[start - 7 : start + 1] == client_server.feed_data_head(NEWEST):
            received += client_server.fed(buffer, start, end)
            runs += 1
        else:
            received.append(client_server.decode(buffer, start, end, NEWEST))
    assert received == sent
    assert runs == len([kind for kind, _ in itertools.groupby(map(type, sent)) if kind is FeedData])


@pytest.mark.parametrize("state", PartitionState)
@pytest.mark.parametrize("version", VERSIONS)
def test_mount_response(version: int, state: PartitionState) -> None:
    frame = client_server.encode(MountResponse(REQ_ID, state), version)
    if version >= 3:
        assert frame[-4:] == state.to_bytes(4, "big")
        assert decode(frame, version) == MountResponse(REQ_ID, state)
    else:
        ready = state is PartitionState.READY
        assert frame[-1:] == (b"\x01" if ready else b"\x00")
        known = PartitionState.READY if ready else PartitionState.NOT_READY
        assert decode(frame, version) == MountResponse(REQ_ID, known)


def test_unknown_partition_state() -> None:
    frame = client_server.encode(MountResponse(REQ_ID, PartitionState.READY), 4)
    for state in (b"\0\0\0\3", b"\xff\xff\xff\xff"):
        with pytest.raises(ProtocolError, match="unknown partition state"):
            decode(frame[:-4] + state)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "locks", [{}, {"write_locks": ()}, {"read_locks": (1,)}, {"append_locks": (1, 2)}, {"read_locks": (-1,) * 40}]
)
def test_wrong_checksum_of_an_append(version: int, locks: dict[str, Any]) -> None:
    if (version < 1 and "read_locks" in locks) or (version < 2 and "append_locks" in locks):
        return
    good = APPEND._replace(**locks)
    assert both(client_server.encode(good, version), version) == good
    for wrong in (good._replace(checksum=good.checksum ^ 1), good._replace(checksum=0), good._replace(data=b"hellp")):
        assert both(client_server.encode(wrong, version), version) is None


@given(DATA)
def test_checksums_are_signed(data: bytes) -> None:
    """The upper half of the checksums travels as negative numbers."""
    message = APPEND._replace(data=data, checksum=checksum(data))
    assert both(client_server.encode(message, 4)) == message
    response = TransactionDataResponse(REQ_ID, 1, data, checksum(data), None)
    assert both(client_server.encode(response, 4)) == response


@given(REQ_IDS, LONGS, DATA, st.data())
def test_head_of_damaged_transaction_data(req_id: bytes, transaction_id: int, data: bytes, draw: st.DataObject) -> None:
    response = TransactionDataResponse(req_id, transaction_id, data, checksum(data), None)
    frame = client_server.encode(response, 4)
    payload = b"before" + frame[7 : draw.draw(st.integers(8, len(frame)))]
    head = client_server.transaction_data_head(payload, 6, len(payload))
    assert head == (None if len(payload) < 6 + 25 else (req_id, transaction_id))
    other = client_server.encode(HighWaterMarkResponse(req_id, transaction_id), 4)
    assert client_server.transaction_data_head(other, 7, len(other)) is None


def test_wrong_checksum_of_transaction_data() -> None:
    good = TransactionDataResponse(REQ_ID, 42, b"hello", 0x3610A686, None)
    assert both(client_server.encode(good, 4)) == good
    assert both(client_server.encode(good._replace(checksum=1), 4)) is None


@pytest.mark.parametrize("error", ["partition not ready", "", None, "\U0001f600"])
def test_error_instead_of_transaction_data(error: str | None) -> None:
    message = TransactionDataResponse(REQ_ID, 42, None, 0, error)
    assert decode(client_server.encode(message, 4)) == message


def counts_of(frame: bytes) -> list[int]:
    """Positions of the three lock counts and the data size in an append with one lock of each kind."""
    return [position for position in range(7, len(frame)) if frame[position : position + 4] == b"\0\0\0\1"]


@pytest.mark.parametrize("version", [4, 5])
def test_null_and_impossible_counts_of_an_append(version: int) -> None:
    data = b"!"
    message = AppendRequest(b"r" * 16, -1, (-1,), (-1,), (-1,), -1, data, checksum(data))
    frame = client_server.encode(message, version)
    positions = counts_of(frame)
    assert len(positions) == 4
    assert both(frame, version) == message
    names = ("null write locks", "null read locks", "null append locks", "null data")
    for position, name in zip(positions, names, strict=True):
        for count in (-1, -2, -(1 << 31)):
            changed = frame[:position] + count.to_bytes(4, "big", signed=True) + frame[position + 4 :]
            assert both(changed, version) is None
            with pytest.raises(ProtocolError, match=name):
                decode(changed, version)
        for count in (0, 2, 3, 4, 5, 6, 7, 1 << 28, 1 << 29, 1 << 30, (1 << 31) - 1):
            assert both(frame[:position] + count.to_bytes(4, "big") + frame[position + 4 :], version) is None


@pytest.mark.parametrize("name", ["write_locks", "read_locks", "append_locks", "data"])
def test_null_in_an_append_is_not_encoded(name: str) -> None:
    null: dict[str, Any] = {name: None}
    for version in (2, 3, 4, 5):
        with pytest.raises(ProtocolError, match="null"):
            client_server.encode(APPEND._replace(**null), version)


@pytest.mark.parametrize(
    "message",
    [
        APPEND._replace(req_id=b"short"),
        APPEND._replace(req_id=b"x" * 17),
        APPEND._replace(checksum=1 << 31),
        APPEND._replace(header=-(1 << 31) - 1),
        APPEND._replace(client_high_water_mark=1 << 63),
        APPEND._replace(write_locks=(1 << 31,)),
        FeedSuspended(b"x" * 15),
        MountRequest(REQ_ID, 1 << 63, 0),
    ],
)
def test_values_that_do_not_fit_are_not_encoded(message: Message) -> None:
    for version in VERSIONS:
        with pytest.raises(ProtocolError, match=type(message).__name__):
            client_server.encode(message, version)


@pytest.mark.parametrize(
    ("version", "message", "kind"),
    [
        (0, APPEND._replace(read_locks=(1,)), "read"),
        (0, APPEND._replace(append_locks=(1,)), "append"),
        (1, APPEND._replace(append_locks=(1,)), "append"),
    ],
)
def test_locks_that_old_versions_do_not_know(version: int, message: AppendRequest, kind: str) -> None:
    with pytest.raises(ProtocolError, match=f"{kind} locks not supported in version {version}, upgrade servers"):
        client_server.encode(message, version)


def test_unknown_high_water_mark() -> None:
    message = HighWaterMarkResponse(REQ_ID, LONG_MIN)
    assert decode(client_server.encode(message, 4)) == message


def test_maps_are_lenient() -> None:
    """A negative count is an empty map, and the last of two values of one key counts."""
    health = client_server.encode(ServerPartitionsHealthStatResponse(REQ_ID, ((1, True), (2, True), (1, False))), 4)
    assert decode(health) == ServerPartitionsHealthStatResponse(REQ_ID, ((1, False), (2, True)))
    empty = client_server.encode(CheckStorageConnectivityResponse(REQ_ID, ()), 4)
    assert decode(empty[:-4] + b"\xff\xff\xff\xff") == CheckStorageConnectivityResponse(REQ_ID, ())


def test_lists_of_partitions_are_not_nullable() -> None:
    for number in (16, 17, 19):
        payload = bytes([number]) + REQ_ID + b"\xff\xff\xff\xff"
        with pytest.raises(ProtocolError, match="null partition ids"):
            client_server.decode(payload, 0, len(payload), 4)


def test_one_bad_message_ends_the_batch() -> None:
    bad = client_server.encode(APPEND._replace(checksum=5), 4)
    buffer, bounds = split(client_server.encode(APPEND, 4) + bad)
    with pytest.raises(ProtocolError, match="checksum 3610a686"):
        client_server.decode_batch(buffer, bounds, 4)
