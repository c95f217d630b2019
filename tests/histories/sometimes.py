"""Rare states that a campaign has to have reached: without them, its silence proves little. Pure.

Each is counted from the history itself, so that a history tells later, too, what it has been through.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from tests.histories.events import AppendCall, FaultLine, FenceCall, TransactCall, ViewReadCall, may_write
from tests.histories.judge import History, Operation, told, view_reads
from tests.histories.views import committed_before
from waltz.bot.history import ReadCall, SwapCall, WriteCall
from waltz.local.layout import SESSION_TIMEOUT_MS

ZOOKEEPER = "zookeeper"
SESSION_NS = SESSION_TIMEOUT_MS * 1_000_000


def counts(history: History) -> dict[str, int]:
    """How often each state was reached."""
    return {name: count(history) for name, count in CONDITIONS.items()}


def _appends(history: History) -> Iterator[Operation]:
    """All operations that may write."""
    return (each for each in history.operations.values() if may_write(each.invoked.call))


def _met_change(owner_times: Mapping[int, list[int]], operation: Operation) -> bool:
    """Whether the partition of the operation got another owner while the operation was in flight."""
    if operation.returned is None:
        return False
    times = owner_times.get(operation.invoked.partition, [])
    place = bisect_left(times, operation.invoked.at_ns)
    return place < len(times) and times[place] <= operation.returned.at_ns


def _owner_times(history: History) -> Mapping[int, list[int]]:
    """When each partition was given to another server, the first time left out."""
    times: defaultdict[int, list[int]] = defaultdict(list)
    for line in history.owners:
        times[line.partition].append(line.at_ns)
    return {partition_id: sorted(each)[1:] for partition_id, each in times.items()}


def owner_changes(history: History) -> int:
    """Partitions got another owner while appends to them were in flight."""
    owner_times = _owner_times(history)
    return sum(_met_change(owner_times, operation) for operation in _appends(history))


def swap_conflicts(history: History) -> int:
    """A compare-and-set met another row."""
    return sum(
        isinstance(operation.invoked.call, SwapCall) and operation.returned is not None and operation.returned.conflict
        for operation in history.operations.values()
    )


def repeated_transactions(history: History) -> int:
    """A transaction was done anew on a newer state, after a conflict, and committed."""
    return sum(
        isinstance(operation.invoked.call, TransactCall)
        and operation.returned is not None
        and operation.returned.type == "ok"
        and operation.returned.attempts > 1
        for operation in history.operations.values()
    )


def _in_log(history: History) -> set[int]:
    return {record.op for records in history.records.values() for record in records if record.op is not None}


def _unknown(history: History) -> set[int]:
    """Appends of unknown outcome; deletions, which the log does not tell apart, are left out."""
    return {
        operation.invoked.op
        for operation in _appends(history)
        if operation.outcome == "info"
        and not (isinstance(operation.invoked.call, WriteCall) and None in operation.invoked.call.rows.values())
        and not (isinstance(operation.invoked.call, TransactCall) and not _writes(operation.invoked.call))
    }


def _writes(call: TransactCall) -> bool:
    return any(element is not None for _, element in call.steps)


def unknown_and_committed(history: History) -> int:
    """The outcome of an append was unknown, and it is in the log."""
    return len(_unknown(history) & _in_log(history))


def unknown_and_absent(history: History) -> int:
    """The outcome of an append was unknown, and it is not in the log."""
    return len(_unknown(history) - _in_log(history))


def unknown_and_read(history: History) -> int:
    """A read has found a row whose writer does not know that it is written."""
    unknown = _unknown(history)
    found = 0
    for operation in history.operations.values():
        if isinstance(operation.invoked.call, ReadCall) and operation.returned is not None:
            values = [row[0] for row in (operation.returned.rows or {}).values()]
            found += any(int(value.split(".")[0]) in unknown for value in values)
    return found


def reads_over_owner_changes(history: History) -> int:
    """A fresh read was in flight while the partition got another owner, and found its answer."""
    owner_times = _owner_times(history)
    reads = (each for each in history.operations.values() if isinstance(each.invoked.call, ReadCall))
    return sum(each.outcome == "ok" and _met_change(owner_times, each) for each in reads)


def overtaken_appends(history: History) -> int:
    """A fence was answered while an append of an older session was in flight, and the append never came to the log."""
    in_log = _in_log(history)
    fences: list[tuple[int, int]] = []
    for invoked, returned in history.of(history.header.fences):
        if isinstance(invoked.call, FenceCall) and returned is not None and returned.session is not None:
            fences.append((returned.at_ns, returned.session))
    fences.sort()
    found = 0
    for invoked, returned in history.of(history.header.fences):
        if isinstance(invoked.call, AppendCall) and invoked.call.session is not None and invoked.op not in in_log:
            until_ns = None if returned is None else returned.at_ns
            place = bisect_left(fences, (invoked.at_ns, 0))
            while place < len(fences) and until_ns is not None and fences[place][0] <= until_ns:
                if fences[place][1] > invoked.call.session:
                    found += 1
                    break
                place += 1
    return found


def deposed_writers(history: History) -> int:
    """An append was refused because its session was over."""
    return sum(
        operation.outcome == "fail" and isinstance(operation.invoked.call, AppendCall)
        for operation in history.of(history.header.fences)
    )


def killed_in_flight(history: History) -> int:
    """The process of an operation was killed while it was in flight."""
    return sum(operation.returned is None for operation in history.operations.values())


def handed_over(history: History) -> int:
    """A partition was consumed by one process after another."""
    consumers = {
        partition_id: len({effect.consumer for effect in effects}) for partition_id, effects in history.effects.items()
    }
    return sum(count - 1 for count in consumers.values() if count)


def _during(kind: str, role: str = "") -> Callable[[History], int]:
    """How often appends were begun and acknowledged during such a fault (of a process of that role)."""

    def count(history: History) -> int:
        spans = sorted(
            (each.invoked.at_ns, each.returned.at_ns)
            for each in _appends(history)
            if each.returned is not None and each.outcome == "ok"
        )
        faults = [fault for fault in history.faults if fault.kind == kind]
        return sum(
            any(ended_ns < fault.until_ns for _, ended_ns in _begun_within(spans, fault))
            for fault in faults
            if not role or fault.targets[0].split("-")[0] == role
        )

    return count


def _begun_within(spans: Sequence[tuple[int, int]], fault: FaultLine) -> Sequence[tuple[int, int]]:
    return spans[bisect_left(spans, (fault.at_ns, 0)) : bisect_left(spans, (fault.until_ns, 0))]


def long_pauses_of_zookeeper(history: History) -> int:
    """ZooKeeper was paused for longer than sessions last."""
    return sum(
        fault.kind == "paused" and fault.targets == [ZOOKEEPER] and fault.until_ns - fault.at_ns > SESSION_NS
        for fault in history.faults
    )


def views_behind(history: History) -> int:
    """A view has answered with an older state than somebody knew to be committed, which was allowed."""
    reads = committed_before(view_reads(history), told(history))
    return sum(not read.fresh and read.applied < known for read, known in reads)


def view_reads_over_owner_changes(history: History) -> int:
    """A fresh read of a view was in flight while the partition got another owner, and found its answer."""
    owner_times = _owner_times(history)
    return sum(
        isinstance(each.invoked.call, ViewReadCall)
        and each.invoked.call.fresh
        and each.outcome == "ok"
        and _met_change(owner_times, each)
        for each in history.operations.values()
    )


def _faults(kind: str, *roles: str) -> Callable[[History], int]:
    """How often that happened to a process of each of these roles, in this order."""

    def count(history: History) -> int:
        met = Counter(
            tuple(target.split("-")[0] for target in fault.targets) for fault in history.faults if fault.kind == kind
        )
        return met[roles]

    return count


CONDITIONS: dict[str, Callable[[History], int]] = {
    "a partition got another owner while appends were in flight": owner_changes,
    "a fresh read was in flight while the owner changed": reads_over_owner_changes,
    "a compare-and-set met another row": swap_conflicts,
    "a transaction was repeated after a conflict": repeated_transactions,
    "an append of unknown outcome was committed": unknown_and_committed,
    "an append of unknown outcome was not committed": unknown_and_absent,
    "a read found a row of unknown outcome": unknown_and_read,
    "a fence overtook an append in flight": overtaken_appends,
    "an append was refused because its session was over": deposed_writers,
    "a process was killed with operations in flight": killed_in_flight,
    "a consumer went on where another one had ended": handed_over,
    "a consumer was killed between an effect and its commit": _faults("struck", "client"),
    "replicas were moved under load": _during("moved"),
    "a server was drained under load": _during("drained"),
    "appends were acknowledged while ZooKeeper was paused": _during("paused", ZOOKEEPER),
    "ZooKeeper was paused for longer than sessions last": long_pauses_of_zookeeper,
    "a view answered with an older state": views_behind,
    "a fresh read of a view was in flight while the owner changed": view_reads_over_owner_changes,
    **{
        f"a {role} was {kind}": _faults(kind, role)
        for kind in ("killed", "paused")
        for role in ("server", "storage", "zookeeper", "client", "view")
    },
    **{
        f"the lines from a {source} to a {target} were cut": _faults("cut", source, target)
        for source, target in (
            ("server", "storage"),
            ("server", "zookeeper"),
            ("storage", "zookeeper"),
            ("client", "server"),
            ("client", "zookeeper"),
            ("client", "view"),
            ("view", "server"),
            ("view", "zookeeper"),
        )
    },
}
"""What the long campaign must have reached."""
