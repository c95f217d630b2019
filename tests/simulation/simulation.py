"""One simulation: a cluster, its load, its faults, its checks."""

import asyncio
import contextlib
import functools
import gc
import random
import signal
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType, SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from unittest import mock

from tests.simulation.absence import keep_storages_away
from tests.simulation.access_scenario import AccessScenario
from tests.simulation.applications import make_applications
from tests.simulation.archive import Archiving
from tests.simulation.assignment_checks import AssignmentChecks
from tests.simulation.checker import Checker, Entry
from tests.simulation.cluster import (
    BULK_READER,
    CLUSTER_KEY,
    DIRECTORY,
    MARK_READER,
    OPERATOR,
    ROOT,
    Host,
    SimulatedCluster,
    StorageHost,
    World,
    logs_in_trace,
    principal_of,
)
from tests.simulation.consumers import Consumers
from tests.simulation.coordinators import as_many_as_the_fault_says
from tests.simulation.damage import finish_repairs
from tests.simulation.database_application import DatabaseHost
from tests.simulation.disk import SimulatedFiles
from tests.simulation.hashes import reproducible_hashes
from tests.simulation.isolated_side import IsolatedSide, claims_are_checked
from tests.simulation.levels import Levels, OperatorHost
from tests.simulation.line_faults import lay_lines
from tests.simulation.liveness import Watch, lock_failures_are_told, registered_links_are_newest
from tests.simulation.lock_table_checks import LockTableChecks
from tests.simulation.loop import (
    SimulatedLoop,
    SimulationStalledError,
    SpinningError,
    close_silently,
    running_process,
)
from tests.simulation.mark_reader import MarkReaderHost, answers_are_checked
from tests.simulation.merged_tables import MergedTables
from tests.simulation.mirrors import Mirrors
from tests.simulation.network import unacknowledged_bytes
from tests.simulation.options import SimulationOptions
from tests.simulation.schedule import ALL_FAULTS, draw_faults, heal
from tests.simulation.session_scenario import SessionScenario
from tests.simulation.tables import Tables
from tests.simulation.target import Fault, Target
from tests.simulation.trace import Trace
from waltz.client.engine.partition import mount as client_mount
from waltz.client.plain import reader
from waltz.common.cluster import marks
from waltz.common.errors import WaltzError
from waltz.common.net import channel
from waltz.common.records import Record
from waltz.common.zk.paths import ClusterPaths
from waltz.server.partition import answers as server_answers
from waltz.server.partition.partition import ServerPartition
from waltz.server.process import node as server_node
from waltz.server.store.interface import Append, StoreOptions
from waltz.server.store.log.log import ReplicatedLog
from waltz.server.store.recovery.recovery_effects import Effect
from waltz.server.store.recovery.replica_states import NO_SESSION
from waltz.server.store.ring import BatchRing
from waltz.server.store.session.session import StoreSession
from waltz.storage.disk.control_file import ControlFile
from waltz.storage.disk.fence import FenceFile
from waltz.storage.disk.journal.journal import DIRECTORY_NAME
from waltz.storage.disk.journal.reading import read_journal
from waltz.storage.disk.journal.replay import replay
from waltz.storage.disk.log.log import PartitionLog
from waltz.storage.node import node as storage_node
from waltz.storage.node.journal_start import JournalSizes
from waltz.storage.node.partition import StoragePartition

if TYPE_CHECKING:
    from tests.simulation.bulk_reader import BulkReaderHost


CALLBACK_MAX_S = 15.0
"""A callback that has run for longer than this (of processor time) is taken for one that never returns."""


class CallbackSpinsError(KeyboardInterrupt):
    """A callback goes on for ever. Of this kind because asyncio lets nothing else through."""


@dataclass(slots=True)
class Result:
    """The result of one simulation."""

    seed: int
    failures: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    digest: int = 0
    events: int = 0
    committed: int = 0
    lock_failures: int = 0
    simulated_s: float = 0.0
    failed_at_s: float = 0.0
    recovered_s: float = 0.0
    """How long after the last fault every partition had a healthy owner."""
    cpu_s: float = 0.0

    def __str__(self) -> str:
        state = "FAILED" if self.failures else "ok"
        return (
            f"seed {self.seed:<6} {state:<6} {self.committed} committed, {self.lock_failures} lock failures, "
            f"{len(self.faults)} faults, healthy after {self.recovered_s:.0f} s, "
            f"{self.simulated_s:.0f} s simulated in {self.cpu_s:.1f} s, "
            f"{self.events} events, digest {self.digest:08x}"
        )


