"""The size of a simulated cluster, its load and its conditions, drawn from the seed."""

import ast
import logging
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any

from waltz.common.wire.client_server import MAX_FEED_COUNT


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """One run."""

    storages: int = 3
    replicas: int = 3
    servers: int = 2
    clients: int = 3
    partitions: int = 2
    transactions: int = 2_100
    """Number of transactions that all clients submit together."""
    duration_s: float = 60.0
    """Time under load and faults."""
    healing_s: float = 240.0
    """Time within which everything must have ended after the last fault, or after the last commit behind it."""
    session_timeout_s: float = 6.0
    segment_size_bytes: int = 64 << 10
    lock_table_size: int = 1_000
    lock_names: int = 60
    """Different locks that transactions use; few of them make many conflicts."""
    feed_cache_bytes: int = 1 << 20
    transaction_cache_bytes: int = 1 << 20
    max_batch_size: int = 100
    write_ahead_bytes: int = 256 << 10
    """Groups of appends from which size on storages write while another group is being synced."""
    checkpoint_interval: int = 400
    concurrent_transactions: int = 10
    data_size_bytes: int = 200
    large_share: float = 0.005
    """Share of the transactions that are up to fifty times as large as the mean."""
    zero_bytes: int = 0
    """Number of zeros in a payload beside its data: a sector of zeros is not always damage."""
    network_delay_factor: float = 1.0
    """How slow the network is in ordinary times; 1: a third of a millisecond one way."""
    slow_lines: float = 0.0
    """Share of the lines between servers and other machines that are slow or long for good."""
    line_bytes_per_s: float = math.inf
    """How fast bytes leave on those lines."""
    line_delay_s: float = 0.0
    """How long a byte is on its way there, in one direction."""
    line_shared: bool = True
    """Whether all connections of such a line share its rate."""
    disk_delay_factor: float = 1.0
    """How slow the disks are in ordinary times; 1: two milliseconds for a write and sync."""
    zookeeper_delay_factor: float = 1.0
    """How slow ZooKeeper is in ordinary times; 1: three milliseconds for an operation."""
    zookeeper_lag_s: float = 0.0
    """How far the followers of ZooKeeper are behind that processes read from, at most."""
    clock_drift: float = 0.0
    """By which part of a second, at most, the monotonic clocks of machines gain or lose a second."""
    apply_pause_s: float = 0.0
    """How long the application takes to apply one transaction in ten."""
    old_clients: float = 0.0
    """Share of the applications that speak an older version of the protocol, 0 to 4."""
    plain_share: float = 0.0
    """Share of the applications that use the plain face of the client."""
    database_share: float = 0.0
    """Share of the applications that use `DatabaseCallbacks`."""
    database_pause_s: float = 0.002
    """How long a transaction of a database takes, on average."""
    wandering: bool = False
    """Applications leave partitions and join them again."""
    outstanding_max: int = 60
    """Transactions that one application has under way."""
    read_share: float = 0.2
    """Share of applied transactions whose data the application reads."""
    fewest_write_locks: int = 0
    """Least number of write locks of a transaction, at most two."""
    window_size_bytes: int = 2 << 20
    """Bytes in flight to one replica (rule S8)."""
    ring_size_bytes: int = 8 << 20
    """Committed batches that a server keeps for slow replicas (rule S8)."""
    slow_storage_factor: float = 1.0
    """How much slower the disk of the first storage is, until everything heals."""
    decision_max_s: float = math.inf
    """How long an application may wait for the decision of a transaction, once the cluster has come up."""
    recovery_max_s: float = 60.0
    """Time within which every partition must have a healthy owner after the last fault."""
    standstill_max_s: float = 25.0
    """A store session that commits nothing, and of which no replica gets any further, for so long must have ended."""
    ending_max_s: float = 120.0
    """Time within which each transaction must have ended, once all faults have."""
    append_memory_bytes: int = 0
    """Memory of a server for appends; 0: the default of servers."""
    max_transaction_bytes: int = 32 << 20
    """The largest transaction that servers and clients take."""
    forgetful_storages: bool = False
    """Storages forget, when they restart, a fence that no low-water mark followed, as those of the original do."""
    journal_share: float = 0.0
    """Share of the storages with a journal."""
    journal_file_bytes: int = 256 << 10
    """Size of each of the three files of a journal."""
    journal_switches: bool = False
    """Whether every start of a storage draws anew whether it has a journal; some are drained before."""
    bulk_read_interval_s: float = 0.0
    """Pause between two reads of the whole log from its replicas, as Spark reads it; 0: there are none."""
    mark_interval_s: float = 0.0
    """Pause between two questions for the high-water marks of all partitions; 0: nobody asks."""
    members: int = 0
    """Clients that ask for confirmed marks and share the partitions; see :mod:`tests.simulation.isolated_side`."""
    member_interval_s: float = 0.1
    """Longest pause between two questions of one of them."""
    consumers: int = 0
    """Instances of consumers with stored positions; see :mod:`tests.simulation.consumers`."""
    tables: int = 0
    """Machines with tables in memory; see :mod:`tests.simulation.tables`."""
    archivers: int = 0
    """Archivers, over a store with troubles; see :mod:`tests.simulation.archive`."""
    level_share: float = 0.0
    """Share of the appends of plain applications with a level of consistency; see :mod:`tests.simulation.levels`."""
    session_share: float = 0.0
    """Share of the applications that append within write sessions."""
    elections: bool = False
    """Whether those applications write alone when they are elected, instead of whenever they want to."""
    wire_clients: int = 0
    """Clients of write sessions that keep no rules, beside the applications."""
    max_feed_count: int = MAX_FEED_COUNT
    """Transactions that a server feeds before the client has to ask for more; a mount of more is partial at first."""
    old_storages: float = 0.0
    """Share of the storages that offer servers nothing but the version of the original."""
    away_storages: int = 0
    """Number of storages, others now and then, that are away from the beginning to the end of the faults."""
    access_rules: bool = False
    """Whether nodes have access rules, which operators change all the time; see
    :mod:`tests.simulation.access_scenario`."""
    fault_count: int = 16
    fault_kinds: tuple[str, ...] = ()
    """The only kinds of faults; none: whatever the seed selects."""
    log_level: int = logging.WARNING


