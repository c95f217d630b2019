"""Hypothesis strategies for the messages of all families, from the names of their fields."""

from typing import Any

from hypothesis import strategies as st

from waltz.common.checksum import checksum
from waltz.common.consistency import Consistency
from waltz.common.records import Record, RecordHeader
from waltz.common.wire.append_request import AppendRequest
from waltz.common.wire.client_server import PartitionState, TransactionDataResponse
from waltz.common.wire.client_times import TimeStatus
from waltz.common.wire.confirmed_marks import ConfirmedMarkStatus
from waltz.common.wire.consistency import ConsistencyRefusal
from waltz.common.wire.lags import PartitionLags, ReplicaLag
from waltz.common.wire.partition_properties import SetPropertiesStatus
from waltz.common.wire.storage_times import CommitTime, TimeQuestion
from waltz.common.wire.structures import RpcException, SessionInfo, StackFrame
from waltz.common.wire.version5 import AppendFailure, DataListStatus, TransactionDataListResponse
from waltz.common.wire.write_sessions import (
    FenceOption,
    HeartbeatOption,
    HeartbeatState,
    LastTransactionStatus,
    SessionFlag,
)

INTS = st.integers(-(1 << 31), (1 << 31) - 1)
LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
REQ_IDS = st.binary(min_size=16, max_size=16)
LOCKS = st.lists(INTS, max_size=5).map(tuple)
DATA = st.binary(max_size=200)
NULLABLE_TEXT = st.none() | st.text()
RECORDS = st.builds(Record, LONGS, REQ_IDS, INTS, DATA, INTS)
RECORD_HEADERS = st.builds(RecordHeader, LONGS, REQ_IDS, INTS)


def pairs(keys: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """The pairs of a map: no key twice."""
    return st.dictionaries(keys, st.booleans(), max_size=5).map(lambda found: tuple(found.items()))


_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "req_id": REQ_IDS,
    "client_high_water_mark": LONGS,
    "seq_num": LONGS,
    "session_id": LONGS,
    "partition_id": INTS,
    "transaction_id": LONGS,
    "low_water_mark": LONGS,
    "state": st.sampled_from(PartitionState),
    "header": INTS,
    "connectivity": pairs(st.text()),
    "health": pairs(INTS),
    "partition_status": pairs(INTS),
    "partition_ids": LOCKS,
    "result": st.booleans(),
    "offline": st.booleans(),
    "available": st.booleans(),
    "assigned": st.booleans(),
    "delete_files": st.booleans(),
    "key": st.uuids(),
    "partition_count": INTS,
    "delay_ms": INTS,
    "max_count": INTS,
    "max_bytes": INTS,
    "high_water_mark": LONGS,
    "reason": st.sampled_from(AppendFailure),
    "write_session": LONGS,
    "expected_session": LONGS,
    "heartbeat": st.sampled_from([HeartbeatOption(value) for value in range(8)]),
    "heartbeat_state": st.sampled_from(HeartbeatState),
    "session_flags": st.sampled_from([SessionFlag(value) for value in range(4)]),
    "fence": st.sampled_from([FenceOption(value) for value in range(4)]),
    "last_transaction_status": st.sampled_from(LastTransactionStatus),
    "confirmed_mark_status": st.sampled_from(ConfirmedMarkStatus),
    "level": st.sampled_from(Consistency),
    "refusal": st.sampled_from(ConsistencyRefusal),
    "storage_count": INTS,
    "question": st.sampled_from(TimeQuestion),
    "value": LONGS,
    "time_status": st.sampled_from(TimeStatus),
    "time_ms": LONGS,
    "text": NULLABLE_TEXT,
    "change": LONGS,
    "properties": st.text(),
    "properties_status": st.sampled_from(SetPropertiesStatus),
    "info": st.builds(SessionInfo, LONGS, LONGS, LONGS),
    "error": st.builds(
        RpcException,
        NULLABLE_TEXT,
        st.lists(st.builds(StackFrame, st.text(), st.text(), NULLABLE_TEXT, INTS), max_size=3).map(tuple),
    ),
    "record": st.none() | RECORDS,
    "records": st.lists(RECORDS, max_size=5),
    "record_header": st.none() | RECORD_HEADERS,
    "record_headers": st.lists(RECORD_HEADERS, max_size=5),
    "metrics_json": NULLABLE_TEXT,
    "times": st.lists(st.builds(CommitTime, LONGS, LONGS), max_size=4),
    "lags": st.lists(
        st.builds(
            PartitionLags, INTS, LONGS, LONGS, st.lists(st.builds(ReplicaLag, st.text(), LONGS, LONGS), max_size=3)
        ),
        max_size=3,
    ),
}


APPEND_REQUESTS = st.builds(AppendRequest, REQ_IDS, LONGS, LOCKS, LOCKS, LOCKS, INTS, DATA, st.just(0), LONGS).map(
    lambda message: message._replace(checksum=checksum(message.data))
)

TRANSACTION_DATA_RESPONSES = st.builds(
    TransactionDataResponse, REQ_IDS, LONGS, st.none(), st.just(0), NULLABLE_TEXT
) | st.builds(
    lambda req_id, transaction_id, data: TransactionDataResponse(req_id, transaction_id, data, checksum(data), None),
    REQ_IDS,
    LONGS,
    DATA,
)

DATA_LISTS = st.builds(
    TransactionDataListResponse,
    REQ_IDS,
    LONGS,
    st.sampled_from(DataListStatus),
    LONGS,
    st.lists(RECORDS, max_size=5),
    NULLABLE_TEXT,
)


def messages_of(message_class: Any) -> st.SearchStrategy[Any]:
    """Any message of one class."""
    if message_class is AppendRequest:
        return APPEND_REQUESTS
    if message_class is TransactionDataListResponse:
        return DATA_LISTS
    if message_class is TransactionDataResponse:
        return TRANSACTION_DATA_RESPONSES
    return st.builds(message_class, **{name: _FIELDS[name] for name in message_class._fields})


def messages(union: Any) -> st.SearchStrategy[Any]:
    """Any message of a family, given the union of its classes."""
    return st.one_of([messages_of(message_class) for message_class in union.__args__])


def damaged(frame: bytes) -> st.SearchStrategy[bytes]:
    """``frame`` with some bytes of its payload replaced."""

    def replace(changes: list[tuple[int, int]]) -> bytes:
        changed = bytearray(frame)
        for position, value in changes:
            changed[position] = value
        return bytes(changed)

    positions = st.integers(7, len(frame) - 1)
    values = st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]) | st.integers(0, 255)
    return st.lists(st.tuples(positions, values), min_size=1, max_size=4).map(replace)
