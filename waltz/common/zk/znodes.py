"""The values of znodes, and their encodings.

Layouts are those of the original (Java's ``DataOutput``): big-endian integers, strings in modified UTF-8 behind a
16-bit length, maps as a count and entries. Readers ignore trailing bytes and do not depend on the order of entries;
writers keep the order of the dictionary. Values must be compared decoded: equal values may differ in bytes.

``decode`` takes the node's data from ZooKeeper, and the path for error texts. It raises
:class:`~waltz.common.errors.ProtocolError` for null data, an unknown version or magic number, and data that ends early.
"""

import re
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar
from uuid import UUID

from waltz.common.errors import ProtocolError
from waltz.common.ids import LONG_MIN, Endpoint

UNRESOLVED = LONG_MIN
"""Closing high-water mark of a replica that, as far as is known, took part in the named session to its end."""

_CLUSTER_MAGIC = -1259834553
"""``"Cluster Manager".hashCode()`` of Java."""

_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_SHORT = struct.Struct(">H")
_BEYOND_BMP = re.compile("[\U00010000-\U0010ffff]")
_K = TypeVar("_K")
_V = TypeVar("_V")


def _encode_utf(text: str) -> bytes:
    """Modified UTF-8: U+0000 in two bytes, characters beyond U+FFFF as two surrogates of three bytes each."""
    encoded = _BEYOND_BMP.sub(_surrogates, text).encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")
    if len(encoded) > 0xFFFF:
        raise ValueError(f"a string of {len(encoded)} bytes does not fit into a znode value (at most 65535)")
    return _SHORT.pack(len(encoded)) + encoded


def _surrogates(match: re.Match[str]) -> str:
    code = ord(match[0]) - 0x10000
    return chr(0xD800 + (code >> 10)) + chr(0xDC00 + (code & 0x3FF))


def _encode_ints(values: Iterable[int]) -> bytes:
    return struct.pack(f">i{len(items)}i", len(items), *items) if (items := tuple(values)) else _INT.pack(0)


class _Reader:
    """Reads fields in order; every failure is a ProtocolError that names what was being read."""

    __slots__ = ("_data", "_offset", "_what")

    def __init__(self, data: bytes | None, kind: str, path: str) -> None:
        self._what = f"{path}: {kind}" if path else kind
        if data is None:
            raise ProtocolError(f"{self._what}: the node has no value")
        self._data = data
        self._offset = 0

    def take(self, size: int) -> bytes:
        start = self._offset
        self._offset = start + size
        if self._offset > len(self._data):
            raise ProtocolError(f"{self._what}: {len(self._data)} bytes end inside a field at offset {start}")
        return self._data[start : self._offset]

    def byte(self) -> int:
        return self.take(1)[0]

    def int32(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)

    def int64(self) -> int:
        return int.from_bytes(self.take(8), "big", signed=True)

    def utf(self) -> str:
        start = self._offset
        encoded = self.take(int.from_bytes(self.take(2), "big"))
        try:
            if encoded and max(encoded) >= 0xF0:
                raise ValueError("a four-byte sequence")
            paired = encoded.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        except ValueError as error:
            raise ProtocolError(f"{self._what}: no modified UTF-8 at offset {start}: {error}") from None
        return paired.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")

    def count(self) -> int:
        value = self.int32()
        if value < 0:
            raise ProtocolError(f"{self._what}: negative count {value} at offset {self._offset - 4}")
        return value

    def ints(self) -> tuple[int, ...]:
        count = self.count()
        return struct.unpack(f">{count}i", self.take(4 * count))

    def pairs(self, key: Callable[[], _K], value: Callable[[], _V]) -> dict[_K, _V]:
        return {key(): value() for _ in range(self.count())}

    def expect_version(self, version: int) -> None:
        found = self.byte()
        if found != version:
            raise ProtocolError(f"{self._what}: unknown version {found}, expected {version}")

    def expect_magic(self, magic: int) -> None:
        found = self.int32()
        if found != magic:
            raise ProtocolError(
                f"{self._what}: magic number {found & 0xFFFFFFFF:08x}, {magic & 0xFFFFFFFF:08x} expected"
            )


def encode_counter(value: int) -> bytes:
    """Encode an id counter."""
    return _INT.pack(value)


