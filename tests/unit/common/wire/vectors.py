"""The vectors of ``tests/data``, turned into messages of this package."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from uuid import UUID

from waltz.common.ids import ReqId
from waltz.common.records import Record, RecordHeader
from waltz.common.wire import admin, client_server, storage
from waltz.common.wire.structures import RpcException, SessionInfo

DATA = Path(__file__).parents[3] / "data"

_NAMES = {
    "reqId": "req_id",
    "clientHighWaterMark": "client_high_water_mark",
    "seqNum": "seq_num",
    "transactionId": "transaction_id",
    "partitionState": "state",
    "writeLockRequest": "write_locks",
    "readLockRequest": "read_locks",
    "appendLockRequest": "append_locks",
    "exception": "error",
    "storageConnectivityMap": "connectivity",
    "serverPartitionAssignments": "partition_ids",
    "serverPartitionHealthStats": "health",
    "partitionIds": "partition_ids",
    "partitionsIds": "partition_ids",
    "partitionId": "partition_id",
    "sessionId": "session_id",
    "usedByOfflineRecovery": "offline",
    "numPartitions": "partition_count",
    "lastSessionInfo": "info",
    "lowWaterMark": "low_water_mark",
    "maxNumRecords": "max_count",
    "recordHeader": "record_header",
    "recordHeaders": "record_headers",
    "deleteStorageFiles": "delete_files",
    "metricsJson": "metrics_json",
    "partitionStatusMap": "partition_status",
}


class Vector(NamedTuple):
    """One line of ``wire.jsonl``."""

    codec: str
    version: int
    name: str
    message: Any
    frame: bytes | None
    error: str | None


def _lines(file_name: str) -> Iterator[dict[str, Any]]:
    with open(DATA / file_name, encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def _req_id(value: dict[str, int]) -> ReqId:
    return ReqId.of(value["clientId"], value["generation"], value["partitionId"], value["seqNum"])


def _record(value: dict[str, Any]) -> Record:
    return Record(
        value["transactionId"],
        _req_id(value["reqId"]),
        value["header"],
        bytes.fromhex(value["data"]["bytes_hex"]),
        value["checksum"],
    )


def _record_header(value: dict[str, Any]) -> RecordHeader:
    return RecordHeader(value["transactionId"], _req_id(value["reqId"]), value["header"])


def _error(message: str, value: dict[str, Any]) -> Any:
    if message == "TransactionDataResponse":
        return value["message"]
    assert value["stackTrace"] == []
    return RpcException(value["message"])


def _value(message: str, name: str, value: Any) -> Any:
    if value is None:
        return None
    match name:
        case "reqId":
            return _req_id(value)
        case "partitionState":
            return client_server.PartitionState(value)
        case "exception":
            return _error(message, value)
        case "lastSessionInfo":
            return SessionInfo(value["sessionId"], value["lowWaterMark"], value["localLowWaterMark"])
        case "record":
            return _record(value)
        case "records":
            return [_record(item) for item in value]
        case "recordHeader":
            return _record_header(value)
        case "recordHeaders":
            return [_record_header(item) for item in value]
        case "key":
            return UUID(value)
        case "data":
            return bytes.fromhex(value["bytes_hex"])
    if isinstance(value, list):
        return tuple(tuple(item) if isinstance(item, list) else item for item in value)
    return value


def _message(module: ModuleType, name: str, fields: dict[str, Any]) -> Any:
    message_class = getattr(module, name)
    names = dict(_NAMES, toggled="assigned" if name == "PartitionAssignmentRequest" else "available")
    values = {names.get(key, key): _value(name, key, value) for key, value in fields.items()}
    if "offline" not in message_class._fields:
        assert values.pop("offline", False) is False
    return message_class(**values)


_MODULES = {
    **{f"MessageCodecV{version}": client_server for version in range(5)},
    "StorageMessageCodecV0": storage,
    "AdminMessageCodecV0": admin,
}


def message_vectors() -> list[Vector]:
    """Every vector of a message codec, whichever the family."""
    return [
        Vector(
            line["codec"],
            line["version"],
            line["message"],
            _message(_MODULES[line["codec"]], line["message"], line["fields"]),
            None if "error" in line else bytes.fromhex(line["frame_header_hex"] + line["hex"]),
            line.get("error"),
        )
        for line in wire_lines()
        if line["codec"] in _MODULES
    ]


@cache
def wire_lines() -> tuple[dict[str, Any], ...]:
    """The lines of ``wire.jsonl`` as they are."""
    return tuple(_lines("wire.jsonl"))


@cache
def transcript_lines() -> tuple[dict[str, Any], ...]:
    """The lines of ``transcripts.jsonl`` as they are."""
    return tuple(_lines("transcripts.jsonl"))


def encode(codec: str, version: int, message: Any) -> bytes:
    """Encode with the family of ``codec``."""
    if codec.startswith("MessageCodec"):
        return client_server.encode(message, version)
    return storage.encode(message) if codec.startswith("Storage") else admin.encode(message)


def decode(codec: str, version: int, buffer: bytes, start: int, end: int) -> Any:
    """Decode one payload with the family of ``codec``."""
    if codec.startswith("MessageCodec"):
        return client_server.decode(buffer, start, end, version)
    return (storage if codec.startswith("Storage") else admin).decode(buffer, start, end)


def decode_batch(codec: str, version: int, buffer: bytes, bounds: list[tuple[int, int]]) -> list[Any]:
    """Decode many payloads with the family of ``codec``."""
    if codec.startswith("MessageCodec"):
        return list(client_server.decode_batch(buffer, bounds, version))
    return list((storage if codec.startswith("Storage") else admin).decode_batch(buffer, bounds))
