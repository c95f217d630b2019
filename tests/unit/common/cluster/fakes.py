"""A cluster made of what a bulk reader sees of one: owners that tell marks, admin ports that deliver records."""

import asyncio
import ssl
import struct
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from waltz.common.checksum import checksum
from waltz.common.ids import LONG_MIN, Endpoint, ReqId
from waltz.common.net.channel import Channel
from waltz.common.net.listener import Listener
from waltz.common.records import Record
from waltz.common.wire import admin, client_server
from waltz.common.wire import admin_version1 as admin_wire
from waltz.common.wire.client_times import TimeRequest, TimeResponse, TimeStatus
from waltz.common.wire.frames import CLIENT_SERVER, STORAGE_ADMIN, Bounds, Family
from waltz.common.wire.storage_times import TimeQuestion
from waltz.common.wire.structures import RpcException
from waltz.common.wire.version5 import DataListStatus, TransactionDataListRequest, TransactionDataListResponse
from waltz.common.zk.client import NodeExistsError, ZooKeeper
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.store_admin import add_storage_node, assign_partitions, create_cluster
from waltz.common.zk.znodes import (
    UNRESOLVED,
    PartitionAssignment,
    PartitionGeneration,
    PartitionMetadata,
    ReplicaId,
    ReplicaState,
    ServerDescriptor,
)
from waltz.storage.disk.segment.segment_format import encode_record

KEY = UUID("339476fd-c80f-4ace-a26a-66dcbe6af680")
SESSION = 7
GENERATION = 3


def make_record(partition_id: int, transaction_id: int, payload: bytes | None = None) -> Record:
    """A record whose every field follows from its place in the log."""
    data = b"%d/%d" % (partition_id, transaction_id) if payload is None else payload
    req_id = ReqId.of(1000 + partition_id, -GENERATION, partition_id, transaction_id * 2)
    return Record(transaction_id, req_id, -transaction_id, data, checksum(data))


def make_log(partition_id: int, count: int, payload: bytes | None = None) -> list[Record]:
    """Records 0 to ``count - 1``."""
    return [make_record(partition_id, transaction_id, payload) for transaction_id in range(count)]


def as_on_disk(records: list[Record]) -> tuple[bytes, bytes]:
    """The sizes and the bytes of the records in a segment file."""
    stored = [encode_record(item) for item in records]
    return struct.pack(f">{len(stored)}i", *map(len, stored)), b"".join(stored)


