"""Records, the entries of the log, and their encoding in lists on the wire."""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from waltz.common.errors import ProtocolError
from waltz.common.ids import ReqId

RECORD_HEADER = struct.Struct(">q16si")
"""Transaction id, request id, transaction header: the first 28 bytes of a record on the wire and on disk."""

_SIZED_HEADER = struct.Struct(">q16sii")
_COUNT = _CHECKSUM = struct.Struct(">i")

RECORD_ID_BYTES = struct.calcsize(">q16s")
"""Bytes of a record on the wire before its body: transaction id and request id."""

RECORD_OVERHEAD_BYTES = _SIZED_HEADER.size + _CHECKSUM.size
"""Bytes of a record on the wire beside its data."""

_new_tuple = tuple.__new__  # the call behind a named tuple's constructors, at half their price


class RecordHeader(NamedTuple):
    """A record without its payload."""

    transaction_id: int
    req_id: bytes
    header: int


class Record(NamedTuple):
    """One committed or appended transaction.

    ``req_id`` holds the 16 bytes of a :class:`~waltz.common.ids.ReqId`; ``checksum`` is the signed CRC-32 of ``data``,
    as the client computed it.

    Examples:
        ```python
        async with client.feed(0, after=-1) as feed:
            record = await anext(feed)
            print(record.partition_id, record.transaction_id, record.header, record.data)
        ```
    """

    transaction_id: int
    req_id: bytes
    header: int
    data: bytes
    checksum: int

    @property
    def partition_id(self) -> int:
        """The partition that it was appended to, by its request id."""
        return ReqId(self.req_id).partition_id

    def __repr__(self) -> str:
        """With the partition, if the request id is a valid one."""
        partition = f"partition_id={self.partition_id}, " if len(self.req_id) == ReqId.SIZE_BYTES else ""
        fields = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
        return f"Record({partition}{fields})"


def encode_record(record: Record) -> bytes:
    """One record in the form of a list: header, size of the data, data, checksum of the data.

    Raises :class:`ProtocolError` when a value does not fit into its field.
    """
    transaction_id, req_id, header, data, checksum = record
    if len(req_id) != ReqId.SIZE_BYTES:
        raise ProtocolError(f"record {transaction_id}: a request id of {len(req_id)} bytes")
    try:
        head = _SIZED_HEADER.pack(transaction_id, req_id, header, len(data))
        return b"".join((head, data, _CHECKSUM.pack(checksum)))
    except struct.error as error:
        raise ProtocolError(f"record {transaction_id}: {error}") from None


def encode_records(records: Iterable[Record]) -> bytes:
    """The records one after the other, without the count that precedes them in a list."""
    return b"".join([encode_record(record) for record in records])


def decode_record(buffer: bytes, offset: int, end: int) -> tuple[Record, int]:
    """The record at ``offset`` and the position after it.

    Raises :class:`ProtocolError` on null data and when the record does not end by ``end``.
    """
    data_start = offset + _SIZED_HEADER.size
    if data_start > end:
        raise ProtocolError("the record is too short")
    transaction_id, req_id, header, size = _SIZED_HEADER.unpack_from(buffer, offset)
    data_end = data_start + size
    if size < 0:
        raise ProtocolError(f"null data in record {transaction_id}")
    if data_end + _CHECKSUM.size > end:
        raise ProtocolError(f"record {transaction_id} is too short")
    (checksum,) = _CHECKSUM.unpack_from(buffer, data_end)
    return Record(transaction_id, req_id, header, buffer[data_start:data_end], checksum), data_end + _CHECKSUM.size


def decode_records(buffer: bytes, offset: int, end: int) -> tuple[list[Record], int]:
    """The list at ``offset`` (count, then records) and the position after it.

    The checksums are not verified. Raises :class:`ProtocolError` on a negative count, null data, and a list that does
    not end by ``end``.
    """
    if offset + _COUNT.size > end:
        raise ProtocolError("the record list is too short")
    (count,) = _COUNT.unpack_from(buffer, offset)
    offset += _COUNT.size
    if count < 0 or count * RECORD_OVERHEAD_BYTES > end - offset:
        raise ProtocolError(f"a record list of {count} records in {end - offset} bytes")
    records: list[Record] = []
    add, unpack, unpack_checksum = records.append, _SIZED_HEADER.unpack_from, _CHECKSUM.unpack_from
    header_size, checksum_size = _SIZED_HEADER.size, _CHECKSUM.size
    last_header = end - RECORD_OVERHEAD_BYTES
    for _ in range(count):
        if offset > last_header:
            raise ProtocolError("the record list is too short")
        transaction_id, req_id, header, size = unpack(buffer, offset)
        data_start = offset + header_size
        data_end = data_start + size
        offset = data_end + checksum_size
        if size < 0 or offset > end:
            raise ProtocolError(f"data of {size} bytes in record {transaction_id}")
        (checksum,) = unpack_checksum(buffer, data_end)
        add(_new_tuple(Record, (transaction_id, req_id, header, buffer[data_start:data_end], checksum)))
    return records, offset
