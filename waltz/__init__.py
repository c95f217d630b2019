"""Waltz: a distributed, replicated write-ahead log for transactions with optimistic locks.

    async with waltz.connect("client.yml") as client:
        transaction_id = await client.append(0, b"hello")
        async for transaction in client.feed(0, after=-1):
            ...

The names of the client library can be imported from here. They are loaded at their first use, so that a process that
needs another part of this package does not load the client. ``waltz.blocking`` has the same client for threads,
``waltz.table`` the tables on the log, ``waltz.telemetry`` the metrics of a client.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from waltz import blocking, table, telemetry
    from waltz.asynchronous import Client, connect
    from waltz.client.builder import Append, TransactionBuilder
    from waltz.client.callbacks import WaltzClient, open_client
    from waltz.client.context import TransactionContext, WaltzClientCallbacks
    from waltz.client.databases.batches import StoredMarkError
    from waltz.client.databases.callbacks import DatabaseCallbacks
    from waltz.client.databases.kinds import DbApiDatabase, SqlAlchemyDatabase
    from waltz.client.decisions import Basis
    from waltz.client.election import Election, Leader, Leadership
    from waltz.client.engine.rpc import RpcClient
    from waltz.client.engine.sessions import ExclusiveSession
    from waltz.client.errors import (
        AckRetracted,
        AppendError,
        AppendManyError,
        ClientAheadError,
        ClientClosedError,
        ClientError,
        ClientTimeoutError,
        ConfirmedMarkNotSupportedError,
        ConsistencyRefusedError,
        DataChecksumError,
        InvalidOperationError,
        LockConflict,
        NotAppendedError,
        NotAuthorizedError,
        NotGuaranteedError,
        OtherLogError,
        OutcomeUnknownError,
        PartitionInactiveError,
        PartitionNotFoundError,
        PositionConflictError,
        PositionsError,
        RpcError,
        ServerError,
        SessionFencedError,
        SessionNotSupportedError,
        TimesNotSupportedError,
        TransactionTooLargeError,
        TrimmedError,
    )
    from waltz.client.events import ClientEvent
    from waltz.client.locks import PartitionLocalLock
    from waltz.client.options import ClientOptions
    from waltz.client.plain.acknowledgement import Acknowledgement
    from waltz.client.plain.consumer import Consumer
    from waltz.client.plain.merged import MergedFeed
    from waltz.client.plain.values import ValueClient
    from waltz.client.positions.file import FilePositions
    from waltz.client.positions.interface import Move, PositionStore
    from waltz.client.positions.sql import SqlAlchemyPositions, SqlitePositions
    from waltz.client.retry_policy import RetryPolicy
    from waltz.client.transaction import Transaction
    from waltz.common.config.schemas import ClientConfig
    from waltz.common.errors import (
        ConfigError,
        ConnectFailedError,
        ConnectionClosedError,
        DeadlineExceededError,
        ProtocolError,
        WaltzError,
    )
    from waltz.common.ids import Endpoint, ReqId
    from waltz.common.keys import partition_for
    from waltz.common.records import Record
    from waltz.common.serializers import (
        BytesSerializer,
        Deserializer,
        JsonSerializer,
        ModelSerializer,
        Serializer,
        StringSerializer,
    )
    from waltz.common.zk.client import NotPermittedError, ZooKeeperUnreachableError
    from waltz.common.zk.store_admin import StoreAdminError
    from waltz.table.face.positions import ZooKeeperPositions

    __version__: str

__all__ = [
    "AckRetracted",
    "Acknowledgement",
    "Append",
    "AppendError",
    "AppendManyError",
    "Basis",
    "BytesSerializer",
    "Client",
    "ClientAheadError",
    "ClientClosedError",
    "ClientConfig",
    "ClientError",
    "ClientEvent",
    "ClientOptions",
    "ClientTimeoutError",
    "ConfigError",
    "ConfirmedMarkNotSupportedError",
    "ConnectFailedError",
    "ConnectionClosedError",
    "ConsistencyRefusedError",
    "Consumer",
    "DataChecksumError",
    "DatabaseCallbacks",
    "DbApiDatabase",
    "DeadlineExceededError",
    "Deserializer",
    "Election",
    "Endpoint",
    "ExclusiveSession",
    "FilePositions",
    "InvalidOperationError",
    "JsonSerializer",
    "Leader",
    "Leadership",
    "LockConflict",
    "MergedFeed",
    "ModelSerializer",
    "Move",
    "NotAppendedError",
    "NotAuthorizedError",
    "NotGuaranteedError",
    "NotPermittedError",
    "OtherLogError",
    "OutcomeUnknownError",
    "PartitionInactiveError",
    "PartitionLocalLock",
    "PartitionNotFoundError",
    "PositionConflictError",
    "PositionStore",
    "PositionsError",
    "ProtocolError",
    "Record",
    "ReqId",
    "RetryPolicy",
    "RpcClient",
    "RpcError",
    "Serializer",
    "ServerError",
    "SessionFencedError",
    "SessionNotSupportedError",
    "SqlAlchemyDatabase",
    "SqlAlchemyPositions",
    "SqlitePositions",
    "StoreAdminError",
    "StoredMarkError",
    "StringSerializer",
    "TimesNotSupportedError",
    "Transaction",
    "TransactionBuilder",
    "TransactionContext",
    "TransactionTooLargeError",
    "TrimmedError",
    "ValueClient",
    "WaltzClient",
    "WaltzClientCallbacks",
    "WaltzError",
    "ZooKeeperPositions",
    "ZooKeeperUnreachableError",
    "__version__",
    "blocking",
    "connect",
    "open_client",
    "partition_for",
    "table",
    "telemetry",
]

_HOMES = {
    "waltz.asynchronous": ("Client", "connect"),
    "waltz.client.builder": ("Append", "TransactionBuilder"),
    "waltz.client.callbacks": ("WaltzClient", "open_client"),
    "waltz.client.context": ("TransactionContext", "WaltzClientCallbacks"),
    "waltz.client.databases.callbacks": ("DatabaseCallbacks",),
    "waltz.client.databases.batches": ("StoredMarkError",),
    "waltz.client.databases.kinds": ("DbApiDatabase", "SqlAlchemyDatabase"),
    "waltz.client.decisions": ("Basis",),
    "waltz.client.errors": (
        "AckRetracted",
        "AppendError",
        "AppendManyError",
        "ClientAheadError",
        "ClientClosedError",
        "ClientError",
        "ClientTimeoutError",
        "ConfirmedMarkNotSupportedError",
        "ConsistencyRefusedError",
        "DataChecksumError",
        "InvalidOperationError",
        "LockConflict",
        "NotAppendedError",
        "NotAuthorizedError",
        "NotGuaranteedError",
        "OtherLogError",
        "OutcomeUnknownError",
        "PartitionInactiveError",
        "PartitionNotFoundError",
        "PositionConflictError",
        "PositionsError",
        "RpcError",
        "ServerError",
        "SessionFencedError",
        "SessionNotSupportedError",
        "TimesNotSupportedError",
        "TransactionTooLargeError",
        "TrimmedError",
    ),
    "waltz.client.events": ("ClientEvent",),
    "waltz.client.locks": ("PartitionLocalLock",),
    "waltz.client.options": ("ClientOptions",),
    "waltz.client.plain.acknowledgement": ("Acknowledgement",),
    "waltz.client.plain.values": ("ValueClient",),
    "waltz.client.plain.consumer": ("Consumer",),
    "waltz.client.plain.merged": ("MergedFeed",),
    "waltz.client.positions.file": ("FilePositions",),
    "waltz.client.positions.interface": ("Move", "PositionStore"),
    "waltz.client.positions.sql": ("SqlAlchemyPositions", "SqlitePositions"),
    "waltz.client.retry_policy": ("RetryPolicy",),
    "waltz.client.election": ("Election", "Leader", "Leadership"),
    "waltz.client.engine.rpc": ("RpcClient",),
    "waltz.client.engine.sessions": ("ExclusiveSession",),
    "waltz.common.serializers": (
        "BytesSerializer",
        "Deserializer",
        "JsonSerializer",
        "ModelSerializer",
        "Serializer",
        "StringSerializer",
    ),
    "waltz.client.transaction": ("Transaction",),
    "waltz.common.config.schemas": ("ClientConfig",),
    "waltz.common.errors": (
        "ConfigError",
        "ConnectFailedError",
        "ConnectionClosedError",
        "DeadlineExceededError",
        "ProtocolError",
        "WaltzError",
    ),
    "waltz.common.ids": ("Endpoint", "ReqId"),
    "waltz.common.keys": ("partition_for",),
    "waltz.common.records": ("Record",),
    "waltz.common.zk.client": ("NotPermittedError", "ZooKeeperUnreachableError"),
    "waltz.common.zk.store_admin": ("StoreAdminError",),
    "waltz.table.face.positions": ("ZooKeeperPositions",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


_SUBMODULES = ("blocking", "table", "telemetry")


def __getattr__(name: str) -> object:
    if name == "__version__":
        return _version()
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    module = _HOME_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)


def _version() -> str:
    from waltz.common.version import installed_version

    return installed_version() or "0+unknown"  # run from the sources, without being installed


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF, *_SUBMODULES, "__version__"})