def decode_counter(data: bytes | None, path: str = "") -> int:
    """Decode an id counter."""
    return _Reader(data, "id counter", path).int32()


class ClusterParams(NamedTuple):
    """Value of the cluster root."""

    name: str
    partition_count: int

    def encode(self) -> bytes:
        """Magic number, version 1, name, number of partitions."""
        return _INT.pack(_CLUSTER_MAGIC) + b"\x01" + _encode_utf(self.name) + _INT.pack(self.partition_count)

    @classmethod
    def decode(cls, data: bytes | None, path: str = "") -> "ClusterParams":
        """Inverse of :meth:`encode`."""
        reader = _Reader(data, "cluster parameters", path)
        reader.expect_magic(_CLUSTER_MAGIC)
        reader.expect_version(1)
        return cls(reader.utf(), reader.int32())


class PartitionGeneration(NamedTuple):
    """A partition given to a server; the generation grows whenever the partition changes its owner."""

    partition_id: int
    generation: int


class PartitionAssignment(NamedTuple):
    """The owners of all partitions, and the membership (by child version) that they were computed from."""

    cversion: int
    partition_count: int
    servers: dict[int, tuple[PartitionGeneration, ...]]
    """Partitions with their generations, by server id."""

    def encode(self) -> bytes:
        """Version 3, child version, number of partitions, servers."""
        parts = [b"\x03", struct.pack(">iii", self.cversion, self.partition_count, len(self.servers))]
        for server_id, owned in self.servers.items():
            parts.append(struct.pack(">ii", server_id, len(owned)))
            parts.extend(struct.pack(">ii", *item) for item in owned)
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes | None, path: str = "") -> "PartitionAssignment":
        """Inverse of :meth:`encode`."""
        reader = _Reader(data, "partition assignment", path)
        reader.expect_version(3)
        cversion, partition_count = reader.int32(), reader.int32()

        def owned() -> tuple[PartitionGeneration, ...]:
            return tuple(PartitionGeneration(reader.int32(), reader.int32()) for _ in range(reader.count()))

        return cls(cversion, partition_count, reader.pairs(reader.int32, owned))


class ServerDescriptor(NamedTuple):
    """A live server: value of its ephemeral node."""

    server_id: int
    endpoint: Endpoint
    preferred_partitions: tuple[int, ...] = ()

    def encode(self) -> bytes:
        """Version 1, server id, host, port, preferred partitions."""
        return b"".join(
            (
                b"\x01",
                _INT.pack(self.server_id),
                _encode_utf(self.endpoint.host),
                _INT.pack(self.endpoint.port),
                _encode_ints(self.preferred_partitions),
            )
        )

    @classmethod
    def decode(cls, data: bytes | None, path: str = "") -> "ServerDescriptor":
        """Inverse of :meth:`encode`."""
        reader = _Reader(data, "server descriptor", path)
        reader.expect_version(1)
        return cls(reader.int32(), Endpoint(reader.utf(), reader.int32()), reader.ints())


class StoreParams(NamedTuple):
    """Identity of the log, which storages and servers compare."""

    key: UUID
    partition_count: int

    def encode(self) -> bytes:
        """Version 1, cluster key, number of partitions."""
        return b"\x01" + self.key.bytes + _INT.pack(self.partition_count)

    @classmethod
    def decode(cls, data: bytes | None, path: str = "") -> "StoreParams":
        """Inverse of :meth:`encode`."""
        reader = _Reader(data, "store parameters", path)
        reader.expect_version(1)
        return cls(UUID(bytes=reader.take(16)), reader.int32())


class GroupDescriptor(NamedTuple):
    """Group (region, zone) of every storage; each group is meant to hold a complete copy."""

    groups: dict[str, int]
    """Connect string of the storage to group id."""

    def encode(self) -> bytes:
        """Version 1, entries."""
        return _encode_numbers(self.groups)

    @classmethod
    def decode(cls, data: bytes | None, path: str = "") -> "GroupDescriptor":
        """Inverse of :meth:`encode`."""
        return cls(_decode_numbers(_Reader(data, "group descriptor", path)))


class ConnectionMetadata(NamedTuple):
    """Admin port of every storage."""

    admin_ports: dict[str, int]
    """Connect string of the storage to the port of its admin service."""

    def encode(self) -> bytes:
        """Version 1, entries."""
        return _encode_numbers(self.admin_ports)

    @classmethod
    def decode(cls, data: bytes | None, path: str = "") -> "ConnectionMetadata":
        """Inverse of :meth:`encode`."""
        return cls(_decode_numbers(_Reader(data, "connection metadata", path)))