class Simulation:
    """Runs one seed, once."""

    def __init__(
        self,
        seed: int,
        options: SimulationOptions,
        faults: Sequence[Fault] | None = None,
        echo: Callable[[str], None] | None = None,
    ) -> None:
        """``faults`` replaces the schedule of the seed; ``echo`` is given every line of the trace at once."""
        self.options = options
        if faults is None:
            faults = draw_faults(seed, options.fault_count, options.duration_s, options.fault_kinds)
        self.result = Result(seed, faults=list(faults))
        self.loop = SimulatedLoop(self._unhandled)
        self.trace = Trace(lambda: self.loop.now_s, echo)
        self.world = World(seed, options, self.loop, self.trace, self.fail)
        self.checker = Checker(options.partitions, self.fail)
        self.assignment_checks = AssignmentChecks(self.fail)
        self.lock_table_checks = LockTableChecks(self.fail)
        self.cluster = SimulatedCluster(self.world)
        self.levels = Levels(self.world, self.cluster) if options.level_share else None
        self.operator = OperatorHost(self.world, OPERATOR) if options.level_share else None
        self.clients = make_applications(self.world, self.checker, self.levels)
        self.bulk_reader = self._make_bulk_reader()
        self.mark_reader = MarkReaderHost(self.world, MARK_READER) if options.mark_interval_s else None
        has_sessions = options.wire_clients or options.session_share
        self.write_sessions = SessionScenario(self.world, self.checker, self.cluster) if has_sessions else None
        self.side = IsolatedSide(self.world, self.checker) if options.members else None
        self.consumers = Consumers(self.world, self.checker) if options.consumers else None
        self.tables = Tables(self.world, self.checker) if options.tables else None
        self.archiving = Archiving(self.world, self.checker) if options.archivers else None
        self.mirrors = Mirrors(self.world, self.checker) if options.mirrors else None
        self.merged = MergedTables(self.world, self.checker) if options.merging else None
        others = [
            *([] if self.write_sessions is None else self.write_sessions.hosts),
            *([] if self.side is None else self.side.hosts),
            *([] if self.operator is None else [self.operator]),
            *([] if self.consumers is None else self.consumers.hosts),
            *([] if self.tables is None else self.tables.hosts),
            *([] if self.archiving is None else self.archiving.hosts),
            *([] if self.mirrors is None else self.mirrors.hosts),
            *([] if self.merged is None else self.merged.hosts),
        ]
        self.target = Target(self.world, self.cluster, self.clients, others)
        self.watch = Watch(self.world, self.cluster)
        self.access = self._make_access(others) if options.access_rules else None

    def run(self) -> Result:
        """Run to the end, or to the first failure."""
        result, started_s = self.result, time.process_time()
        collecting = gc.isenabled()
        gc.disable()
        try:
            with self._observing(), self._conditions(), reproducible_hashes():
                self._run_loop()
        finally:
            close_silently(self.loop)
            if collecting:
                gc.collect()
                gc.enable()
        result.simulated_s = self.loop.now_s
        result.digest, result.events, result.trace = self.trace.digest, self.trace.events, self.trace.lines
        result.committed = sum(submitted.seen_at is not None for submitted in self.checker.submitted)
        result.lock_failures = self.checker.lock_failures
        result.cpu_s = time.process_time() - started_s
        return result

    def _make_bulk_reader(self) -> "BulkReaderHost | None":
        if not self.options.bulk_read_interval_s:
            return None
        from tests.simulation.bulk_reader import BulkReaderHost  # imports Arrow, which takes a while

        return BulkReaderHost(self.world, BULK_READER, self.checker)

    def _make_access(self, others: Sequence[Host]) -> AccessScenario:
        applications = [principal_of(host.name) for host in (*self.clients, *others)]
        return AccessScenario(
            self.world, self.cluster, applications, [principal_of(name) for name in (BULK_READER, MARK_READER)]
        )

    def fail(self, reason: str) -> None:
        """Something is wrong: remember it and stop."""
        if not self.result.failures:
            self.result.failed_at_s = self.loop.now_s
        if len(self.result.failures) < 10:
            self.result.failures.append(reason)
            self.trace.note("FAILURE", reason)
        self.loop.stop()

    def _run_loop(self) -> None:
        main = self.loop.create_task(self._main())
        try:
            with _spinning_callbacks_interrupted(self.loop):
                self.loop.run_until_complete(main)
        except CallbackSpinsError as error:
            self.fail(f"a callback does not return:\n{error}")
        except (SimulationStalledError, SpinningError) as error:
            self.fail(str(error))
        except RuntimeError as error:
            if not self.result.failures:
                self.fail(f"the simulator failed: {error!r}")
        except Exception:
            self.fail("the simulator failed:\n" + traceback.format_exc())

    def _unhandled(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        formatted = "".join(traceback.format_exception(error)) if isinstance(error, BaseException) else ""
        process = running_process()
        self.fail(f"{'-' if process is None else process.host}: {context.get('message')} {formatted}")

    @contextlib.contextmanager
    def _conditions(self) -> Iterator[None]:
        """The conditions that options set and no configuration file can."""
        options = self.options
        store_options = functools.partial(
            StoreOptions, window_size_bytes=options.window_size_bytes, ring_size_bytes=options.ring_size_bytes
        )
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.object(server_node, "StoreOptions", store_options))
            stack.enter_context(as_many_as_the_fault_says(self.world))
            stack.enter_context(mock.patch.object(marks, "random", SimpleNamespace(Random=lambda: random.Random(0))))
            for module in (server_answers, client_mount):
                stack.enter_context(mock.patch.object(module, "MAX_FEED_COUNT", options.max_feed_count))
            stack.enter_context(
                mock.patch.object(
                    storage_node, "JournalSizes", return_value=JournalSizes(options.journal_file_bytes, 3)
                )
            )
            if options.forgetful_storages:
                stack.enter_context(mock.patch.object(FenceFile, "raise_to", _forget))
            feeds = SimpleNamespace(Random=lambda: self.world.random("feeds"))
            stack.enter_context(mock.patch.object(reader, "random", feeds))
            stack.enter_context(mock.patch.object(channel, "unacknowledged_bytes", unacknowledged_bytes))
            if self.bulk_reader is not None:
                stack.enter_context(self.bulk_reader.seeded())
            yield

    @contextlib.contextmanager
    def _observing(self) -> Iterator[None]:
        """See what servers commit, and what everybody logs."""
        storages = self.world.storage_checks.observing()
        told = lock_failures_are_told(self.fail)
        answers = answers_are_checked(self.checker)
        claims = claims_are_checked(self.checker, self.fail)
        side = self.side.observing() if self.side else contextlib.nullcontext()
        consumers = self.consumers.observing() if self.consumers else contextlib.nullcontext()
        tables = self.tables.observing() if self.tables else contextlib.nullcontext()
        archiving = self.archiving.observing() if self.archiving else contextlib.nullcontext()
        mirrors = self.mirrors.observing() if self.mirrors else contextlib.nullcontext()
        merged = self.merged.observing() if self.merged else contextlib.nullcontext()
        levels = self.levels.observing() if self.levels else contextlib.nullcontext()
        write_sessions = self.write_sessions.observing() if self.write_sessions else contextlib.nullcontext()
        access = self.access.observing() if self.access else contextlib.nullcontext()
        with (
            storages,
            levels,
            write_sessions,
            told,
            answers,
            self.assignment_checks.observing(self.world.ensemble.server, ClusterPaths(ROOT).server_descriptors),
            self.lock_table_checks.observing(),
            registered_links_are_newest(self.fail),
            claims,
            side,
            consumers,
            tables,
            archiving,
            mirrors,
            merged,
            access,
            self._observing_sessions(),
            self._observing_partitions(),
            logs_in_trace(self.world),
        ):
            yield

    @contextlib.contextmanager
    def _observing_sessions(self) -> Iterator[None]:
        checker = self.checker
        begun, marked, trim = StoreSession._opened, StoragePartition._set_low_water_mark, BatchRing.trim
        acknowledge, execute = StoragePartition._acknowledge, StoreSession.execute

        def acknowledged(partition: StoragePartition, requests: Sequence[Any], frames: Sequence[bytes]) -> None:
            acknowledge(partition, requests, frames)
            if requests and (session_id := requests[-1].message.session_id) == partition._session_id:
                self.watch.answered(_running_host(), partition.partition_id, session_id)

        def executed(session: StoreSession, effects: list[Effect]) -> None:
            execute(session, effects)
            mark = session.machine.below_floor
            if mark is not None:
                checker.holds_out(_running_host(), session.partition_id, mark)

        def opened(session: StoreSession, mark: int) -> None:
            begun(session, mark)
            version = session.machine._version
            checker.session_opened(_running_host(), session.partition_id, session.session_id, mark, version)

        def low_water_mark_set(partition: StoragePartition, session_id: int, mark: int) -> None:
            before = partition.info
            marked(partition, session_id, mark)
            # An operator's tool fills a partition that is switched off, and says how far it is; the first session of a
            # storage leaves it the mark that it has.
            if before.available and (before.session_id, before.low_water_mark) != (NO_SESSION, mark):
                checker.low_water_mark_set(_running_host(), partition.partition_id, session_id, mark)

        def trimmed(ring: BatchRing, needed_from: int) -> None:
            trim(ring, needed_from)
            if ring.kept_bytes > self.options.ring_size_bytes:
                self.fail(f"{_running_host()} keeps {ring.kept_bytes} bytes that are committed, for slow replicas")

        with (
            mock.patch.object(BatchRing, "trim", trimmed),
            mock.patch.object(StoreSession, "_opened", opened),
            mock.patch.object(StoreSession, "execute", executed),
            mock.patch.object(StoragePartition, "_set_low_water_mark", low_water_mark_set),
            mock.patch.object(StoragePartition, "_acknowledge", acknowledged),
        ):
            yield

    @contextlib.contextmanager
    def _observing_partitions(self) -> Iterator[None]:
        checker = self.checker
        committed, session_opened = ServerPartition.batch_committed, ServerPartition.session_opened

        def opened(partition: ServerPartition, high_water_mark: int, changed: bool) -> None:
            checker.mark(_running_host(), partition.partition_id, _session_of(partition), high_water_mark)
            self.watch.proved(partition)
            session_opened(partition, high_water_mark, changed)
            locks = partition._admission._locks
            assert locks is not None
            self.lock_table_checks.session_begun(
                locks, partition.partition_id, high_water_mark, checker.log[partition.partition_id]
            )

        def observed(partition: ServerPartition, appends: Sequence[Append], records: Sequence[bytes]) -> None:
            checker.committed(
                _running_host(),
                partition.partition_id,
                _session_of(partition),
                appends[0].transaction_id,
                [Entry(bytes(append.req_id), append.header) for append in appends],
            )
            self.watch.proved(partition)
            committed(partition, appends, records)

        with (
            mock.patch.object(ServerPartition, "batch_committed", observed),
            mock.patch.object(ServerPartition, "session_opened", opened),
        ):
            yield

    # The course of events

    async def _main(self) -> None:
        lay_lines(self.target)
        await self.cluster.set_up()
        self.cluster.storages[0].disk.slowness = self.options.slow_storage_factor
        self.watch.look()
        for client in self.clients:
            client.start()
        self._start_others()
        tasks = [asyncio.create_task(self._inject(fault)) for fault in self.result.faults]
        if self.access is not None:
            self.access.look()
            tasks.append(asyncio.create_task(self.access.operate()))
        if self.options.away_storages:
            tasks.append(asyncio.create_task(keep_storages_away(self.target)))
        if self.archiving is not None:
            tasks.append(asyncio.create_task(self.archiving.trouble()))
        tasks += [asyncio.create_task(each.trouble()) for each in (self.mirrors, self.merged) if each is not None]
        await asyncio.sleep(max(self.options.duration_s - self.loop.now_s, 0))
        heal(self.target)
        healed_s = self.loop.now_s
        for task in tasks:
            if not task.done():
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            if not task.cancelled() and task.exception() is not None:
                raise task.exception() or AssertionError
        heal(self.target)
        if self.archiving is not None:
            self.archiving.checks.store.heal()
        if self.mirrors is not None:
            self.mirrors.calm_down()
        if self.access is not None:
            await self.access.open_all()
        if self.write_sessions is not None:
            tasks.append(asyncio.create_task(self.write_sessions.calm_down()))  # to the end
        if not await self._all_owned(healed_s + self.options.recovery_max_s):
            return
        self.result.recovered_s = self.loop.now_s - healed_s
        await self._repaired(healed_s + self.options.healing_s)
        if not await self._all_ended(healed_s):
            return
        self._check_that_all_have_worked()
        if self.archiving is not None:
            await self.archiving.checks.check_end()
        await self._check_disks()
        for others in (self.consumers, self.tables, self.mirrors, self.merged):
            if others is not None:
                others.check()
        self.checker.check_clients({client.name: client.database for client in self.clients})
        for client in self.clients:
            if isinstance(client, DatabaseHost):
                client.close_database()
        self.checker.check_outcomes()

    def _check_that_all_have_worked(self) -> None:
        if self.bulk_reader is not None and not self.bulk_reader.reads:
            self.fail(f"{self.bulk_reader.name} has never read the whole log")
        if self.mark_reader is not None and not self.mark_reader.answers:
            self.fail(f"{self.mark_reader.name} was never told a mark")
        if self.side is not None and self.side.silent:
            self.fail(f"{', '.join(self.side.silent)} was never told a confirmed mark")
        if self.access is not None and not self.access.checks.objections:
            self.fail("access rules have never refused a request, nor would have")

    def _start_others(self) -> None:
        """All that is beside the applications, in this order."""
        for others in (
            self.operator,
            self.bulk_reader,
            self.mark_reader,
            self.write_sessions,
            self.side,
            self.consumers,
            self.tables,
            self.archiving,
            self.mirrors,
            self.merged,
        ):
            if others is not None:
                others.start()

    async def _repaired(self, deadline_s: float) -> None:
        """An operator repairs what is still damaged."""
        try:
            async with asyncio.timeout_at(deadline_s):
                await finish_repairs(self.target)
        except TimeoutError:
            self.fail(f"not repaired: {sorted(self.world.storage_checks.to_be_repaired)}")

    async def _inject(self, fault: Fault) -> None:
        await asyncio.sleep(max(fault.at_s - self.loop.now_s, 0))
        await cast("Awaitable[None]", ALL_FAULTS[fault.kind][1](self.target, fault))

    async def _all_ended(self, healed_s: float) -> bool:
        """Liveness: every transaction ends, every client and every replica has it all.

        Few locks over long lines take their time: so that long after the last commit, not after the last fault. Each
        transaction has less time.
        """
        since_s, left = healed_s, self._left_to_commit
        while True:
            waiting_for = self._waiting_for()
            if not waiting_for:
                return True
            now_s = self.loop.now_s
            if self._left_to_commit < left:
                since_s, left = now_s, self._left_to_commit
            if now_s > since_s + self.options.healing_s:
                last = "last fault" if since_s == healed_s else "last commit"
                self.fail(f"{self.options.healing_s:.0f} s after the {last}: " + "; ".join(waiting_for))
                return False
            for client in self.clients:
                for submitted in client.outstanding:
                    waited_s = now_s - max(submitted.since_s, healed_s)
                    if waited_s > self.options.ending_max_s:
                        self.fail(
                            f"{client.name} has waited {waited_s:.0f} s for transaction {submitted.number}, and all is "
                            "well since then"
                        )
                        return False
            await asyncio.sleep(0.5)

    @property
    def _left_to_commit(self) -> int:
        return sum(client.quota + len(client.outstanding) for client in self.clients)

    async def _all_owned(self, deadline_s: float) -> bool:
        """Every partition gets a healthy owner."""
        while missing := set(range(self.options.partitions)) - self.watch.owned():
            if self.loop.now_s > deadline_s:
                after_s = self.options.recovery_max_s
                self.fail(f"{after_s:.0f} s after the last fault no healthy server owns partitions {sorted(missing)}")
                return False
            await asyncio.sleep(0.5)
        self.trace.line("-", "every partition has a healthy owner")
        return True

    def _waiting_for(self) -> list[str]:
        waiting = [] if self.consumers is None else self.consumers.left()
        waiting += [] if self.tables is None else self.tables.left()
        waiting += [] if self.archiving is None else self.archiving.left()
        waiting += [] if self.mirrors is None else self.mirrors.left()
        waiting += [] if self.merged is None else self.merged.left()
        for client in self.clients:
            if not client.idle:
                numbers = [submitted.number for submitted in client.outstanding]
                waiting.append(f"{client.name} has {client.quota} to submit and waits for {numbers[:10]}")
            for partition_id, log in enumerate(self.checker.log):
                if len(client.database[partition_id]) < len(log):
                    applied = client.applied(partition_id)
                    waiting.append(f"{client.name} has applied {applied} of partition {partition_id} to {len(log) - 1}")
        for partition_id, log in enumerate(self.checker.log):
            for storage in self.cluster.replicas[partition_id]:
                partition = None if storage.node is None else storage.node.manager.partitions.get(partition_id)
                if not storage.running or partition is None or partition.max_transaction_id < len(log) - 1:
                    stored = "nothing" if partition is None else str(partition.max_transaction_id)
                    waiting.append(f"{storage.name} stores {stored} of partition {partition_id} to {len(log) - 1}")
        return waiting

    # The disks

    async def _check_disks(self) -> None:
        """Compare the disks after a loss of power of all machines."""
        for host in self.target.hosts:
            host.crash(power_loss=True)
        for partition_id, storages in enumerate(self.cluster.replicas):
            self.checker.check_disks(
                partition_id, {storage.name: self._stored(storage, partition_id) for storage in storages}
            )

    def _stored(self, storage: StorageHost, partition_id: int) -> list[Record]:
        files = SimulatedFiles(storage.disk.durable_copy(), None)
        try:
            control_file = ControlFile.open(files, DIRECTORY, CLUSTER_KEY, self.options.partitions)
            fence_file = FenceFile.open(files, DIRECTORY, CLUSTER_KEY, self.options.partitions)
            if control_file.guarded:
                contents = read_journal(files, f"{DIRECTORY}/{DIRECTORY_NAME}", CLUSTER_KEY)
                replay(files, DIRECTORY, control_file, fence_file, contents)
            mark = control_file.partition(partition_id).local_low_water_mark
            log = PartitionLog.open(
                files,
                f"{DIRECTORY}/{partition_id}",
                CLUSTER_KEY,
                partition_id,
                local_low_water_mark=mark,
                segment_size_threshold_bytes=self.options.segment_size_bytes,
                segment_cache_capacity=2,
            )
            records: list[Record] = []
            while log.max_transaction_id >= len(records):
                records += log.read(len(records), 1000)
        except (WaltzError, OSError) as error:
            self.world.storage_checks.unreadable(storage.name, partition_id, error)
            return []
        self.world.storage_checks.left(storage.name, partition_id, records)
        return records


def _running_host() -> str:
    process = running_process()
    return "-" if process is None else process.host


def _session_of(partition: ServerPartition) -> int:
    """The store session in which the partition tells what is committed."""
    log = partition._log
    assert isinstance(log, ReplicatedLog)
    assert log.session_id is not None
    return log.session_id


def _forget(fence_file: FenceFile, partition_id: int, session_id: int) -> None:
    """Keep the fence in memory only."""


@contextlib.contextmanager
def _spinning_callbacks_interrupted(loop: SimulatedLoop) -> Iterator[None]:
    """End a callback that takes much longer than any should. Only in the main thread, which gets the signals."""
    turn = -1

    def look(_number: int, frame: FrameType | None) -> None:
        nonlocal turn
        if loop.turns == turn:
            raise CallbackSpinsError("".join(traceback.format_stack(frame, limit=4)))
        turn = loop.turns

    before = signal.signal(signal.SIGVTALRM, look)
    signal.setitimer(signal.ITIMER_VIRTUAL, CALLBACK_MAX_S, CALLBACK_MAX_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
