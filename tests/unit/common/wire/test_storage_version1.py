"""Appends of many partitions in one frame."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.common.wire.strategies import INTS, LONGS, RECORDS, damaged, messages
from waltz.common.errors import ProtocolError
from waltz.common.ids import ReqId
from waltz.common.records import Record, encode_records
from waltz.common.wire import storage, storage_version1
from waltz.common.wire.frames import STORAGE, FrameSplitter
from waltz.common.wire.storage import AppendRequest, FailureResponse, SuccessResponse
from waltz.common.wire.storage_version1 import (
    APPEND_MANY_REQUEST,
    MAX_MANY_BYTES,
    OUR_VERSION,
    AppendManyRequest,
    EncodedAppend,
    PartitionAppend,
    decode_many,
    encode_many,
)
from waltz.common.wire.structures import RpcException

RECORD = Record(17, ReqId.of(1, 2, 3, 4), 7, b"abc", 0x352441C2)
MANY = AppendManyRequest(-1, 9, -1, [PartitionAppend(5, 1, [RECORD]), PartitionAppend(6, 2, [])])
FRAME = bytes.fromhex(
    "53 0001 00000060 13 ffffffffffffffff 0000000000000009 ffffffff 00000002"
    "0000000000000005 00000001 00000001 0000000000000011 0000000100000002 0000000300000004 00000007"
    "00000003 616263 352441c2"
    "0000000000000006 00000002 00000000"
)

APPENDS = st.builds(PartitionAppend, LONGS, INTS, st.lists(RECORDS, max_size=3))
MANY_OF_THEM = st.builds(
    AppendManyRequest, st.just(-1), st.integers(0, 1 << 40), st.just(-1), st.lists(APPENDS, max_size=4)
)


def encoded(message: AppendManyRequest) -> tuple[list[EncodedAppend], int]:
    appends = [
        (each.session_id, each.partition_id, len(each.records), encode_records(each.records))
        for each in message.appends
    ]
    return appends, sum(16 + len(records) for *_, records in appends)


def requests(message: AppendManyRequest) -> list[AppendRequest]:
    """What the appends would be one by one."""
    return [
        AppendRequest(each[0], number, each[1], each[2], False)
        for number, each in enumerate(message.appends, message.seq_num)
    ]


def both(frame: bytes) -> AppendManyRequest | None:
    """What the plain decoder and the quick one agree on; ``None`` when both refuse."""
    try:
        plain = storage_version1.decode(frame, 7, len(frame), OUR_VERSION)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            decode_many(frame, 7, len(frame))
        return None
    assert isinstance(plain, AppendManyRequest)
    if plain.seq_num + len(plain.appends) >= 1 << 63:
        return None  # the last of them could not be answered
    assert [request for request, _ in decode_many(frame, 7, len(frame))] == requests(plain)
    return plain


def test_the_bytes_are_frozen() -> None:
    assert storage_version1.encode(MANY, OUR_VERSION) == FRAME
    assert encode_many(9, *encoded(MANY)) == FRAME
    assert both(FRAME) == MANY
    assert decode_many(FRAME, 7, len(FRAME)) == [
        (AppendRequest(5, 9, 1, [RECORD], False), 16 + 39),
        (AppendRequest(6, 10, 2, [], False), 16),
    ]


@given(MANY_OF_THEM)
def test_round_trip(message: AppendManyRequest) -> None:
    frame = storage_version1.encode(message, OUR_VERSION)
    assert encode_many(message.seq_num, *encoded(message)) == frame
    assert FrameSplitter(STORAGE.magic, OUR_VERSION).feed(frame) == (frame, [(7, len(frame))])
    assert both(frame) == message
    assert sum(size_bytes for _, size_bytes in decode_many(frame, 7, len(frame))) == encoded(message)[1]


@given(st.data(), MANY_OF_THEM)
def test_damaged_messages(data: st.DataObject, message: AppendManyRequest) -> None:
    frame = data.draw(damaged(storage_version1.encode(message, OUR_VERSION)))
    if len(frame) > 7 and frame[7] == APPEND_MANY_REQUEST:
        both(frame)


@given(st.binary(max_size=120))
def test_any_bytes(rest: bytes) -> None:
    both(bytes(7) + bytes([APPEND_MANY_REQUEST]) + rest)


def test_every_truncation_is_refused() -> None:
    for end in range(8, len(FRAME)):
        assert both(FRAME[:end]) is None


@pytest.mark.parametrize("count", [-(1 << 31), -1, 0, 1, 3, 1 << 20, (1 << 31) - 1])
def test_counts_that_differ_from_what_is_behind_them(count: int) -> None:
    position = 7 + 21
    assert both(FRAME[:position] + count.to_bytes(4, "big", signed=True) + FRAME[position + 4 :]) is None


def test_more_bytes_than_may_be_together() -> None:
    data = bytes(MAX_MANY_BYTES - 16 - 36)
    append = PartitionAppend(5, 1, [RECORD._replace(data=data)])
    frame = storage_version1.encode(AppendManyRequest(-1, 9, -1, [append]), OUR_VERSION)
    assert len(decode_many(frame, 7, len(frame))) == 1
    append = PartitionAppend(5, 1, [RECORD._replace(data=data + b"x")])
    frame = storage_version1.encode(AppendManyRequest(-1, 9, -1, [append]), OUR_VERSION)
    with pytest.raises(ProtocolError, match="at most 1048576"):
        decode_many(frame, 7, len(frame))


def test_requests_whose_numbers_cannot_be_said() -> None:
    for first, accepted in (((1 << 63) - 4, True), ((1 << 63) - 2, False), ((1 << 63) - 1, False)):
        frame = storage_version1.encode(MANY._replace(seq_num=first), OUR_VERSION)
        if accepted:
            assert len(decode_many(frame, 7, len(frame))) == 2
        else:
            with pytest.raises(ProtocolError, match="requests from"):
                decode_many(frame, 7, len(frame))


@given(messages(storage.Message))
def test_everything_else_is_as_in_version_0(message: storage.Message) -> None:
    frame, of_version_0 = storage_version1.encode(message, OUR_VERSION), storage.encode(message)
    assert frame[7:] == of_version_0[7:]
    assert storage_version1.with_version(of_version_0, OUR_VERSION) == frame
    assert storage_version1.decode(frame, 7, len(frame), OUR_VERSION) == message


def test_a_success_differs_in_what_it_begins_with() -> None:
    frame = storage.encode_success(5, 9, 1)
    head = storage_version1.SUCCESS_HEAD
    assert head + frame[len(head) :] == storage_version1.encode(SuccessResponse(5, 9, 1), OUR_VERSION)


def test_version_0_does_not_have_it() -> None:
    with pytest.raises(ProtocolError, match="no AppendManyRequest"):
        storage_version1.encode(MANY, storage.VERSION)
    with pytest.raises(ProtocolError, match="unknown message type 19"):
        storage.decode_batch(FRAME, [(7, len(FRAME))])
    refusal = FailureResponse(5, 9, 1, RpcException("java.lang.Exception: Partition:1 is not assigned."))
    assert storage_version1.decode(storage.encode(refusal), 7, len(storage.encode(refusal)), storage.VERSION) == refusal