def _encode_numbers(numbers: dict[str, int]) -> bytes:
    entries = (_encode_utf(name) + _INT.pack(number) for name, number in numbers.items())
    return b"".join((b"\x01", _INT.pack(len(numbers)), *entries))


def _decode_numbers(reader: _Reader) -> dict[str, int]:
    reader.expect_version(1)
    return reader.pairs(reader.utf, reader.int32)


class ReplicaAssignments(NamedTuple):
    """The partitions that every storage has to hold."""

    partitions: dict[str, tuple[int, ...]]
    """Connect string of the storage to partition ids."""

    def encode(self) -> bytes:
        """Version 1, entries."""
        entries = (_encode_utf(name) + _encode_ints(ids) for name, ids in self.partitions.items())
        return b"".join((b"\x01", _INT.pack(len(self.partitions)), *entries))

    @classmethod
    def decode(cls, data: bytes | None, path: str = "") -> "ReplicaAssignments":
        """Inverse of :meth:`encode`."""
        reader = _Reader(data, "replica assignments", path)
        reader.expect_version(1)
        return cls(reader.pairs(reader.utf, reader.ints))

    def storages_of(self, partition_id: int) -> frozenset[str]:
        """Connect strings of the storages that hold a replica of the partition."""
        return frozenset(name for name, ids in self.partitions.items() if partition_id in ids)

    def storages_by_partition(self) -> dict[int, frozenset[str]]:
        """Connect strings of the storages of every partition that has a replica."""
        storages: defaultdict[int, list[str]] = defaultdict(list)
        for name, ids in self.partitions.items():
            for partition_id in ids:
                storages[partition_id].append(name)
        return {partition_id: frozenset(names) for partition_id, names in storages.items()}


class ReplicaId(NamedTuple):
    """One copy of one partition; the connect string is compared by exact spelling."""

    partition_id: int
    connect_string: str

    def encode(self) -> bytes:
        """Version 1, partition id, connect string."""
        return b"\x01" + _INT.pack(self.partition_id) + _encode_utf(self.connect_string)


class ReplicaState(NamedTuple):
    """The trusted part of a replica: up to the closing mark of the session, or all of it."""

    replica_id: ReplicaId
    session_id: int
    closing_high_water_mark: int
    """Highest transaction id known to be right, or :data:`UNRESOLVED`."""

    def is_member_of(self, session_id: int) -> bool:
        """Whether the replica is a member of the store session: it has a vote in the next recovery."""
        return self.session_id == session_id and self.closing_high_water_mark == UNRESOLVED

    def encode(self) -> bytes:
        """Version 1, replica id, session id, closing high-water mark."""
        return b"".join(
            (b"\x01", self.replica_id.encode(), _LONG.pack(self.session_id), _LONG.pack(self.closing_high_water_mark))
        )


def _read_replica_state(reader: _Reader) -> ReplicaState:
    reader.expect_version(1)
    reader.expect_version(1)  # of the replica id, with which the state begins
    return ReplicaState(ReplicaId(reader.int32(), reader.utf()), reader.int64(), reader.int64())


class PartitionMetadata(NamedTuple):
    """Generation and session of a partition with the states of its replicas."""

    generation: int
    session_id: int
    replicas: dict[ReplicaId, ReplicaState]

    def encode(self) -> bytes:
        """Version 1, generation, session id, replica states (the keys are not written: each state has its id)."""
        head = b"\x01" + struct.pack(">iqi", self.generation, self.session_id, len(self.replicas))
        return head + b"".join(state.encode() for state in self.replicas.values())

    @classmethod
    def decode(cls, data: bytes | None, path: str = "") -> "PartitionMetadata":
        """Inverse of :meth:`encode`."""
        reader = _Reader(data, "partition metadata", path)
        reader.expect_version(1)
        generation, session_id = reader.int32(), reader.int64()

        states = [_read_replica_state(reader) for _ in range(reader.count())]
        return cls(generation, session_id, {state.replica_id: state for state in states})


EMPTY_PARTITION_METADATA = PartitionMetadata(-1, -1, {})
"""First value of a partition's node, before its first store session."""
