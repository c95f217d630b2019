import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.common.wire.strategies import INTS, LONGS, RECORDS, damaged, messages
from waltz.common.errors import ProtocolError
from waltz.common.ids import ReqId
from waltz.common.records import Record, encode_records
from waltz.common.wire import admin, storage
from waltz.common.wire.frames import FRAME_HEADER_SIZE_BYTES, STORAGE, STORAGE_ADMIN, FrameSplitter
from waltz.common.wire.storage import AppendRequest, FailureResponse, SuccessResponse
from waltz.common.wire.structures import RpcException, StackFrame

RECORD = Record(0, ReqId.of(1, 2, 3, 4), 7, b"abc", 0x352441C2)


@given(st.lists(messages(storage.Message), max_size=6))
def test_round_trip_through_a_batch(sent: list[storage.Message]) -> None:
    stream = b"".join([storage.encode(message) for message in sent])
    buffer, bounds = FrameSplitter(STORAGE.magic, storage.VERSION).feed(stream)
    received = storage.decode_batch(buffer, bounds)
    assert received == sent
    assert list(map(type, received)) == list(map(type, sent))
    assert [storage.decode(buffer, start, end) for start, end in bounds] == sent
    successes = [[(message.seq_num,)] if isinstance(message, SuccessResponse) else [] for message in sent]
    assert [list(storage.success_seq_nums(buffer, start, end)) for start, end in bounds] == successes


@given(st.lists(st.builds(SuccessResponse, LONGS, LONGS, INTS), min_size=1, max_size=6))
def test_successes_side_by_side_are_one_piece(sent: list[SuccessResponse]) -> None:
    stream = b"".join([storage.encode(message) for message in sent])
    buffer, bounds = FrameSplitter(STORAGE.magic, storage.VERSION, run=storage.SUCCESS_RUN).feed(stream)
    ((start, end),) = bounds
    assert list(storage.success_seq_nums(buffer, start, end)) == [(message.seq_num,) for message in sent]


@given(st.lists(messages(admin.Message), max_size=6))
def test_round_trip_through_a_batch_of_admin_messages(sent: list[admin.Message]) -> None:
    stream = b"".join([admin.encode(message) for message in sent])
    buffer, bounds = FrameSplitter(STORAGE_ADMIN.magic, admin.VERSION).feed(stream)
    received = admin.decode_batch(buffer, bounds)
    assert received == sent
    assert list(map(type, received)) == list(map(type, sent))


def both(frame: bytes) -> storage.Message | None:
    """What the plain decoder and the batch decoder agree on; ``None`` when both refuse."""
    try:
        plain = storage.decode(frame, 7, len(frame))
    except ProtocolError:
        with pytest.raises(ProtocolError):
            storage.decode_batch(frame, [(7, len(frame))])
        return None
    assert storage.decode_batch(frame, [(7, len(frame))]) == [plain]
    return plain


@given(st.data(), messages(storage.Message))
def test_damaged_messages(data: st.DataObject, message: storage.Message) -> None:
    found = both(data.draw(damaged(storage.encode(message))))
    if found is not None:
        assert both(storage.encode(found)) == found


@given(st.data(), messages(admin.Message))
def test_damaged_admin_messages(data: st.DataObject, message: admin.Message) -> None:
    frame = data.draw(damaged(admin.encode(message)))
    try:
        found = admin.decode(frame, 7, len(frame))
    except ProtocolError:
        return
    again = admin.encode(found)
    assert admin.decode(again, 7, len(again)) == found


@given(st.binary(min_size=1, max_size=120))
def test_any_bytes(payload: bytes) -> None:
    both(bytes(7) + payload)
    both(bytes(7) + b"\x06" + payload)


@given(LONGS, LONGS, INTS, st.lists(RECORDS, max_size=5), st.booleans())
def test_append_of_encoded_records_equals_the_message(
    session_id: int, seq_num: int, partition_id: int, records: list[Record], offline: bool
) -> None:
    encoded = encode_records(records)
    (frame,) = storage.encode_append(session_id, seq_num, partition_id, encoded, len(records), offline)
    assert len(frame) == len(encoded) + storage.APPEND_OVERHEAD_BYTES
    assert frame == storage.encode(AppendRequest(session_id, seq_num, partition_id, records, offline))
    assert both(frame) == AppendRequest(session_id, seq_num, partition_id, records, offline)


@given(LONGS, LONGS, INTS)
def test_success_equals_the_message(session_id: int, seq_num: int, partition_id: int) -> None:
    response = SuccessResponse(session_id, seq_num, partition_id)
    assert storage.encode_success(*response) == storage.encode(response)


