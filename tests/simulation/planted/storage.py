"""Bugs to plant in storages, and in the store sessions and recoveries of servers."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock
from uuid import UUID

from tests.simulation.disk import SECTOR_BYTES, SimulatedFile, SimulatedFiles
from tests.simulation.loop import running_process
from waltz.common.cluster import quorum as voting
from waltz.common.wire import storage as wire
from waltz.common.wire import storage_version1
from waltz.common.zk.client import ANY_VERSION
from waltz.common.zk.znodes import UNRESOLVED, PartitionMetadata
from waltz.server.store.interface import Append
from waltz.server.store.metadata_node import MetadataNode
from waltz.server.store.recovery import recovery
from waltz.server.store.recovery.recovery import RecoveryMachine, Step
from waltz.server.store.recovery.recovery_effects import GetMaximum, Open, Truncate
from waltz.server.store.recovery.replica_states import NO_SESSION, is_clean, states_after_recovery
from waltz.server.store.replica.replica import Replica
from waltz.server.store.replica.replica_stages import Stage
from waltz.server.store.ring import BatchRing
from waltz.server.store.session import session
from waltz.server.store.session.session import StoreSession
from waltz.server.store.session.settlement import Settlement
from waltz.storage.disk.files.files import Files
from waltz.storage.disk.log import log as storage_log
from waltz.storage.disk.log import log_opening
from waltz.storage.disk.log.log import PartitionLog
from waltz.storage.disk.salvage import Reported, Salvage, _free_name
from waltz.storage.disk.segment import segment_opening
from waltz.storage.disk.segment.scan import SegmentScan
from waltz.storage.disk.segment.segment import Segment, SegmentWrite
from waltz.storage.disk.segment.segment_format import Reader, SegmentHeader, find_later_record
from waltz.storage.errors import CorruptionError
from waltz.storage.node.partition import StoragePartition

_decode_many = storage_version1.decode_many


@contextlib.contextmanager
def quorum_off_by_one() -> Iterator[None]:
    def too_few(replica_count: int) -> int:
        return max(replica_count // 2, 1)

    with mock.patch.object(session, "quorum_of", too_few), mock.patch.object(recovery, "quorum_of", too_few):
        yield


@contextlib.contextmanager
def count_live_replicas() -> Iterator[None]:
    """The majority of a session is that of the replicas that are live at the moment."""
    acknowledged = StoreSession.acknowledged

    def with_quorum_of_live(store_session: StoreSession) -> None:
        quorum = store_session._quorum
        live = sum(replica.live for replica in store_session._members)
        store_session._quorum = min(quorum, voting.quorum_of(live)) if live else quorum
        try:
            acknowledged(store_session)
        finally:
            store_session._quorum = quorum

    with mock.patch.object(StoreSession, "acknowledged", with_quorum_of_live):
        yield


def sync_nothing(file: SimulatedFile) -> None:
    """Say that it is durable."""


@contextlib.contextmanager
def one_storage_acknowledges_before_sync() -> Iterator[None]:
    """One storage answers appends when they are written; what is in fact synced is whatever another cause syncs."""
    datasync = SimulatedFile.datasync

    def hasty(file: SimulatedFile) -> None:
        process = running_process()
        if process is None or process.host != "storage-1" or not file._path.endswith(".seg"):
            datasync(file)

    with mock.patch.object(SimulatedFile, "datasync", hasty):
        yield


@contextlib.contextmanager
def leave_new_segments_out_of_the_directory() -> Iterator[None]:
    """The files of a new segment are synced, and their directory is not."""
    create = segment_opening.create_segment

    def created(*arguments: Any) -> Any:
        with mock.patch.object(SimulatedFiles, "sync_directory", sync_no_directory):
            return create(*arguments)

    with mock.patch.object(storage_log, "create_segment", created):
        yield


@contextlib.contextmanager
def write_checkpoints_without_sync() -> Iterator[None]:
    """Appends are acknowledged before the index is synced that leads to their checkpoint."""
    sync = Segment.sync

    def without_checkpoint(segment: Segment, handles: Any, write: SegmentWrite) -> None:
        sync(segment, handles, write._replace(checkpoint=False))

    with mock.patch.object(Segment, "sync", without_checkpoint):
        yield


def take_unfinished_segments_for_damage(
    files: object, directory: object, path: str, partition_id: int, beyond: object
) -> None:
    """Refuse a partition because the creation of its next segment was interrupted."""
    raise CorruptionError(partition_id, None, path, "the header of the segment is missing")


@contextlib.contextmanager
def repair_by_the_mark_alone() -> Iterator[None]:
    """A repair cuts what is damaged above the mark that was read when it began, whatever came after."""
    with (
        mock.patch.object(Reported, "covers", return_value=True),
        mock.patch.object(StoragePartition, "has_grown", False),
    ):
        yield


def move_aside(salvage: Salvage, path: str) -> None:
    """A repair takes a damaged file away before the whole one is in its place."""
    salvage._files.rename(path, _free_name(salvage._files, path))
    salvage._files.sync_directory(salvage._directory)


def sync_no_directory(files: SimulatedFiles, path: str) -> None:
    """Say that the entries are durable."""


def truncate_nothing(log: PartitionLog, transaction_id: int) -> int:
    return min(transaction_id, log.max_transaction_id)


def accept_every_session(message: object, session_id: int) -> None:
    """No request is refused for its session."""


def acknowledge_regardless(partition: StoragePartition, requests: Sequence[Any], frames: Sequence[bytes]) -> None:
    """Answer requests that were executed, whoever has spoken meanwhile."""
    for request, frame in zip(requests, frames, strict=True):
        request.requester.answer(frame)


@contextlib.contextmanager
def answer_before_the_write_ends() -> Iterator[None]:
    """S1: a newer session is told the maximum while the write of an older one is under way, which is acknowledged."""
    receive = StoragePartition.receive

    def hasty(partition: StoragePartition, request: Any) -> None:
        message = request.message
        questions = wire.LastSessionInfoRequest | wire.MaxTransactionIdRequest
        if isinstance(message, questions) and message.session_id >= partition._session_id:
            partition._session_id = message.session_id
            partition._tasks.append(asyncio.create_task(partition._execute(request)))
        else:
            receive(partition, request)

    with (
        mock.patch.object(StoragePartition, "receive", hasty),
        mock.patch.object(StoragePartition, "_acknowledge", acknowledge_regardless),
    ):
        yield


async def settle_by_id(opened: Any, undecided: Sequence[Append]) -> Settlement:
    """H1: whatever is not above the new mark is taken for committed."""
    mark = opened.high_water_mark
    return Settlement(
        [append for append in undecided if append.transaction_id <= mark],
        [append for append in undecided if append.transaction_id > mark],
    )


def write_without_comparing(node: MetadataNode, metadata: PartitionMetadata, version: int) -> Any:
    async def write() -> int:
        return (await node._zookeeper.set(node.path, metadata.encode(), ANY_VERSION)).version

    return write()


@contextlib.contextmanager
def open_before_metadata() -> Iterator[None]:
    """H4: the session opens as soon as a quorum is recovered; the write is under way, and is repeated if it fails."""
    progress, wanted_write = RecoveryMachine._progress, RecoveryMachine._wanted_write

    def early(machine: RecoveryMachine) -> Any:
        effects = progress(machine)
        mark = machine.high_water_mark
        if not machine._opened and mark is not None and machine._quorum_recovered():
            for replica in machine._replicas.values():
                if replica.step is Step.RECOVERED:
                    machine._join(replica)
            machine._opened = True
            effects += [*machine._effects, Open(mark)]
            machine._effects = []
        return effects

    def again(machine: RecoveryMachine) -> PartitionMetadata | None:
        joined = [replica.replica_id for replica in machine._replicas.values() if replica.step is Step.JOINED]
        replicas = machine._metadata.replicas
        if machine._opened and not all(is_clean(replicas.get(member), machine._session_id) for member in joined):
            mark = machine.high_water_mark
            assert mark is not None
            states = states_after_recovery(machine._metadata, machine._assigned, joined, mark)
            return machine._metadata._replace(replicas=states)
        return wanted_write(machine)

    with (
        mock.patch.object(RecoveryMachine, "_progress", early),
        mock.patch.object(RecoveryMachine, "_wanted_write", again),
    ):
        yield


@contextlib.contextmanager
def trust_everything() -> Iterator[None]:
    """Every replica keeps what it holds, whatever the metadata say of it."""

    def inspect(machine: RecoveryMachine, replica: Any) -> None:
        replica.counted = replica.replica_id in machine._previous
        replica.intact = replica.may_vote = True
        replica.step = Step.INSPECTING
        machine._effects.append(GetMaximum(replica.replica_id))

    with mock.patch.object(RecoveryMachine, "_inspect", inspect):
        yield


@contextlib.contextmanager
def trust_older_storages() -> Iterator[None]:
    """A storage that is older than the metadata say is taken for what it was."""
    inspect = RecoveryMachine._inspect

    def trusting(machine: RecoveryMachine, replica: Any) -> None:
        state = machine._metadata.replicas.get(replica.replica_id)
        if state is not None:
            replica.session_id = max(replica.session_id, state.session_id)
        inspect(machine, replica)

    with mock.patch.object(RecoveryMachine, "_inspect", trusting):
        yield


@contextlib.contextmanager
def forget_the_floor() -> Iterator[None]:
    """S10: nobody remembers what was told as committed, nor what storages have acknowledged."""
    init = StoreSession.__init__

    def forgetful(store_session: StoreSession, *args: Any, floor: int, promised: Any, **options: Any) -> None:
        init(store_session, *args, **options)

    with mock.patch.object(StoreSession, "__init__", forgetful):
        yield


@contextlib.contextmanager
def take_all_for_intact() -> Iterator[None]:
    """S10: a storage that holds less than it has acknowledged votes with what it holds."""
    connected = RecoveryMachine.replica_connected

    def trusting(machine: RecoveryMachine, replica_id: Any, session_id: int, mark: int, acknowledged: int) -> Any:
        return connected(machine, replica_id, session_id, mark)

    with mock.patch.object(RecoveryMachine, "replica_connected", trusting):
        yield


def cut_at_a_sector_of_zeros(reader: Reader, offset: int, end: int, transaction_id: int) -> bool:
    """S9: a sector of zeros, whatever it belongs to, is taken for one that never reached the medium."""
    found = find_later_record(reader, offset, end, transaction_id)
    if found is None:
        return True
    first = offset + -offset % SECTOR_BYTES
    return any(not any(reader.read(at, SECTOR_BYTES)) for at in range(first, found[1] - SECTOR_BYTES + 1, SECTOR_BYTES))


def find_nothing(scan: SegmentScan, end_id: int) -> None:
    """A scan overlooks damage."""


def record_nothing(machine: RecoveryMachine, mark: int, support: Any) -> dict[Any, Any]:
    return {}


def decide_lowest(evidence: Any, previous_replica_count: int) -> int | None:
    marks = [item.mark for item in evidence if item.votes]
    return min(marks) if len(marks) >= previous_replica_count // 2 + 1 else None


def decide_with_one(evidence: Any, previous_replica_count: int) -> int | None:
    marks = [item.mark for item in evidence if item.votes]
    return max(marks) if marks else None


_appended = Replica._appended


def appended_in_spite_of_errors(
    replica: Replica, life: int, last_id: int, size_bytes: int, given_s: float, error: Exception | None
) -> None:
    _appended(replica, life, last_id, size_bytes, given_s, None)


@contextlib.contextmanager
def slip_back() -> Iterator[None]:
    """S2: a replica whose connection broke goes on where it was, without joining again."""
    one_life = Replica._one_life

    async def life(replica: Replica) -> None:
        if replica.next_id == 0 or replica._session.ring is None:
            await one_life(replica)
            return
        replica._begin_life()
        try:
            replica._client = await replica._session.connections.client(replica.storage)
            replica._stage = Stage.SERVING
            replica.next_id = replica.acked + 1
            replica.pump()
            await replica._serve(replica._client)
        except Exception:
            replica._stage = Stage.AWAY
            replica._session.replica_left()

    with mock.patch.object(Replica, "_one_life", life):
        yield


@contextlib.contextmanager
def trust_below_the_mark() -> Iterator[None]:
    """H3: a replica that was never part of a session is cut to the log's mark only, not to its own."""
    inspect = RecoveryMachine._inspect

    def trusting(machine: RecoveryMachine, replica: Any) -> None:
        inspect(machine, replica)
        state = machine._metadata.replicas.get(replica.replica_id)
        if state is not None and state.session_id == NO_SESSION and state.closing_high_water_mark != UNRESOLVED:
            wrong = Truncate(replica.replica_id, state.closing_high_water_mark)
            machine._effects = [
                wrong if isinstance(effect, Truncate) and effect.replica_id == replica.replica_id else effect
                for effect in machine._effects
            ]

    with mock.patch.object(RecoveryMachine, "_inspect", trusting):
        yield