def draw_options(
    seed: int, *, log_level: int = logging.WARNING, fault_kinds: tuple[str, ...] = ()
) -> SimulationOptions:
    """The options of a seed."""
    draw = random.Random(f"{seed}/options")
    storages = draw.choice((3, 3, 3, 4, 5))
    replicas = 5 if storages == 5 and draw.random() < 0.5 else 3
    away_storages = 0
    if seed % 3 == 2:
        storages = replicas = 5
        away_storages = 2
    options = SimulationOptions(
        storages=storages,
        replicas=replicas,
        away_storages=away_storages,
        servers=draw.choice((2, 2, 3)),
        clients=draw.choice((2, 3, 3, 4)),
        partitions=draw.choice((1, 2, 2, 3)),
        session_timeout_s=draw.choice((3.0, 6.0, 10.0)),
        segment_size_bytes=draw.choice((8 << 10, 64 << 10, 1 << 20)),
        lock_table_size=draw.choice((50, 500, 30_000)),
        lock_names=draw.choice((10, 60, 1000)),
        feed_cache_bytes=draw.choice((0, 10_000, 1 << 20)),
        transaction_cache_bytes=draw.choice((0, 20_000, 1 << 20)),
        max_batch_size=draw.choice((3, 100)),
        checkpoint_interval=draw.choice((50, 400, 250_000)),
        concurrent_transactions=draw.choice((5, 20, 100)),
        data_size_bytes=draw.choice((40, 200, 2_000)),
        network_delay_factor=draw.choice((1.0, 1.0, 10.0, 30.0)),
        disk_delay_factor=draw.choice((1.0, 1.0, 5.0, 20.0)),
        zookeeper_delay_factor=draw.choice((1.0, 1.0, 5.0, 20.0)),
        apply_pause_s=draw.choice((0.0, 0.0, 0.05, 0.3)),
        read_share=draw.choice((0.0, 0.05, 0.3)),
        fault_count=draw.randint(12, 36),
        write_ahead_bytes=draw.choice((0, 2_000, 256 << 10)),
        zookeeper_lag_s=draw.choice((0.0, 0.0, 0.0, 0.5, 3.0)),
        old_clients=draw.choice((0.0, 0.0, 0.5)),
        database_share=draw.choice((0.0, 0.0, 0.4)),
        slow_lines=draw.choice((0.0, 0.0, 0.0, 0.5)),
        line_bytes_per_s=draw.choice((math.inf, 1.25e6, 300e3)),
        line_delay_s=draw.choice((0.0, 0.03, 0.15)),
        line_shared=draw.random() < 0.5,
        plain_share=draw.choice((0.0, 0.0, 0.0, 0.5)),
        wandering=draw.random() < 0.25,
        max_feed_count=random.Random(f"{seed}/feed").choice((MAX_FEED_COUNT, MAX_FEED_COUNT, MAX_FEED_COUNT, 40)),
        level_share=_level_share(seed),
        old_storages=random.Random(f"{seed}/storages").choice((0.0, 0.0, 0.5, 1.0)),
        journal_share=random.Random(f"{seed}/journal").choice((0.0, 0.6, 1.0, 1.0, 1.0)),
        journal_file_bytes=random.Random(f"{seed}/journal files").choice((64 << 10, 256 << 10)),
        journal_switches=random.Random(f"{seed}/journal switches").random() < 0.3,
        access_rules=random.Random(f"{seed}/access rules").random() < ACCESS_RULES_SHARE,
        fault_kinds=fault_kinds,
        log_level=log_level,
    )
    if options.slow_lines and options.line_delay_s > 0.1:
        # Who is far away loses the same few locks to its neighbours until these have nothing left to append, and what
        # it is fed takes long where it reads the data of what it applies, one after the other.
        return replace(options, ending_max_s=3 * options.ending_max_s)
    return options


