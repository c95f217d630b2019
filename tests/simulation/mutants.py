"""Planted bugs: each breaks one rule of the real code, and the simulator has to find it.

A planted bug is a patch that lasts as long as its context. Beside it stand the number of seeds within which it is
found, and the first seed that finds it at present. A seed finds a bug if it fails with it and passes without it.
"""

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest import mock

from tests.memory_zookeeper import MemoryZooKeeper
from tests.simulation.disk import SimulatedFile, SimulatedFiles
from tests.simulation.options import CONDITIONS
from tests.simulation.planted import (
    access,
    archive,
    borders,
    clients,
    journal,
    levels,
    liveness,
    marks,
    mirrors,
    operations,
    sessions,
    storage,
)
from waltz.archive import chain
from waltz.archive.process import archiver
from waltz.archive.process.daemon import RunningCluster
from waltz.client.databases.marks import MarkTable
from waltz.client.engine.links.links import ServerLink
from waltz.client.engine.partition.appends import PartitionAppends
from waltz.client.engine.partition.partition import StreamPartition
from waltz.client.engine.partition.partition_session import PartitionSession
from waltz.client.engine.reads.marks import MarkQuestions
from waltz.common.acl.throttling import Throttles
from waltz.common.acl.watch import RuleWatch
from waltz.common.cluster import policy, replicas
from waltz.common.wire import storage_version1
from waltz.mirror.merging import Merged
from waltz.mirror.partition_mirror import PartitionMirror
from waltz.mirror.target_link import TargetLink
from waltz.operations import replica_moves
from waltz.server.feeding.feed import Feed
from waltz.server.partition.append_rule import AppendRule
from waltz.server.partition.locks import LockTable
from waltz.server.partition.partition import ServerPartition
from waltz.server.partition.registrations import Registrations
from waltz.server.partition.sequencer import Sequencer
from waltz.server.partition.write_session import WriteSession
from waltz.server.store.log import log
from waltz.server.store.log.replica_change import ReplicaChange
from waltz.server.store.memory import MemoryAccount
from waltz.server.store.metadata_node import MetadataNode
from waltz.server.store.recovery import recovery
from waltz.server.store.recovery.recovery import RecoveryMachine
from waltz.server.store.replica.replica import Replica
from waltz.server.store.ring import BatchRing
from waltz.server.store.session.continuity import Continuity
from waltz.server.store.session.session import StoreSession
from waltz.storage.disk.control_file import ControlFile
from waltz.storage.disk.journal.journal import Journal
from waltz.storage.disk.journal.replay import _Partition, _Replay, _Since
from waltz.storage.disk.log import log_opening
from waltz.storage.disk.log.log import PartitionLog
from waltz.storage.disk.salvage import Salvage
from waltz.storage.disk.segment import segment_recovery as storage_recovery
from waltz.storage.disk.segment.scan import SegmentScan
from waltz.storage.node import journaled, session_rule
from waltz.storage.node.debts import Debts
from waltz.storage.node.journaled import Journaled
from waltz.storage.node.turns import Turns
from waltz.table.face.transaction import TableTransaction

Plant = Callable[[], AbstractContextManager[object]]


class Mutant(NamedTuple):
    """A planted bug. ``plant`` gives the context in which it is there."""

    description: str
    seeds: int
    """Number of seeds, from the first, among which one finds the bug."""
    found_by: int
    """The first seed that finds the bug."""
    plant: Plant
    fault_kinds: tuple[str, ...] = ()
    """The kinds of faults that bring it to light; none: all."""
    conditions: Mapping[str, Any] = MappingProxyType({})
    """Options of the simulation that bring it to light."""


def _patch(target: object, name: str, replacement: object) -> Plant:
    """Raises ``TypeError`` if the replacement cannot be called as the code is: that error alone would be found."""
    replaced = getattr(target, name)
    if callable(replaced) and callable(replacement):
        parameters = inspect.signature(replaced).parameters.values()
        by_name = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
        inspect.signature(replacement).bind(*range(len(parameters) - len(by_name)), **dict.fromkeys(by_name))
    return lambda: mock.patch.object(target, name, replacement)


_ONE_QUIET_PARTITION = {
    "partitions": 1,
    "storages": 3,
    "replicas": 3,
    "away_storages": 0,
    "servers": 1,
    "duration_s": 100.0,
    "network_delay_factor": 1.0,
    "disk_delay_factor": 1.0,
    "zookeeper_delay_factor": 1.0,
    "slow_lines": 0.0,
    "fault_count": 1,
}

_WANDERING_CLIENTS = {
    **_ONE_QUIET_PARTITION,
    "servers": 2,
    "wandering": True,
    "plain_share": 0.0,
    "duration_s": 60.0,
    "fault_count": 12,
}

_LITTLE_MEMORY = {
    **CONDITIONS["one-dead-partition"],
    "append_memory_bytes": 256 << 10,
    "max_transaction_bytes": 128 << 10,
    "transactions": 4_000,
}

_RETURNING = {
    **CONDITIONS["write-sessions"],
    "wire_clients": 1,
    "partitions": 3,
    "duration_s": 40.0,
    "network_delay_factor": 1.0,
    "disk_delay_factor": 20.0,
    "zookeeper_delay_factor": 1.0,
    "zookeeper_lag_s": 0.0,
    "fault_count": 10,
}
"""Where an owner may lose a partition and get it back without hearing of either."""

_JOURNAL = {"journal_share": 1.0}

_CROWDED_MIRROR = {
    **CONDITIONS["mirrors"],
    "append_memory_bytes": 128 << 10,
    "max_transaction_bytes": 128 << 10,
    "data_size_bytes": 2_000,
    "fault_kinds": ("strand-minority", "power-off-all-storages", "kill-storage", "rotate-minority"),
}
"""Where a server refuses some of the appends that it cannot keep, and takes those that come later."""

_RECOVERY = {**CONDITIONS["recover-partition"], "fault_count": 6}