def answer_the_neighbour(buffer: bytes, start: int, end: int) -> list[tuple[wire.AppendRequest, int]]:
    """The appends of many partitions in one frame are numbered from the last one on."""
    found = _decode_many(buffer, start, end)
    numbers = [request.seq_num for request, _ in reversed(found)]
    return [(each[0]._replace(seq_num=number), each[1]) for each, number in zip(found, numbers, strict=True)]


@contextlib.contextmanager
def wait_for_the_slowest() -> Iterator[None]:
    """S8: nothing is committed before every live replica has it."""
    acknowledged, replica_left = StoreSession.acknowledged, StoreSession.replica_left

    def by_all(store_session: StoreSession) -> None:
        quorum = store_session._quorum
        store_session._quorum = max(quorum, sum(replica.live for replica in store_session._members))
        try:
            acknowledged(store_session)
        finally:
            store_session._quorum = quorum

    def left(store_session: StoreSession) -> None:
        by_all(store_session)
        replica_left(store_session)

    with (
        mock.patch.object(StoreSession, "acknowledged", by_all),
        mock.patch.object(StoreSession, "replica_left", left),
    ):
        yield


async def catch_up_with_nothing(replica: Replica, client: object, /) -> None:
    """S8: who fell out of the ring stays behind."""


def keep_for_all(ring: BatchRing, needed_from: int) -> None:
    """S8: whatever a live replica has not got is kept, however much that is."""
    kept = len(ring._batches) - len(ring._undecided)
    while kept and ring._batches[0].last_id < needed_from:
        batch = ring._batches.popleft()
        del ring.by_first_id[batch.first_id]
        ring.kept_bytes -= len(batch.payload)
        kept -= 1


@contextlib.contextmanager
def order_segments_by_age() -> Iterator[None]:
    """S9: the segments of a log are put in the order of the wall clock at which they were created."""
    find = log_opening._segment_headers

    def by_age(
        files: Files, directory: str, cluster_key: UUID, partition_id: int, local_low_water_mark: int
    ) -> list[tuple[str, SegmentHeader]]:
        found = find(files, directory, cluster_key, partition_id, local_low_water_mark)
        return sorted(found, key=lambda item: item[1].creation_time_ms)

    with mock.patch.object(log_opening, "_segment_headers", by_age):
        yield