FIRST_SEED_WITH_LEVELS = 1_000_000
"""Seeds before it have no levels, so that their courses, which planted bugs depend on, stay."""


def _level_share(seed: int) -> float:
    """Drawn apart from all else, so that seeds without levels keep their courses, too."""
    if seed < FIRST_SEED_WITH_LEVELS:
        return 0.0
    return random.Random(f"{seed}/levels").choice((0.0, 0.0, 0.0, 0.5))


ACCESS_RULES_SHARE = 1 / 16
"""Share of the seeds with access rules, among those of the ordinary mix."""

WITHOUT_JOURNAL: Mapping[str, Any] = MappingProxyType(
    {"journal_share": 0.0, "journal_switches": False, "journal_file_bytes": 256 << 10}
)
"""For courses that are known to find something where every partition syncs its own files."""

WITHOUT_ARCHIVERS: Mapping[str, Any] = MappingProxyType({"archivers": 0})
"""For courses that are known to find something without them."""

_OF_LINES_AND_SESSIONS = (
    "cut",
    "isolate",
    "break-connections",
    "expire-session",
    "disconnect-zookeeper",
    "lose-answer",
)
"""Kinds of faults that come between processes."""

CONDITIONS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "bulk-reader": {"bulk_read_interval_s": 1.0},
        "small-windows": {"window_size_bytes": 1_500, "ring_size_bytes": 6_000, "data_size_bytes": 200},
        "mark-questions": {"mark_interval_s": 0.1},
        "levels": {"level_share": 0.7, "plain_share": 1.0, "old_clients": 0.0, "database_share": 0.0},
        "isolated-sides": {
            "members": 2,
            "servers": 3,
            "duration_s": 30.0,
            "session_timeout_s": 3.0,
            "fault_count": 8,
            "fault_kinds": ("isolate-side", "isolate-side", "depose", "cut", "boomerang"),
        },
        "consumers": {
            "consumers": 2,
            "transactions": 600,
            "duration_s": 30.0,
            "session_timeout_s": 3.0,
            "away_storages": 0,
            "slow_lines": 0.0,
            "apply_pause_s": 0.0,
            "fault_count": 12,
            "fault_kinds": (
                "kill-consumer",
                "kill-server",
                "pause",
                "stop-in-order",
                "cut",
                "isolate",
                "isolate-side",
                "break-connections",
                "expire-session",
                "disconnect-zookeeper",
                "lose-answer",
                "lag-follower",
                "prefer-partitions",
            ),
        },
        "tables": {
            "tables": 2,
            "servers": 3,
            "transactions": 300,
            "duration_s": 30.0,
            "session_timeout_s": 3.0,
            "away_storages": 0,
            "slow_lines": 0.0,
            "apply_pause_s": 0.0,
            "fault_count": 10,
            "fault_kinds": (
                "isolate-side",
                "kill-server",
                "kill-storage",
                "pause",
                "cut",
                "break-connections",
                "expire-session",
                "prefer-partitions",
                "depose",
                "boomerang",
            ),
        },
        "archive": {
            "archivers": 2,
            "transactions": 600,
            "duration_s": 40.0,
            "session_timeout_s": 3.0,
            "away_storages": 0,
            "slow_lines": 0.0,
            "apply_pause_s": 0.0,
        },
        "partial-mounts": {"max_feed_count": 5},
        "few-alive": {"storages": 5, "replicas": 5, "away_storages": 2},
        "recover-partition": {"storages": 6, "replicas": 3, "away_storages": 0, "fault_kinds": ("recover-partition",)},
        "moves": {
            "storages": 6,
            "replicas": 3,
            "away_storages": 0,
            "partitions": 1,
            "clients": 2,
            "transactions": 600,
            "duration_s": 120.0,
            "session_timeout_s": 3.0,
            "apply_pause_s": 0.0,
            "slow_lines": 0.0,
            "fault_count": 6,
            "fault_kinds": ("move-by-tool", "move-by-tool", "exchange-without-majority"),
        },
        "repairs": {
            "storages": 3,
            "replicas": 3,
            "away_storages": 0,
            "partitions": 1,
            "clients": 2,
            "transactions": 1_000,
            "duration_s": 120.0,
            "session_timeout_s": 3.0,
            "segment_size_bytes": 8 << 10,
            "slow_lines": 0.0,
            "fault_count": 6,
            "fault_kinds": ("repair-by-tool",),
        },
        "restores": {
            "storages": 3,
            "replicas": 3,
            "away_storages": 0,
            "transactions": 900,
            "fault_count": 8,
            "fault_kinds": ("restore-backup",),
        },
        "wrong-clocks": {
            "segment_size_bytes": 8 << 10,
            "duration_s": 30.0,
            "transactions": 900,
            "fault_kinds": ("jump-clock", "jump-clock", "kill-storage", "power-off-storage", "kill-server"),
        },
        "drifting-clocks": {"clock_drift": 0.2},
        "forgetful-storages": {"forgetful_storages": True},
        "journal": {"journal_share": 0.7, "journal_switches": True},
        "lagging-followers": {"zookeeper_lag_s": 3.0, "bulk_read_interval_s": 0.3},
        "long-lines": {"slow_lines": 1.0, "line_bytes_per_s": math.inf, "line_delay_s": 0.25},
        "slow-lines": {"slow_lines": 1.0, "line_bytes_per_s": 300e3, "line_delay_s": 0.05},
        "plain-client": {"plain_share": 1.0},
        "wandering": {"wandering": True},
        "one-dead-partition": {
            "storages": 6,
            "replicas": 3,
            "away_storages": 0,
            "partitions": 2,
            "servers": 1,
            "clients": 2,
            "transactions": 6_000,
            "outstanding_max": 3_000,
            "concurrent_transactions": 2_048,
            "data_size_bytes": 200,
            "max_batch_size": 100,
            "lock_names": 1_000,
            "lock_table_size": 30_000,
            "checkpoint_interval": 250_000,
            "segment_size_bytes": 1 << 20,
            "network_delay_factor": 1.0,
            "disk_delay_factor": 1.0,
            "zookeeper_delay_factor": 1.0,
            "zookeeper_lag_s": 0.0,
            "apply_pause_s": 0.0,
            "old_clients": 0.0,
            "database_share": 0.0,
            "wandering": False,
            "slow_lines": 0.0,
            "decision_max_s": 1.5,
            "fault_count": 1,
            "fault_kinds": ("dead-partition",),
        },
        "large-transactions": {
            "transactions": 40,
            "concurrent_transactions": 4,
            "outstanding_max": 4,
            "data_size_bytes": 2 << 20,
            "large_share": 0.05,
            "segment_size_bytes": 1 << 30,
            "feed_cache_bytes": 1 << 20,
            "transaction_cache_bytes": 64 << 20,
            "lock_names": 1_000,
            "read_share": 0.0,
            "slow_lines": 1.0,
            "line_bytes_per_s": 1.25e6,
            "line_delay_s": 0.05,
            "database_share": 0.0,
            "away_storages": 0,
            "fault_count": 4,
            "healing_s": 900.0,
            "recovery_max_s": 300.0,
            "ending_max_s": 600.0,
            "standstill_max_s": 120.0,
        },
        "write-sessions": {
            "wire_clients": 2,
            "session_share": 0.7,
            "storages": 3,
            "replicas": 3,
            "away_storages": 0,
            "servers": 2,
            "partitions": 1,
            "clients": 3,
            "transactions": 90,
            "duration_s": 12.0,
            "session_timeout_s": 3.0,
            "checkpoint_interval": 20,
            "plain_share": 0.0,
            "database_share": 0.0,
            "wandering": False,
            "slow_lines": 0.0,
            "apply_pause_s": 0.0,
            "read_share": 0.0,
            "fault_count": 6,
            "fault_kinds": (
                "kill-server",
                "kill-storage",
                "power-off-all-storages",
                "pause",
                "pause-server",
                *_OF_LINES_AND_SESSIONS,
                "land-late",
                "lag-follower",
                "prefer-partitions",
                "depose",
                "flap",
                "boomerang",
                "strand-minority",
            ),
        },
        "access-rules": {
            "access_rules": True,
            "bulk_read_interval_s": 0.5,
            "wire_clients": 1,
            "session_share": 0.35,
            "plain_share": 0.3,
            "old_clients": 0.4,
            "storages": 3,
            "replicas": 3,
            "away_storages": 0,
            "transactions": 600,
            "duration_s": 30.0,
            "session_timeout_s": 3.0,
            "slow_lines": 0.0,
            "wandering": False,
            "apply_pause_s": 0.0,
            "fault_count": 8,
            "fault_kinds": (
                "kill-server",
                "kill-storage",
                "pause-server",
                *_OF_LINES_AND_SESSIONS,
                "lag-follower",
                "slow-watches",
                "prefer-partitions",
                "depose",
                "flap",
                "strand-minority",
            ),
        },
        "elections": {
            "elections": True,
            "session_share": 1.0,
            "storages": 3,
            "replicas": 3,
            "away_storages": 0,
            "servers": 2,
            "partitions": 1,
            "clients": 4,
            "transactions": 60,
            "duration_s": 30.0,
            "session_timeout_s": 3.0,
            "checkpoint_interval": 20,
            "plain_share": 0.0,
            "database_share": 0.0,
            "wandering": False,
            "slow_lines": 0.0,
            "apply_pause_s": 0.0,
            "read_share": 0.0,
            "fault_count": 12,
            "fault_kinds": (
                "kill-server",
                "pause",
                "pause-server",
                *_OF_LINES_AND_SESSIONS,
                "land-late",
                "lag-follower",
                "prefer-partitions",
                "depose",
            ),
        },
        "slow-storage": {
            "slow_storage_factor": 500.0,
            "away_storages": 0,
            "slow_lines": 0.0,
            "fault_count": 0,
            "window_size_bytes": 1_500,
            "ring_size_bytes": 6_000,
            "network_delay_factor": 1.0,
            "disk_delay_factor": 1.0,
            "zookeeper_delay_factor": 1.0,
            "apply_pause_s": 0.0,
            "lock_names": 1_000,
            "lock_table_size": 30_000,
            "checkpoint_interval": 250_000,
            "decision_max_s": 0.8,
        },
    }
)
"""Named sets of options that replace those of a seed: what the ordinary mix has none of."""


def parse_settings(settings: Sequence[str]) -> dict[str, Any]:
    """``name=value`` for options, and names of :data:`CONDITIONS`. Raises ``ValueError``."""
    names = {field.name for field in fields(SimulationOptions)}
    conditions: dict[str, Any] = {}
    for setting in settings:
        name, separator, value = setting.partition("=")
        if not separator and name in CONDITIONS:
            conditions |= CONDITIONS[name]
        elif separator and name in names:
            conditions[name] = math.inf if value == "inf" else ast.literal_eval(value)
        else:
            raise ValueError(f"{setting!r} is neither OPTION=VALUE nor one of {', '.join(CONDITIONS)}")
    return conditions


def format_settings(conditions: Mapping[str, Any]) -> list[str]:
    """What :func:`parse_settings` parses."""
    return [f"{name}={value}" for name, value in conditions.items()]
