import tracemalloc

import crcmod.predefined
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.common.wire.strategies import RECORDS
from waltz.common.checksum import checksum
from waltz.common.errors import ProtocolError
from waltz.common.ids import ReqId
from waltz.common.records import (
    RECORD_HEADER,
    Record,
    decode_record,
    decode_records,
    encode_record,
    encode_records,
)

RECORD = Record(0, ReqId.of(1, 2, 3, 4), 7, b"abc", 0x352441C2)
ENCODED = bytes.fromhex("0000000000000000 0000000100000002 0000000300000004 00000007 00000003 616263 352441c2")

independent_crc32 = crcmod.predefined.mkCrcFun("crc-32")


def test_layout() -> None:
    assert encode_record(RECORD) == ENCODED
    assert decode_record(ENCODED, 0, len(ENCODED)) == (RECORD, len(ENCODED))
    assert RECORD_HEADER.pack(*RECORD[:3]) == ENCODED[:28]


@given(st.binary(max_size=2000))
def test_checksum_equals_an_independent_implementation(data: bytes) -> None:
    assert checksum(data) & 0xFFFF_FFFF == independent_crc32(data)
    assert checksum(memoryview(data)) == checksum(data)
    assert -(1 << 31) <= checksum(data) < 1 << 31


@given(st.lists(RECORDS, max_size=6), st.binary(max_size=20), st.binary(max_size=40))
def test_lists_come_back(records: list[Record], before: bytes, behind: bytes) -> None:
    bodies = encode_records(iter(records))
    assert bodies == b"".join([encode_record(record) for record in records])
    buffer = before + len(records).to_bytes(4, "big") + bodies + behind
    end = len(before) + 4 + len(bodies)
    assert decode_records(buffer, len(before), end) == (records, end)
    assert decode_records(buffer, len(before), len(buffer)) == (records, end)
    position = len(before) + 4
    for record in records:
        found, position = decode_record(buffer, position, end)
        assert found == record
    assert position == end


def test_truncated_at_every_byte() -> None:
    buffer = b"\0\0\0\3" + ENCODED * 5
    for end in range(4 + 3 * len(ENCODED)):
        for cut in (buffer, buffer[:end]):
            with pytest.raises(ProtocolError):
                decode_records(cut, 0, end)
    for end in range(len(ENCODED)):
        for cut in (ENCODED * 2, ENCODED[:end]):
            with pytest.raises(ProtocolError):
                decode_record(cut, 0, end)


@pytest.mark.parametrize("size", [-1, -36, -(1 << 31), (1 << 31) - 1, 1000])
def test_impossible_data_sizes(size: int) -> None:
    damaged = ENCODED[:28] + size.to_bytes(4, "big", signed=True) + ENCODED[32:]
    with pytest.raises(ProtocolError):
        decode_record(damaged, 0, len(damaged))
    with pytest.raises(ProtocolError):
        decode_records(b"\0\0\0\1" + damaged, 0, 4 + len(damaged))


def test_counts_reserve_nothing() -> None:
    tracemalloc.start()
    try:
        for count in (-1, -(1 << 31), 2, 1 << 26, (1 << 31) - 1):
            buffer = count.to_bytes(4, "big", signed=True) + ENCODED
            with pytest.raises(ProtocolError, match=f"list of {count} records"):
                decode_records(buffer, 0, len(buffer))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 500_000


@pytest.mark.parametrize(
    "record",
    [
        RECORD._replace(transaction_id=1 << 63),
        RECORD._replace(req_id=b"short"),
        RECORD._replace(header=1 << 31),
        RECORD._replace(checksum=0x8000_0000),
    ],
)
def test_values_that_do_not_fit_are_not_encoded(record: Record) -> None:
    with pytest.raises(ProtocolError, match=f"record {record.transaction_id}: "):
        encode_record(record)


def test_a_record_names_its_partition() -> None:
    record = Record(7, ReqId.of(1, 2, 3, 4), 5, b"data", 6)
    assert (
        repr(record)
        == f"Record(partition_id=3, transaction_id=7, req_id={record.req_id!r}, header=5, data=b'data', checksum=6)"
    )
    assert repr(record._replace(req_id=b"none")).startswith("Record(transaction_id=7, req_id=b'none', ")