@pytest.mark.parametrize("offline", [False, True])
def test_a_large_batch_is_not_copied(offline: bool) -> None:
    record = RECORD._replace(data=bytes(200_000))
    encoded = encode_records([record])
    pieces = storage.encode_append(5, 9, 1, encoded, 1, offline)
    assert any(piece is encoded for piece in pieces)
    assert b"".join(pieces) == storage.encode(AppendRequest(5, 9, 1, [record], offline))


def test_append_numbers_that_do_not_fit() -> None:
    for session_id, partition_id in ((1 << 63, 0), (0, 1 << 31)):
        with pytest.raises(ProtocolError, match="AppendRequest"):
            storage.encode_append(session_id, 0, partition_id, b"", 0)
        with pytest.raises(ProtocolError, match="AppendRequest"):
            storage.encode(AppendRequest(session_id, 0, partition_id, [], False))


def test_append_counts() -> None:
    """A count that differs from the records behind it, whichever way, is refused."""
    frame = storage.encode(AppendRequest(5, 9, 1, [RECORD, RECORD], False))
    position = 7 + 21
    assert frame[position : position + 4] == b"\0\0\0\2"
    for count in (-(1 << 31), -1, 0, 1, 3, 4, 1 << 20, (1 << 31) - 1):
        assert both(frame[:position] + count.to_bytes(4, "big", signed=True) + frame[position + 4 :]) is None


def test_null_data_is_refused() -> None:
    frame = storage.encode(AppendRequest(5, 9, 1, [RECORD._replace(data=b"")], False))
    position = frame.index(b"\0\0\0\7") + 4
    assert both(frame) is not None
    assert both(frame[:position] + b"\xff\xff\xff\xff" + frame[position + 4 :]) is None
    single = storage.encode(storage.RecordResponse(5, 9, 1, RECORD._replace(data=b"")))
    position = single.index(b"\0\0\0\7") + 4
    assert both(single[:position] + b"\xff\xff\xff\xff" + single[position + 4 :]) is None


def test_offline_is_true_only_for_one() -> None:
    frame = storage.encode(AppendRequest(5, 9, 1, [], True))
    for value in (0, 1, 2, 255):
        assert both(frame[:-1] + bytes([value])) == AppendRequest(5, 9, 1, [], value == 1)


def test_failure_with_a_stack_trace() -> None:
    frames = (StackFrame("com.example.Store", "append", "Store.java", 12), StackFrame("a.B", "c", None, -2))
    message = FailureResponse(5, 9, 1, RpcException("java.io.IOException: No space left on device", frames))
    assert both(storage.encode(message)) == message


@pytest.mark.parametrize("count", [-1, 1, 1 << 27, (1 << 31) - 1])
def test_impossible_stack_traces(count: int) -> None:
    frame = storage.encode(FailureResponse(5, 9, 1, RpcException("x")))
    assert both(frame[:-4] + count.to_bytes(4, "big", signed=True)) is None


def test_null_class_names_are_refused() -> None:
    frame = storage.encode(FailureResponse(5, 9, 1, RpcException(None, (StackFrame("", "", None, 1),))))
    position = len(frame) - 16
    assert both(frame) is not None
    for null_at in (position, position + 4):
        assert both(frame[:null_at] + b"\xff\xff\xff\xff" + frame[null_at + 4 :]) is None


def test_success_of_a_wrong_size() -> None:
    frame = storage.encode(SuccessResponse(5, 9, 1))
    assert both(frame) == SuccessResponse(5, 9, 1)
    assert list(storage.success_seq_nums(frame, FRAME_HEADER_SIZE_BYTES, len(frame))) == [(9,)]
    assert not list(storage.success_seq_nums(frame, FRAME_HEADER_SIZE_BYTES, len(frame) - 1))
    assert both(frame[:-1]) is None
    assert both(frame + b"\0") is None


def test_a_message_of_another_family_is_not_encoded() -> None:
    with pytest.raises(ProtocolError, match="has no RecordListRequest"):
        storage.encode(admin.RecordListRequest(1, 2, 3, 4))  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize("ids", [None, (), (0, 1, -1)])
def test_admin_lists_are_nullable(ids: tuple[int, ...] | None) -> None:
    for message in (
        admin.PartitionAvailableRequest(3, ids, True),
        admin.PartitionAssignmentRequest(3, ids, False, True),
    ):
        frame = admin.encode(message)
        assert admin.decode(frame, 7, len(frame)) == message