MUTANTS: dict[str, Mutant] = {
    "quorum-off-by-one": Mutant("half of the replicas are taken for a majority", 10, 2, storage.quorum_off_by_one),
    "live-counted-as-quorum": Mutant(
        "a majority of the replicas that are live is taken for a majority of all", 20, 5, storage.count_live_replicas
    ),
    "ack-before-sync": Mutant(
        "a storage syncs no file", 10, 0, _patch(SimulatedFile, "datasync", storage.sync_nothing)
    ),
    "one-storage-acknowledges-before-sync": Mutant(
        "one of the storages syncs no segment", 10, 1, storage.one_storage_acknowledges_before_sync
    ),
    "directory-not-synced": Mutant(
        "storages sync no directory", 10, 0, _patch(SimulatedFiles, "sync_directory", storage.sync_no_directory)
    ),
    "new-segment-not-in-directory": Mutant(
        "the directory is not synced when a segment is begun",
        10,
        2,
        storage.leave_new_segments_out_of_the_directory,
    ),
    "checkpoint-not-synced": Mutant(
        "appends are acknowledged before the index up to their checkpoint is synced",
        10,
        0,
        storage.write_checkpoints_without_sync,
    ),
    "unfinished-segment-is-damage": Mutant(
        "a segment whose creation was interrupted is taken for damage",
        10,
        5,
        _patch(log_opening, "_discard_unfinished", storage.take_unfinished_segments_for_damage),
        ("crash-between-calls",),
        {"segment_size_bytes": 8 << 10, "data_size_bytes": 2_000, "fault_count": 40},
    ),
    "repair-by-the-mark-alone": Mutant(
        "a repair cuts what was acknowledged and damaged while it ran",
        20,
        0,
        storage.repair_by_the_mark_alone,
        ("rot-during-repair",),
        {"fault_count": 10},
    ),
    "repair-leaves-a-gap": Mutant(
        "a repair takes a damaged file away before the whole one is in its place",
        60,
        9,
        _patch(Salvage, "_keep_aside", storage.move_aside),
        conditions=CONDITIONS["repairs"],
    ),
    "journal-not-synced": Mutant(
        "a storage acknowledges what is not in its journal yet",
        10,
        0,
        _patch(Turns, "_append_entries", journal.acknowledge_before_the_sync),
        (),
        _JOURNAL,
    ),
    "journal-not-told-of-a-sync": Mutant(
        "a storage syncs the file of a partition, and a replay of the journal writes older records over it",
        10,
        1,
        _patch(journaled, "settled", journal.settle_nothing),
        (),
        _JOURNAL,
    ),
    "journal-used-again-early": Mutant(
        "a storage lets go of groups of its journal before the segments are durable",
        10,
        1,
        _patch(Debts, "floor", journal.release_everything),
        (),
        _JOURNAL,
    ),
    "journal-not-guarded": Mutant(
        "a storage does not say that its journal counts",
        10,
        0,
        _patch(ControlFile, "guard", journal.guard_nothing),
        (),
        _JOURNAL,
    ),
    "journal-replayed-over-a-sync": Mutant(
        "a replay writes what the journal holds from before a direct sync",
        10,
        1,
        _patch(_Since, "concerns", journal.replay_everything),
        (),
        _JOURNAL,
    ),
    "journal-without-fences": Mutant(
        "a storage with a journal keeps a fence in memory only",
        10,
        0,
        _patch(Journaled, "_begin_fence", journal.fence_in_memory),
        (),
        _JOURNAL,
    ),
    "journal-drained-and-guarded": Mutant(
        "a drained directory still has the inverted cluster key",
        10,
        0,
        _patch(ControlFile, "unguard", journal.leave_guarded),
        (),
        _JOURNAL,
    ),
    "journal-drained-without-marks": Mutant(
        "a drain brings segments up to date, but neither control nor fence file",
        10,
        0,
        _patch(_Replay, "_raise_fences_and_marks", journal.replay_segments_alone),
        (),
        _JOURNAL,
    ),
    "journal-replayed-without-records": Mutant(
        "a replay of the journal takes fences and marks, and leaves out records",
        10,
        1,
        _patch(_Partition, "records", journal.skip_records),
        (),
        _JOURNAL,
    ),
    "journal-base-of-what-is-written": Mutant(
        "the groups of a journal tell a replay to leave out whatever was written before",
        10,
        0,
        _patch(Journal, "_encode", journal.base_of_what_is_written),
        (),
        _JOURNAL,
    ),
    "journal-not-told-of-a-truncation": Mutant(
        "a storage truncates the file of a partition, and the journal still holds the records",
        10,
        3,
        _patch(Journaled, "truncate", journal.truncate_in_the_file_alone),
        ("kill-server", "pause-server", "depose"),
        {**_JOURNAL, "fault_count": 30},
    ),
    "skip-truncate": Mutant(
        "a storage says that it has truncated, and has not",
        20,
        11,
        _patch(PartitionLog, "truncate", storage.truncate_nothing),
    ),
    "stale-session-accepted": Mutant(
        "a storage serves every session",
        30,
        1,
        _patch(session_rule, "fence", storage.accept_every_session),
        ("depose", "pause-server", "flap"),
        {"fault_count": 30},
    ),
    "S1-fence-checked-once": Mutant(
        "a storage answers a newer session before the write of an older one has ended, and acknowledges both",
        60,
        27,
        storage.answer_before_the_write_ends,
        ("flap", "depose", "slow-disk"),
    ),
    "S2-slips-back": Mutant(
        "a replica whose connection broke goes on where it was, without joining again",
        40,
        3,
        storage.slip_back,
        ("break-connections", "cut", "kill-storage"),
        {"checkpoint_interval": 250_000},
    ),
    "S3-provisional-ids-kept": Mutant(
        "a new session raises the locks to its mark, instead of assigning it: void ids stay",
        20,
        1,
        _patch(LockTable, "reset", borders.raise_instead_of_assign),
        ("power-off-all-storages", "crash-while-writing"),
        {
            "lock_names": 1,
            "fewest_write_locks": 1,
            "partitions": 1,
            "transactions": 600,
            "fault_count": 20,
            "disk_delay_factor": 20.0,
        },
    ),
    "S3-table-never-reset": Mutant(
        "a lock table outlives the sessions of others, whose transactions it does not know",
        10,
        1,
        borders.keep_lock_tables,
        ("flap",),
    ),
    "generation-of-two-servers": Mutant(
        "the generation of a partition stays when another server gets it",
        10,
        0,
        _patch(policy._Partition, "given_to", borders.give_with_the_same_generation),
    ),
    "generation-goes-back": Mutant(
        "the generation of a partition begins anew when another server gets it",
        10,
        1,
        _patch(policy._Partition, "given_to", borders.give_with_a_new_count),
    ),
    "S4-lock-failure-at-once": Mutant(
        "a lock failure names an id that may never be",
        10,
        0,
        _patch(ServerPartition, "_conflict", borders.conflict_at_once),
    ),
    "S5-flush-at-once": Mutant(
        "a flush is answered while appends are undecided",
        10,
        1,
        _patch(Sequencer, "look", borders.answer_at_once),
    ),
    "S5-fail-with-connection": Mutant(
        "a client takes a lost connection for a failure", 10, 8, borders.fail_with_the_connection
    ),
    "S6-any-replica": Mutant(
        "a bulk reader takes any replica, whatever the metadata say of it",
        40,
        3,
        _patch(replicas, "_objection", borders.object_to_nobody),
        ("strand-minority",),
        {"bulk_read_interval_s": 0.3, "partitions": 3},
    ),
    "S6-without-sync": Mutant(
        "a bulk reader does not sync its session of ZooKeeper",
        10,
        0,
        borders.read_without_sync,
        ("stale-reader",),
        {"bulk_read_interval_s": 0.3, "partitions": 1, "storages": 3, "replicas": 3, "servers": 1, "fault_count": 3},
    ),
    "S7-mark-not-recorded": Mutant(
        "a mark is used before it is recorded",
        60,
        27,
        _patch(RecoveryMachine, "_records_for", storage.record_nothing),
        ("recover-twice",),
        {
            "zookeeper_delay_factor": 20.0,
            "session_timeout_s": 3.0,
            "fault_count": 4,
            "wandering": False,
            "plain_share": 0.0,
            "slow_lines": 0.0,
            "zookeeper_lag_s": 0.0,
        },
    ),
    "S8-slowest-is-waited-for": Mutant(
        "nothing is committed before every live replica has it",
        10,
        0,
        storage.wait_for_the_slowest,
        conditions=CONDITIONS["slow-storage"],
    ),
    "S8-no-catch-up": Mutant(
        "a replica that fell out of the ring stays behind",
        10,
        0,
        _patch(Replica, "_catch_up", storage.catch_up_with_nothing),
        conditions=CONDITIONS["slow-storage"],
    ),
    "S8-ring-without-bound": Mutant(
        "a server keeps whatever a slow replica has not got",
        10,
        0,
        _patch(BatchRing, "trim", storage.keep_for_all),
        conditions=CONDITIONS["slow-storage"],
    ),
    "S9-zeros-taken-for-a-lost-sector": Mutant(
        "a record with a flipped bit and a sector of zeros in its payload is cut off as a torn write",
        20,
        1,
        _patch(storage_recovery, "is_torn", storage.cut_at_a_sector_of_zeros),
        ("bit-rot",),
        {"zero_bytes": 2_000, "fault_count": 24},
    ),
    "S9-everything-is-torn": Mutant(
        "whatever is not intact behind the last checkpoint is cut off as a torn write",
        20,
        0,
        _patch(storage_recovery, "is_torn", lambda *_: True),
        ("bit-rot",),
        {"fault_count": 24},
    ),
    "unreadable-replica-accepted": Mutant(
        "a scan overlooks damage, so that nobody repairs it",
        10,
        0,
        _patch(SegmentScan, "_add_damage", storage.find_nothing),
        ("bit-rot",),
        {"fault_count": 24},
    ),
    "request-id-twice": Mutant("a client gives one request id to two transactions", 10, 0, borders.reuse_request_ids),
    "H1-settle-by-id": Mutant(
        "after a change of session ids alone decide what became of appends",
        30,
        1,
        _patch(log, "settle", storage.settle_by_id),
        ("flap",),
    ),
    "H2-lock-table-not-reset": Mutant(
        "the lock table survives its session, and clients append before they have applied what came before",
        20,
        0,
        borders.stale_locks,
        ("flap",),
        {
            "lock_names": 20,
            "apply_pause_s": 1.5,
            "partitions": 3,
            "clients": 4,
            "concurrent_transactions": 100,
            "fault_count": 36,
        },
    ),
    "H3-dirty-tail-kept": Mutant(
        "a storage that is assigned again is cut to the mark of the log, not to its own",
        30,
        1,
        storage.trust_below_the_mark,
        ("re-add-stranded",),
        {"storages": 6, "replicas": 3, "fault_count": 4},
    ),
    "H4-open-before-metadata": Mutant(
        "a session opens before its metadata are written",
        30,
        6,
        storage.open_before_metadata,
        ("crash-at-opening",),
        {
            "zookeeper_delay_factor": 20.0,
            "network_delay_factor": 1.0,
            "disk_delay_factor": 1.0,
            "session_timeout_s": 3.0,
            "fault_count": 5,
        },
    ),
    "metadata-without-compare": Mutant(
        "metadata are written whatever others wrote",
        20,
        3,
        _patch(MetadataNode, "write", storage.write_without_comparing),
        ("begin-in-the-dark",),
        {
            "partitions": 3,
            "session_timeout_s": 3.0,
            "lock_names": 1_000,
            "network_delay_factor": 10.0,
            "disk_delay_factor": 20.0,
            "zookeeper_delay_factor": 1.0,
            "fault_count": 8,
        },
    ),
    "ready-of-an-older-generation": Mutant(
        "an owner answers a mount that knows a newer generation than its session's",
        60,
        30,
        borders.serve_future_generations,
        ("boomerang",),
        {
            "servers": 2,
            "partitions": 3,
            "session_timeout_s": 3.0,
            "lock_names": 1_000,
            "lock_table_size": 30_000,
            "concurrent_transactions": 100,
            "network_delay_factor": 1.0,
            "disk_delay_factor": 20.0,
            "zookeeper_delay_factor": 1.0,
            "apply_pause_s": 0.0,
            "read_share": 0.0,
            "fault_count": 12,
        },
    ),
    "trust-everything": Mutant(
        "no replica is cut to what can be trusted",
        10,
        1,
        storage.trust_everything,
        ("power-off-storage", "strand-minority"),
    ),
    "older-storage-trusted": Mutant(
        "a storage whose disk was rolled back votes as if it were not older than the metadata",
        20,
        0,
        storage.trust_older_storages,
        ("roll-back-disk",),
        {"storages": 3, "replicas": 3, "away_storages": 0, "fault_count": 6},
    ),
    "S10-floor-forgotten": Mutant(
        "an owner opens below what it has told as committed, and has forgotten what storages acknowledged",
        20,
        1,
        storage.forget_the_floor,
        ("roll-back-disk-within-session",),
        {"fault_count": 10},
    ),
    "S10-loss-not-recorded": Mutant(
        "a storage that comes back with less than it has acknowledged keeps its vote, which the next owner counts",
        20,
        3,
        storage.take_all_for_intact,
        ("roll-back-disk-within-session",),
        {"fault_count": 10},
    ),
    "wall-clock-believed": Mutant(
        "a storage takes the segment for its last one that was created last by its wall clock",
        20,
        0,
        storage.order_segments_by_age,
        conditions=CONDITIONS["wrong-clocks"],
    ),
    "decide-lowest": Mutant(
        "a recovery takes the lowest mark of a majority",
        10,
        0,
        _patch(recovery, "decide_high_water_mark", storage.decide_lowest),
    ),
    "decide-with-one": Mutant(
        "a recovery takes the word of one replica",
        10,
        1,
        _patch(recovery, "decide_high_water_mark", storage.decide_with_one),
    ),
    "errors-are-acknowledgements": Mutant(
        "a failed append counts as a vote", 10, 1, _patch(Replica, "_appended", storage.appended_in_spite_of_errors)
    ),
    "neighbour-answered": Mutant(
        "of the appends of many partitions in one frame each is answered for another one",
        20,
        1,
        _patch(storage_version1, "decode_many", storage.answer_the_neighbour),
        # It shows where one partition of a frame is refused and others are not: when it has changed its owner.
        ("boomerang", "flap", "depose", "prefer-partitions"),
        {"partitions": 6, "servers": 2, "old_storages": 0.0, "fault_count": 20},
    ),
    "feed-with-gaps": Mutant(
        "a client asks for one transaction too few, and accepts the gap", 10, 0, borders.feed_with_gaps
    ),
    "feed-with-duplicates": Mutant("a client applies what it has applied", 20, 1, borders.feed_with_duplicates),
    "feed-gap-on-reconnect": Mutant("a mounted client asks for one transaction too few", 10, 0, borders.mount_behind),
    "feed-task-dies": Mutant(
        "what a callback raises ends the task of a client's feed, and what comes later overtakes what is queued",
        10,
        0,
        borders.end_the_feed_task,
    ),
    "flush-before-feed": Mutant(
        "a client believes a flush before it has applied what came before it",
        10,
        1,
        _patch(PartitionAppends, "flush_response", borders.decided_before_applied),
    ),
    "claim-more": Mutant("locks are checked against what was received, not applied", 10, 0, borders.claim_more),
    "locks-not-checked": Mutant("no lock ever fails", 10, 0, _patch(LockTable, "admit", borders.no_locks)),
    "S4-lock-failure-behind-the-batch": Mutant(
        "a lock failure leaves when the whole batch of what it names has been fed",
        10,
        0,
        liveness.lock_failures_behind_the_batch,
    ),
    "S4-lock-failure-behind-the-settlement": Mutant(
        "a lock failure leaves when all that an ended session had left undecided has been fed",
        10,
        2,
        liveness.conflicts_forgotten_with_the_session,
    ),
    "L1-deadline-of-the-whole": Mutant(
        "what a replica owes has a deadline as a whole, however much of it moves",
        10,
        0,
        _patch(Replica, "check_progress", liveness.late_whatever_moves),
        conditions={
            **CONDITIONS["large-transactions"],
            "large_share": 0.0,
            "line_bytes_per_s": 300e3,
            "fault_count": 0,
        },
    ),
    "L2-vote-without-progress": Mutant(
        "a live replica that lags and cannot copy what it lacks counts as a vote to come",
        20,
        3,
        liveness.hope_for_copies,
        ("lag-without-source",),
        {**CONDITIONS["small-windows"], **_ONE_QUIET_PARTITION},
    ),
    "L2-barred-for-ever": Mutant(
        "a copy that fails again and again keeps a recovery from ending for a replica that it had to leave out",
        20,
        0,
        _patch(recovery._Replica, "stuck", property(liveness.copies_never_stuck)),
        ("barred-beside-a-copy",),
        _ONE_QUIET_PARTITION,
    ),
    "L3-silence-not-noticed": Mutant(
        "a connection to a storage that went dead is kept",
        20,
        0,
        liveness.patient_with_silence,
        ("blackhole",),
    ),
    "L3-questions-put-off-silence": Mutant(
        "a client that asks for its appends again and again keeps a connection that went dead for longer",
        20,
        0,
        _patch(ServerLink, "expect_answer", liveness.begin_anew_with_every_question),
        ("blackhole",),
    ),
    "L3-signs-of-life-of-nobody": Mutant(
        "clients ask for signs of life under an id that all share, and are taken for one by a server",
        20,
        0,
        liveness.ask_as_nobody,
        ("move-to-idle-connections",),
        {**_ONE_QUIET_PARTITION, "servers": 2},
    ),
    "L3-replaced-connection-counts": Mutant(
        "the connection that a client has replaced counts for as long as its server takes it for open",
        20,
        0,
        _patch(Registrations, "register", liveness.register_whoever_mounted_first),
        ("blackhole",),
    ),
    "L4-memory-without-bound": Mutant(
        "appends to a partition that is dead pile up",
        10,
        1,
        _patch(MemoryAccount, "admits", liveness.admit_everything),
        conditions=_LITTLE_MEMORY,
    ),
    "L4-held-instead-of-refused": Mutant(
        "appends that a dead partition has no room for are held, and their connection is not read meanwhile",
        10,
        0,
        liveness.hold_instead_of_refusing,
        conditions=_LITTLE_MEMORY,
    ),
    "L5-always-healthy": Mutant(
        "a partition says that it is healthy whatever it commits",
        10,
        2,
        _patch(log.ReplicatedLog, "healthy", True),
        conditions=CONDITIONS["one-dead-partition"],
    ),
    "L5-idle-and-unasked": Mutant(
        "an idle partition stays healthy, and nobody asks its storages",
        20,
        0,
        _patch(StoreSession, "confirm_if_idle", liveness.ask_nobody),
        ("silent-quorum",),
        {**_ONE_QUIET_PARTITION, "transactions": 40},
    ),
    "L6-task-left-behind": Mutant(
        "a task outlives what it belongs to",
        20,
        0,
        _patch(Feed, "close", liveness.close_nothing),
        ("stop-in-order",),
    ),
    "L6-cluster-not-followed": Mutant(
        "what follows the cluster ends when ZooKeeper is away, and is not begun again",
        10,
        4,
        liveness.follow_the_cluster_no_more,
        ("disconnect-zookeeper", "expire-session"),
    ),
    "L7-given-up-without-asking": Mutant(
        "a session that commits is given up for a set of replicas of which no quorum answers",
        10,
        0,
        liveness.give_up_without_asking,
        ("replace-dead",),
        {**_ONE_QUIET_PARTITION, "storages": 4},
    ),
    "L7-not-reconsidered": Mutant(
        "a session that opens waits for a quorum of other storages, while those of the last one could go on",
        20,
        2,
        _patch(ReplicaChange, "reconsidered", liveness.reconsider_nothing),
        conditions={**CONDITIONS["moves"], "fault_kinds": ("exchange-without-majority",)},
    ),
    "L7-joined-beside-the-dead": Mutant(
        "an operator's tool assigns a new replica beside three others, one of which is dead",
        20,
        0,
        _patch(replica_moves, "_replacement", operations.join_beside),
        conditions=CONDITIONS["moves"],
    ),
    "L7-cleared-while-it-counts": Mutant(
        "an operator's tool deletes files of a replica that the present session counts",
        20,
        0,
        operations.clear_at_once,
        conditions={**CONDITIONS["moves"], "fault_kinds": ("exchange-without-majority",)},
    ),
    "L7-exchanged-in-two-writes": Mutant(
        "an operator's tool unassigns one replica, and then assigns the other",
        20,
        0,
        operations.exchange_in_two_writes,
        conditions={**CONDITIONS["moves"], "zookeeper_delay_factor": 20.0},
    ),
    "L7-copied-back": Mutant(
        "an operator's tool wants to copy to a replica to take its move back, although nothing but a write is needed",
        20,
        0,
        operations.copy_back_what_is_there,
        conditions={**CONDITIONS["moves"], "fault_kinds": ("exchange-without-majority",)},
    ),
    "L7-moved-without-a-record": Mutant(
        "an operator's tool exchanges a replica before it has recorded what it is about",
        40,
        0,
        operations.move_without_a_record,
        conditions=CONDITIONS["moves"],
    ),
    "left-behind-by-the-owner": Mutant(
        "a client that is leaving a partition does not follow it to its next owner",
        20,
        6,
        _patch(StreamPartition, "needs_server", property(liveness.leave_what_moves_behind)),
        ("kill-server", "depose", "cut"),
        {**_WANDERING_CLIENTS, "ending_max_s": 20.0},
    ),
    "mounted-before-it-is-joined": Mutant(
        "a partition that is joined again is mounted before its feed begins at the application's mark",
        40,
        36,
        _patch(StreamPartition, "needs_server", property(liveness.mount_while_joining_again)),
        ("kill-server", "depose", "cut"),
        {**_WANDERING_CLIENTS, "apply_pause_s": 1.0, "transactions": 1000, "ending_max_s": 60.0},
    ),
    "mark-of-an-older-generation": Mutant(
        "an owner tells its mark to who has heard of a newer generation",
        30,
        0,
        borders.marks_of_any_generation,
        ("boomerang",),
        {
            "mark_interval_s": 0.05,
            "servers": 2,
            "partitions": 3,
            "session_timeout_s": 3.0,
            "network_delay_factor": 1.0,
            "zookeeper_delay_factor": 1.0,
            "zookeeper_lag_s": 0.0,
            "slow_lines": 0.0,
            "fault_count": 12,
        },
    ),
    "mark-of-what-is-undecided": Mutant(
        "an owner counts an append that is under way to its mark",
        10,
        0,
        borders.marks_of_undecided,
        conditions=CONDITIONS["mark-questions"],
    ),
    "mark-confirmed-before": Mutant(
        "a mark is confirmed by what the storages answered before the question",
        20,
        6,
        _patch(StoreSession, "confirm", marks.confirmed_lately),
        conditions=CONDITIONS["isolated-sides"],
    ),
    "mark-of-an-older-question": Mutant(
        "a client takes the answer to a question that was given up for the answer to the next one",
        20,
        3,
        _patch(MarkQuestions, "_ask", marks.answers_of_older_questions),
        conditions={
            **CONDITIONS["isolated-sides"],
            "members": 4,
            "duration_s": 60.0,
            "fault_count": 20,
            "journal_share": 0.0,
        },
    ),
    "fresh-by-an-unconfirmed-mark": Mutant(
        "a fresh read of a table is answered by a mark that no majority of the storages has confirmed",
        10,
        1,
        _patch(ServerPartition, "_confirmed_mark", marks.confirmed_by_nobody),
        conditions={**CONDITIONS["tables"], "fault_kinds": ("isolate-side",)},
    ),
    "mark-confirmed-by-a-lease": Mutant(
        "a mark is confirmed by the ZooKeeper session, which lasts longer by a slow clock than at the ensemble",
        90,
        84,
        _patch(ServerPartition, "_confirmed_mark", marks.confirmed_by_a_lease),
        conditions={
            **CONDITIONS["tables"],
            "fault_kinds": ("disconnect-zookeeper",),
            "fault_count": 20,
            "clock_drift": 0.2,
        },
    ),
    "mark-without-session": Mutant(
        "an owner tells its mark while it has no store session",
        20,
        2,
        _patch(Sequencer, "ask", marks.marks_without_session),
        conditions=CONDITIONS["isolated-sides"],
    ),
    "ahead-without-proof": Mutant(
        "an owner says that a client is ahead of the log without having asked a quorum of the storages",
        30,
        26,
        _patch(Sequencer, "await_proof", marks.ahead_without_proof),
        conditions={**CONDITIONS["isolated-sides"], "duration_s": 90.0, "fault_count": 30},
    ),
    "lost-when-connected-again": Mutant(
        "a session without a connection to ZooKeeper counts as ended only when there is one again",
        20,
        6,
        _patch(MemoryZooKeeper, "session_is_over", marks.lost_when_connected_again),
        conditions=CONDITIONS["isolated-sides"],
    ),
    "position-before-its-work": Mutant(
        "the position of a consumer that commits by the clock is stored when work is handed out",
        10,
        0,
        clients.position_before_its_work,
        conditions=CONDITIONS["consumers"],
    ),
    "position-of-another": Mutant(
        "a consumer moves on from whatever position is stored",
        10,
        1,
        _patch(MarkTable, "move", clients.moved_from_anywhere),
        conditions=CONDITIONS["consumers"],
    ),
    "table-without-read-locks": Mutant(
        "a transaction of a table locks what it writes, and not what it has only read",
        10,
        0,
        _patch(TableTransaction, "intent", clients.without_read_locks),
        conditions=CONDITIONS["tables"],
    ),
    "partial-mount-not-continued": Mutant(
        "a client that was fed a part of what it lacks does not ask for the rest",
        10,
        0,
        borders.no_more_asked_for,
        conditions=CONDITIONS["partial-mounts"],
    ),
    "unsent-without-bound": Mutant(
        "a server sends to a replica whatever there is, however much is unanswered",
        10,
        1,
        borders.send_without_window,
        ("pause", "blackhole"),
        {
            "data_size_bytes": 20_000,
            "window_size_bytes": 64 << 10,
            "concurrent_transactions": 20,
            "transactions": 4_000,
            "partitions": 1,
            "storages": 3,
            "replicas": 3,
            "away_storages": 0,
            "slow_lines": 0.0,
            "network_delay_factor": 1.0,
            "disk_delay_factor": 1.0,
            "lock_names": 1_000,
            "read_share": 0.0,
        },
    ),
    "recovery-of-a-member": Mutant(
        "a partition is copied over what the next session has to count",
        20,
        0,
        borders.members_not_refused,
        ("recover-partition",),
        _RECOVERY,
    ),
    "recovery-beyond-the-mark": Mutant(
        "all that the source of a recovery has is taken for certain",
        20,
        0,
        borders.copy_what_is_uncertain,
        ("recover-partition",),
        _RECOVERY,
    ),
    "W-fence-without-barrier": Mutant(
        "a fence begins while appends that came before it are undecided",
        20,
        13,
        sessions.fence_without_barrier,
        conditions=CONDITIONS["write-sessions"],
    ),
    "W-fence-overtaken": Mutant(
        "what came behind a fence is looked at before that is carried out",
        20,
        3,
        _patch(Sequencer, "_may_look", property(sessions.look_behind_fences)),
        conditions=CONDITIONS["write-sessions"],
    ),
    "W-fence-before-the-store": Mutant(
        "a fence is answered before a quorum of the storages has a store session for it",
        20,
        0,
        sessions.answer_before_the_store,
        conditions=CONDITIONS["write-sessions"],
    ),
    "W-fence-for-any-session": Mutant(
        "a fence is carried out whatever session its client expects",
        20,
        0,
        sessions.expectations_ignored,
        conditions=CONDITIONS["write-sessions"],
    ),
    "W-counted-in-memory": Mutant(
        "the number is one more than the last one of this owner",
        20,
        0,
        _patch(WriteSession, "begin", sessions.count_in_memory),
        conditions=CONDITIONS["write-sessions"],
    ),
    "W-raised-at-checkpoints": Mutant(
        "every store session raises the number",
        20,
        0,
        _patch(Continuity, "session_opened", sessions.broken_by_everything),
        conditions=CONDITIONS["write-sessions"],
    ),
    "W-kept-by-a-returning-owner": Mutant(
        "an owner keeps its number whoever came between two of its store sessions",
        20,
        0,
        sessions.broken_by_nothing,
        ("boomerang",),
        _RETURNING,
    ),
    "W-kept-over-a-generation": Mutant(
        "the number survives a raise of the generation",
        20,
        0,
        sessions.trust_every_generation,
        ("boomerang", "begin-in-the-dark"),
        _RETURNING,
    ),
    "W-checked-after-the-locks": Mutant(
        "the session is checked when the locks have been raised",
        20,
        1,
        sessions.check_after_the_locks,
        conditions=CONDITIONS["write-sessions"],
    ),
    "W-checked-at-arrival": Mutant(
        "the session is checked when an append arrives, not when it is its turn",
        20,
        0,
        sessions.check_at_arrival,
        conditions=CONDITIONS["write-sessions"],
    ),
    "W-checked-by-order": Mutant(
        "an append under a number that is to come is admitted",
        20,
        5,
        _patch(WriteSession, "admits", sessions.admit_newer_numbers),
        conditions=CONDITIONS["write-sessions"],
    ),
    "W-exclusive-for-numbers-only": Mutant(
        "appends without a number are admitted in an exclusive session",
        20,
        0,
        _patch(WriteSession, "admits", sessions.admit_without_number),
        conditions=CONDITIONS["write-sessions"],
    ),
    "W-exclusive-for-who-knows": Mutant(
        "whoever knows the number of an exclusive session may append",
        20,
        0,
        _patch(WriteSession, "admits", sessions.admit_by_number_alone),
        conditions=CONDITIONS["write-sessions"],
    ),
    "W-exclusive-ends-with-the-connection": Mutant(
        "a holder that mounts again has lost its exclusivity",
        20,
        1,
        sessions.exclusive_ends_with_the_connection,
        conditions=CONDITIONS["write-sessions"],
    ),
    "W-exclusive-for-a-connection": Mutant(
        "the holder of an exclusive session is known by its connection",
        20,
        1,
        sessions.exclusive_for_a_connection,
        conditions=CONDITIONS["write-sessions"],
    ),
    "W-exclusive-over-a-change": Mutant(
        "an owner that begins anew still takes its old holder for the holder",
        40,
        29,
        sessions.exclusive_over_a_change,
        ("boomerang", "flap"),
        {**_RETURNING, "wire_clients": 2, "checkpoint_interval": 5, "fault_count": 12},
    ),
    "W-fenced-client-sends": Mutant(
        "a client goes on under its number when it has heard that it is over",
        20,
        0,
        sessions.send_when_fenced,
        conditions=CONDITIONS["write-sessions"],
    ),
    "W-adopted-in-silence": Mutant(
        "a client takes whatever number it is told when it mounts",
        20,
        5,
        sessions.adopt_every_number,
        conditions=CONDITIONS["write-sessions"],
    ),
    "W-promoted-again": Mutant(
        "a client asks for an exclusive session again whenever it mounts",
        20,
        1,
        sessions.promote_at_every_mount,
        ("break-connections", "kill-server", "prefer-partitions"),
        {
            **CONDITIONS["write-sessions"],
            "session_share": 1.0,
            "clients": 4,
            "wire_clients": 0,
            "fault_count": 16,
        },
    ),
    "W-fenced-attempted-again": Mutant(
        "a client sends again in the next session what was refused because of its session",
        20,
        18,
        sessions.attempt_fenced_again,
        conditions=CONDITIONS["write-sessions"],
    ),
    "W-lost-attempted-again": Mutant(
        "a client sends again what a flush has shown to be lost",
        20,
        16,
        _patch(PartitionAppends, "_lost", sessions.attempt_lost_again),
        ("break-connections", "kill-server", "prefer-partitions"),
        {**CONDITIONS["write-sessions"], "session_share": 1.0, "fault_count": 16},
    ),
    "W-fence-not-waited-for": Mutant(
        "a fence is over for the application before what came before it is applied, and decided",
        20,
        0,
        _patch(PartitionSession, "_decided", sessions.not_waited_for),
        conditions=CONDITIONS["write-sessions"],
    ),
    "W-elected-without-a-node": Mutant(
        "a candidate waits for nobody, and deposes whoever leads",
        20,
        0,
        sessions.elected_without_a_node,
        conditions=CONDITIONS["elections"],
    ),
    "level-all-is-a-quorum": Mutant(
        "an append for all storages is acknowledged when it is committed",
        10,
        0,
        _patch(StoreSession, "mark_of_all", property(levels.stored_by_a_quorum)),
        conditions=CONDITIONS["levels"],
    ),
    "level-without-those-away": Mutant(
        "a storage that has left the session does not count among all",
        20,
        0,
        _patch(StoreSession, "mark_of_all", property(levels.stored_by_the_living)),
        conditions=CONDITIONS["levels"],
    ),
    "level-below-the-property": Mutant(
        "nobody looks at what a partition demands of appends",
        10,
        0,
        _patch(AppendRule, "refusal", levels.nothing_is_demanded),
        conditions=CONDITIONS["levels"],
    ),
    "archive-beyond-the-mark": Mutant(
        "the archiver takes one transaction more for committed than the owners tell",
        20,
        0,
        _patch(RunningCluster, "committed_marks", archive.beyond_the_mark),
        conditions=CONDITIONS["archive"],
    ),
    "archive-entry-before-object": Mutant(
        "the manifest counts an object before it is there",
        20,
        0,
        _patch(archiver, "add_object", archive.entry_before_object),
        conditions=CONDITIONS["archive"],
    ),
    "archive-entry-overwritten": Mutant(
        "an entry of the manifest is written whatever is there",
        20,
        1,
        _patch(archiver, "add_object", archive.overwritten),
        conditions=CONDITIONS["archive"],
    ),
    "archive-conflict-ignored": Mutant(
        "an archiver that comes second goes on behind its own object",
        20,
        7,
        _patch(archiver, "add_object", archive.conflict_ignored),
        conditions=CONDITIONS["archive"],
    ),
    "archive-silence-is-success": Mutant(
        "an entry whose answer is lost is taken for written",
        20,
        0,
        _patch(archiver, "add_object", archive.silence_is_success),
        conditions=CONDITIONS["archive"],
    ),
    "archive-page-without-predecessor": Mutant(
        "a new page of the manifest does not name the one before",
        20,
        0,
        _patch(chain, "with_range", archive.page_without_predecessor),
        conditions=CONDITIONS["archive"],
    ),
    "mirror-position-without-proof": Mutant(
        "a mirror goes on behind what it has sent, not behind the end of the target",
        10,
        4,
        _patch(PartitionMirror, "_send", mirrors.go_on_behind_what_was_sent),
        conditions=CONDITIONS["mirrors"],
    ),
    "mirror-session-not-exclusive": Mutant(
        "others may append beside a mirror",
        10,
        0,
        _patch(TargetLink, "fence", mirrors.share_the_session),
        conditions=CONDITIONS["mirrors"],
    ),
    "mirror-out-of-order": Mutant(
        "a mirror does not ask for the order of its appends, and goes on behind one that was refused",
        20,
        0,
        mirrors.go_on_behind_what_was_refused,
        conditions=_CROWDED_MIRROR,
    ),
    "mirror-numbers-begin-anew": Mutant(
        "each connection of a mirror numbers its requests from 0: two of them have the same id",
        10,
        0,
        _patch(TargetLink, "next_number", property(mirrors.begin_numbers_anew)),
        conditions=CONDITIONS["mirrors"],
    ),
    "merging-ties-stay": Mutant(
        "of equal timestamps the later row wins in each of two merged tables",
        10,
        0,
        _patch(Merged, "_land", mirrors.leave_ties),
        conditions=CONDITIONS["merged-tables"],
    ),
    "A-judged-at-arrival": Mutant(
        "appends that have waited are not judged again when they get their place",
        40,
        32,
        _patch(ServerPartition, "_refusal", access.judge_at_arrival),
        conditions=CONDITIONS["access-rules"],
    ),
    "A-rights-of-connections": Mutant(
        "connections keep the rights that they began with",
        20,
        0,
        access.keep_rights_of_connections,
        conditions=CONDITIONS["access-rules"],
    ),
    "A-told-before-applied": Mutant(
        "a node says that it applies rules before it does",
        20,
        0,
        _patch(RuleWatch, "_read", access.tell_before_it_applies),
        conditions=CONDITIONS["access-rules"],
    ),
    "A-feeds-go-on": Mutant(
        "open feeds go on without their right",
        20,
        0,
        _patch(ServerPartition, "rights_lost", access.end_nothing),
        conditions=CONDITIONS["access-rules"],
    ),
    "A-feeds-end-in-silence": Mutant(
        "a feed ends, and its client does not hear of that",
        20,
        0,
        access.end_feeds_in_silence,
        conditions=CONDITIONS["access-rules"],
    ),
    "A-old-connections-stay": Mutant(
        "a client that cannot be told of the end of its feed is not disconnected",
        20,
        0,
        access.keep_old_connections,
        conditions=CONDITIONS["access-rules"],
    ),
    "A-in-order-fails": Mutant(
        "appends that have their place are said to have failed when the right goes",
        20,
        0,
        access.fail_what_is_in_order,
        conditions=CONDITIONS["access-rules"],
    ),
    "A-exclusive-goes-on": Mutant(
        "an exclusive session outlives the right of its holder",
        20,
        1,
        _patch(ServerPartition, "holder_lost_rights", access.hold_for_ever),
        conditions=CONDITIONS["access-rules"],
    ),
    "A-exclusive-begins": Mutant(
        "an exclusive session that begins while its right goes keeps its holder",
        20,
        0,
        access.judge_fences_before_they_begin,
        conditions=CONDITIONS["access-rules"],
    ),
    "A-audit-to-enforce": Mutant(
        "what an audit has let pass goes on when the rules are enforced",
        20,
        1,
        access.enforce_for_new_requests,
        conditions=CONDITIONS["access-rules"],
    ),
    "A-audit-at-arrival": Mutant(
        "the audit does not note what has lost its right while it waited",
        40,
        33,
        access.audit_by_the_rules_at_arrival,
        conditions=CONDITIONS["access-rules"],
    ),
    "A-flush-refused": Mutant(
        "a client is told that its flush is refused, with the id of an append that is in the log",
        60,
        46,
        access.tell_of_refused_flushes,
        conditions={
            "access_rules": True,
            "journal_share": 1.0,
            "journal_file_bytes": 64 << 10,
            "journal_switches": False,
            "slow_lines": 1.0,
            "old_clients": 0.0,
            "clients": 6,
            "transactions": 1000,
            "session_timeout_s": 3.0,
        },
    ),
    "A-bulk-reads-go-on": Mutant(
        "a storage judges only the first request of a bulk read",
        20,
        4,
        access.judge_bulk_reads_once,
        conditions=CONDITIONS["access-rules"],
    ),
    "A-unusable-opens": Mutant(
        "a node that cannot use new rules enforces nothing",
        20,
        0,
        access.open_without_usable_rules,
        conditions=CONDITIONS["access-rules"],
    ),
    "A-none-opens": Mutant(
        "a node that has never seen any rules permits everything",
        20,
        0,
        access.open_before_any_rules,
        conditions=CONDITIONS["access-rules"],
    ),
    "A-forgotten": Mutant(
        "a node that loses ZooKeeper forgets the rules",
        20,
        1,
        access.forget_with_the_session,
        conditions=CONDITIONS["access-rules"],
    ),
    "Q-whole-limit": Mutant(
        "each server takes the limit of a quota for itself",
        20,
        5,
        _patch(Throttles, "_share", access.take_the_whole_limit),
        conditions=CONDITIONS["access-rules"],
    ),
    "Q-kept-share": Mutant(
        "a server keeps its shares of quotas for partitions that it has lost",
        20,
        13,
        access.keep_shares_of_lost_partitions,
        conditions=CONDITIONS["access-rules"],
    ),
    "Q-used-anew": Mutant(
        "any change of the rules begins the use of all quotas anew",
        20,
        6,
        access.use_quotas_anew,
        conditions=CONDITIONS["access-rules"],
    ),
    "Q-refused-and-taken": Mutant(
        "an append that exceeds a quota is refused, and in the log all the same",
        20,
        5,
        access.take_what_a_quota_refuses,
        conditions=CONDITIONS["access-rules"],
    ),
    "locks-not-raised": Mutant("no lock is ever raised", 10, 0, _patch(LockTable, "admit", borders.raise_nothing)),
}
"""Every planted bug."""