def encode_range(records: list[Record]) -> bytes:
    """How an answer with these records as they are on disk ends."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in as_on_disk(records))


def damaged(log: list[Record], transaction_id: int) -> list[Record]:
    """The log with one payload that no longer matches its checksum."""
    return [item._replace(data=b"X" + item.data) if item.transaction_id == transaction_id else item for item in log]


class _Handler:
    """A handler whose every connection shares one fake."""

    def channel_ready(self, channel: Channel) -> None:
        pass

    def channel_writable(self, channel: Channel) -> None:
        pass

    def channel_closed(self, channel: Channel, error: Exception | None) -> None:
        pass


class FakeStorage(_Handler):
    """The admin port of a storage node."""

    def __init__(self, logs: Mapping[int, list[Record]], family: Family = STORAGE_ADMIN) -> None:
        self.logs = dict(logs)
        self.family = family
        self.partition_count = len(self.logs)
        self.max_answer_records = 1_000_000
        self.shift = 0
        """Added to the first id of every request: a storage that delivers something else."""
        self.mute = False
        """Answers nothing any more."""
        self.hang_up_after: int | None = None
        """Closes the connection instead of answering, when so many record requests were answered."""
        self.requests: list[admin.RecordListRequest | admin_wire.RecordRangeRequest] = []
        self.connections = 0
        self._listener: Listener | None = None

    async def start(self, tls: ssl.SSLContext | None = None) -> None:
        self._listener = await Listener.open("127.0.0.1", 0, self.family, "fake storage", lambda: self, tls=tls)

    async def stop(self) -> None:
        if self._listener is not None:
            await self._listener.close()

    @property
    def admin_port(self) -> int:
        assert self._listener is not None
        return self._listener.port

    def channel_ready(self, channel: Channel) -> None:
        self.connections += 1

    def frames_received(self, channel: Channel, buffer: bytes, bounds: Bounds) -> None:
        for start, end in bounds:
            message = admin_wire.decode(buffer, start, end, channel.version)
            if isinstance(message, admin.RecordListRequest | admin_wire.RecordRangeRequest):
                self.requests.append(message)
            if self.mute:
                continue
            if self.hang_up_after is not None and len(self.requests) > self.hang_up_after:
                channel.abort()
                return
            channel.send(admin_wire.encode(self._answer(message), channel.version))

    def _answer(self, message: admin_wire.Message) -> admin_wire.Message:
        if isinstance(message, admin.AdminOpenRequest):
            if (message.key, message.partition_count) != (KEY, self.partition_count):
                return admin.AdminFailureResponse(message.seq_num, RpcException("StorageException: another cluster"))
            return admin.AdminSuccessResponse(message.seq_num)
        assert isinstance(message, admin.RecordListRequest | admin_wire.RecordRangeRequest)
        log = self.logs.get(message.partition_id)
        if log is None:
            text = f"java.lang.Exception: Partition:{message.partition_id} is not assigned."
            return admin.AdminFailureResponse(message.seq_num, RpcException(text))
        first = message.transaction_id + self.shift
        records = log[first : first + min(message.max_count, self.max_answer_records)]
        if isinstance(message, admin_wire.RecordRangeRequest):
            return admin_wire.RecordRangeResponse(message.seq_num, message.partition_id, *as_on_disk(records))
        return admin.RecordListResponse(message.seq_num, message.partition_id, records)


class FakeOwner(_Handler):
    """The client port of a server, for high-water marks, and for transactions that no storage delivers."""

    def __init__(self, marks: Mapping[int, int]) -> None:
        self.marks = dict(marks)
        self.logs: dict[int, list[Record]] = {}
        """What it has beside the storages: nothing, as a server whose caches have forgotten it."""
        self.max_answer_records = 1_000_000
        self.refused_lists = 0
        """Number of requests for transactions that are refused before the server owns the partition."""
        self.lists: list[TransactionDataListRequest] = []
        self.times: dict[int, dict[int, int]] | None = {}
        """By partition, transactions and the times of their commits; ``None``: no storage keeps them."""
        self.refused_times = 0
        """So many questions for times find no storage that answers."""
        self.unknown_at_first: dict[int, int] = defaultdict(int)
        """By partition, the number of first requests that find the mark not known yet."""
        self.silent: set[int] = set()
        """Partitions that get no answer, as those that a server does not own."""
        self.before_answer: Callable[[], Awaitable[None]] | None = None
        self.requests: list[ReqId] = []
        self._listener: Listener | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, tls: ssl.SSLContext | None = None, family: Family = CLIENT_SERVER) -> None:
        self._listener = await Listener.open("127.0.0.1", 0, family, "fake server", lambda: self, tls=tls)

    async def stop(self) -> None:
        if self._listener is not None:
            await self._listener.close()
        await asyncio.gather(*self._tasks)

    @property
    def endpoint(self) -> Endpoint:
        assert self._listener is not None
        return Endpoint("127.0.0.1", self._listener.port)

    def frames_received(self, channel: Channel, buffer: bytes, bounds: Bounds) -> None:
        for message in client_server.decode_batch(buffer, bounds, channel.version):
            if isinstance(message, TransactionDataListRequest):
                self.lists.append(message)
                channel.send(client_server.encode(self._list(message), channel.version))
                continue
            if isinstance(message, TimeRequest):
                channel.send(client_server.encode(self._time(message), channel.version))
                continue
            assert isinstance(message, client_server.HighWaterMarkRequest)
            task = asyncio.get_running_loop().create_task(self._answer(channel, ReqId(message.req_id)))
            self._tasks.add(task)

    def _time(self, message: TimeRequest) -> TimeResponse:
        if self.times is None:
            return TimeResponse(message.req_id, TimeStatus.NOT_KEPT, -1, -1)
        if self.refused_times > 0:
            self.refused_times -= 1
            return TimeResponse(message.req_id, TimeStatus.NOT_ANSWERED, -1, -1)
        assert message.question is TimeQuestion.LAST_AT
        known = self.times.get(ReqId(message.req_id).partition_id, {})
        found = max((entry for entry in known.items() if entry[1] <= message.value), default=(-1, -1))
        return TimeResponse(message.req_id, TimeStatus.OK, *found)

    def _list(self, message: TransactionDataListRequest) -> TransactionDataListResponse:
        first, partition_id = message.transaction_id, ReqId(message.req_id).partition_id
        status, error, records = DataListStatus.OK, None, list[Record]()
        if self.refused_lists > 0:
            self.refused_lists -= 1
            status = DataListStatus.NOT_READY
        elif partition_id not in self.logs:
            status = DataListStatus.FAILED
            error = f"the storages have not got transaction {first}, which is committed"
        else:
            committed = self.logs[partition_id][: self.marks[partition_id] + 1]
            records = committed[first : first + min(message.max_count, self.max_answer_records)]
        return TransactionDataListResponse(message.req_id, first, status, self.marks[partition_id], records, error)

    async def _answer(self, channel: Channel, req_id: ReqId) -> None:
        self.requests.append(req_id)
        if self.before_answer is not None:
            await self.before_answer()
        partition_id = req_id.partition_id
        if partition_id in self.silent:
            return
        mark = self.marks[partition_id]
        if self.unknown_at_first[partition_id] > 0:
            self.unknown_at_first[partition_id] -= 1
            mark = LONG_MIN
        channel.send(client_server.encode(client_server.HighWaterMarkResponse(req_id, mark), channel.version))


def storage_name(index: int) -> str:
    """Connect string of the data port, which nobody opens here."""
    return f"127.0.0.1:{6000 + index}"


def make_metadata(
    partition_id: int, states: Mapping[str, tuple[int, int]], *, session_id: int = SESSION
) -> PartitionMetadata:
    """Metadata with ``(session, closing mark)`` per storage."""
    replicas = {
        ReplicaId(partition_id, storage): ReplicaState(ReplicaId(partition_id, storage), session, closing)
        for storage, (session, closing) in states.items()
    }
    return PartitionMetadata(GENERATION, session_id, replicas)


@dataclass
class FakeCluster:
    """A whole cluster with one owner and some storages; every storage holds every partition."""

    zookeeper: ZooKeeper
    root: str
    owner: FakeOwner
    storages: list[FakeStorage]
    partition_count: int = field(init=False)

    def __post_init__(self) -> None:
        self.partition_count = len(self.owner.marks)

    @classmethod
    async def start(
        cls,
        zookeeper: ZooKeeper,
        root: str,
        counts: Iterable[int],
        *,
        storages: int = 3,
        tls: ssl.SSLContext | None = None,
    ) -> "FakeCluster":
        """``counts``: committed transactions of each partition, which all storages have."""
        logs = {partition_id: make_log(partition_id, count) for partition_id, count in enumerate(counts)}
        owner = FakeOwner({partition_id: len(log) - 1 for partition_id, log in logs.items()})
        cluster = cls(zookeeper, root, owner, [FakeStorage(logs) for _ in range(storages)])
        await owner.start(tls)
        await create_cluster(zookeeper, root, "fake", len(logs), KEY)
        for index, storage in enumerate(cluster.storages):
            await storage.start(tls)
            await add_storage_node(zookeeper, root, storage_name(index), 0, storage.admin_port)
            if logs:
                await assign_partitions(zookeeper, root, storage_name(index), list(logs))
        await cluster.register_server(1, owner.endpoint)
        await cluster.assign_to(1)
        for partition_id in logs:
            await cluster.set_states(
                partition_id, {storage_name(index): (SESSION, UNRESOLVED) for index in range(storages)}
            )
        return cluster

    async def stop(self) -> None:
        await self.owner.stop()
        for storage in self.storages:
            await storage.stop()

    @property
    def paths(self) -> ClusterPaths:
        return ClusterPaths.of(self.root)

    async def register_server(self, server_id: int, endpoint: Endpoint) -> None:
        await self.zookeeper.create(
            self.paths.server_descriptor("s_"),
            ServerDescriptor(server_id, endpoint).encode(),
            ephemeral=True,
            sequential=True,
        )

    async def assign_to(self, server_id: int) -> None:
        """Make one server the owner of all partitions."""
        owned = tuple(PartitionGeneration(partition_id, GENERATION) for partition_id in range(self.partition_count))
        assignment = PartitionAssignment(1, self.partition_count, {server_id: owned})
        await self.zookeeper.set(self.paths.server_descriptors, assignment.encode())

    async def set_states(
        self, partition_id: int, states: Mapping[str, tuple[int, int]], *, session_id: int = SESSION
    ) -> None:
        """Write a partition's metadata."""
        path = self.paths.partition(partition_id)
        data = make_metadata(partition_id, states, session_id=session_id).encode()
        try:
            await self.zookeeper.create(path, data)
        except NodeExistsError:
            await self.zookeeper.set(path, data)
