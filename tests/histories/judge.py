"""The verdict on a history: all checkers over it. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.histories import acknowledgements, cycles, fences, ledger, views
from tests.histories.events import (
    AppendCall,
    Call,
    EffectLine,
    Event,
    FaultLine,
    FenceCall,
    Header,
    HistoryError,
    Invoked,
    OwnerLine,
    RecordLine,
    Returned,
    TransactCall,
    ViewReadCall,
    may_write,
)
from waltz.bot import history as bots
from waltz.bot.expected import Expected
from waltz.bot.history import ReadCall, SwapCall, WriteCall


class Operation(NamedTuple):
    """An operation, with its end if its process has lived to write it down."""

    invoked: Invoked
    returned: Returned | None

    @property
    def outcome(self) -> str:
        """``ok``, ``fail`` or ``info``."""
        return "info" if self.returned is None else self.returned.type


@dataclass
class History:
    """All events of a campaign, by their kinds."""

    header: Header
    operations: dict[int, Operation] = field(default_factory=dict)
    timed: list[Invoked | Returned] = field(default_factory=list)
    """Begins and ends of operations in the order of time."""
    records: defaultdict[int, list[RecordLine]] = field(default_factory=lambda: defaultdict(list))
    effects: defaultdict[int, list[EffectLine]] = field(default_factory=lambda: defaultdict(list))
    faults: list[FaultLine] = field(default_factory=list)
    owners: list[OwnerLine] = field(default_factory=list)

    def of(self, partition_id: int) -> Iterator[Operation]:
        """The operations on a partition."""
        return (each for each in self.operations.values() if each.invoked.partition == partition_id)

    @property
    def partitions(self) -> list[int]:
        """The partitions of all workloads."""
        return [self.header.registers, self.header.lists, self.header.fences, *self.header.ledger]


def collect(events: Iterable[Event]) -> History:
    """The events by their kinds. Raises :class:`HistoryError` without a header, or for an end without a begin."""
    iterator = iter(events)
    header = next(iterator, None)
    if not isinstance(header, Header):
        raise HistoryError("a history begins with its header")
    history = History(header)
    for event in iterator:
        match event:
            case Invoked():
                history.operations[event.op] = Operation(event, None)
                history.timed.append(event)
            case Returned():
                if event.op not in history.operations:
                    raise HistoryError(f"operation {event.op} ends, and has not begun")
                history.operations[event.op] = history.operations[event.op]._replace(returned=event)
                history.timed.append(event)
            case RecordLine():
                history.records[event.partition].append(event)
            case EffectLine():
                history.effects[event.partition].append(event)
            case FaultLine():
                history.faults.append(event)
            case OwnerLine():
                history.owners.append(event)
            case Header():
                raise HistoryError("a history has one header")
    return history


def violations(history: History) -> list[str]:
    """All that is wrong, each with the name of its checker."""
    found = {
        "registers": register_violations(history),
        "views": view_violations(history),
        "lists": list_violations(history),
        "fences": fence_violations(history),
        "ledger": ledger_violations(history),
        "acknowledgements": acknowledgement_violations(history),
    }
    return [f"{checker}: {what}" for checker, all_of_it in found.items() for what in all_of_it]


def register_violations(history: History) -> Iterator[str]:
    """Rows of a table are linearizable, key by key; judged by the checker of the bots."""
    expected = Expected()
    known: set[str] = set()
    for event in history.timed:
        call = _register_call(history.operations[event.op].invoked.call)
        if call is None:
            continue
        if isinstance(event, Invoked):
            _begin_empty(expected, set(keys_of(call)) - known)
            known.update(keys_of(call))
            begin = bots.Invoked(type="invoke", op=event.op, process=0, time_ms=event.at_ns // 1_000_000, call=call)
            expected.take(begin)
            if history.operations[event.op].returned is None:
                yield from _deviations(expected, bots.Returned(type="info", op=event.op, time_ms=begin.time_ms))
        else:
            end = bots.Returned(
                type=event.type,
                op=event.op,
                time_ms=event.at_ns // 1_000_000,
                transaction=event.transaction,
                conflict=event.conflict,
                stamp_ms=event.stamp_ms,
                rows=event.rows,
            )
            yield from _deviations(expected, end)


def _register_call(call: Call) -> WriteCall | SwapCall | ReadCall | None:
    """The call for the checker of registers: fresh reads count wherever they are made, others promise less."""
    match call:
        case WriteCall() | SwapCall() | ReadCall():
            return call
        case ViewReadCall(fresh=True):
            return ReadCall(f="read", keys=call.keys)
        case _:
            return None


def keys_of(call: WriteCall | SwapCall | ReadCall) -> list[str]:
    """The keys of a call."""
    match call:
        case WriteCall():
            return list(call.rows)
        case SwapCall():
            return [call.key]
        case ReadCall():
            return call.keys


def _begin_empty(expected: Expected, keys: set[str]) -> None:
    """A campaign begins with an empty table; the checker takes any row for possible before it has seen one."""
    if keys:
        call = ReadCall(f="read", keys=sorted(keys))
        expected.take(bots.Invoked(type="invoke", op=-1, process=0, time_ms=0, call=call))
        expected.take(bots.Returned(type="ok", op=-1, time_ms=0, rows={}))


def _deviations(expected: Expected, end: bots.Returned) -> Iterator[str]:
    for deviation in expected.take(end):
        yield f"key {deviation.key!r} at {deviation.time_ms} ms: {deviation.what}"


def view_violations(history: History) -> Iterator[str]:
    """View nodes have answered with states of the log, as new as was demanded."""
    log = [views.Record(each.transaction, each.rows or {}) for each in history.records[history.header.registers]]
    yield from views.check(view_reads(history), told(history), log)


def view_reads(history: History) -> Iterator[views.Read]:
    """All answers of view nodes."""
    for invoked, returned in history.of(history.header.registers):
        call = invoked.call
        if isinstance(call, ViewReadCall) and returned is not None and returned.applied is not None:
            rows = {key: views.Row(*row) for key, row in (returned.rows or {}).items()}
            times = invoked.at_ns, returned.at_ns
            yield views.Read(invoked.op, *times, call.fresh, call.least, returned.applied, call.keys, rows)


def told(history: History) -> Iterator[views.Told]:
    """What clients were told of transactions of registers."""
    for _, returned in history.of(history.header.registers):
        if returned is not None and returned.type == "ok" and returned.transaction is not None:
            yield views.Told(returned.at_ns, returned.transaction)


def list_violations(history: History) -> Iterator[str]:
    """Transactions over lists are serializable."""
    transactions = [
        cycles.Transaction(
            operation.invoked.op, tuple(_steps(operation)), {"ok": True, "fail": False}.get(operation.outcome)
        )
        for operation in history.of(history.header.lists)
        if isinstance(operation.invoked.call, TransactCall)
    ]
    log: list[cycles.Entry] = []
    for record in history.records[history.header.lists]:
        if record.op is None or record.lists is None:
            yield f"transaction {record.transaction} is none of this workload"
        else:
            log.append(cycles.Entry(record.op, {key: tuple(each) for key, each in record.lists.items()}))
    yield from map(str, cycles.check(transactions, log))


def _steps(operation: Operation) -> Iterator[cycles.Step]:
    call, returned = operation.invoked.call, operation.returned
    assert isinstance(call, TransactCall)
    all_seen = returned.seen if returned is not None and returned.seen is not None else [None] * len(call.steps)
    for (key, element), seen in zip(call.steps, all_seen, strict=True):
        yield cycles.Step(key, element, None if seen is None else tuple(seen))


def fence_violations(history: History) -> Iterator[str]:
    """Nothing of an older write session is behind a fence, and nothing of others is in an exclusive session."""
    begun: list[fences.Fence] = []
    appended: list[fences.Append] = []
    for invoked, returned in history.of(history.header.fences):
        if returned is None or returned.type != "ok" or returned.transaction is None:
            continue
        if isinstance(invoked.call, AppendCall):
            appended.append(fences.Append(invoked.op, returned.at_ns, returned.transaction))
        elif isinstance(invoked.call, FenceCall) and returned.session is not None:
            times = (invoked.at_ns, returned.at_ns)
            begun.append(fences.Fence(invoked.op, *times, returned.session, returned.transaction, returned.last))
    records: list[fences.Record] = []
    for record in history.records[history.header.fences]:
        if record.op is None or record.session is None:
            yield f"transaction {record.transaction} is none of this workload"
        else:
            records.append(fences.Record(record.transaction, record.op, record.session))
    yield from fences.check(begun, appended, records)


def ledger_violations(history: History) -> Iterator[str]:
    """The effects of the consumers are the log."""
    for partition_id in history.header.ledger:
        log = [
            ledger.Entry(each.transaction, -1 if each.op is None else each.op) for each in history.records[partition_id]
        ]
        effects = [ledger.Entry(each.transaction, each.op) for each in history.effects[partition_id]]
        for what in ledger.check(log, effects):
            yield f"partition {partition_id}: {what}"


def acknowledgement_violations(history: History) -> Iterator[str]:
    """Clients were told what is in the log, and the log is in the order of time."""
    for partition_id in history.partitions:
        operations: list[acknowledgements.Operation] = []
        for operation in history.of(partition_id):
            invoked, returned = operation
            if not may_write(invoked.call):
                continue
            ended_ns, transaction_id = (None, None) if returned is None else (returned.at_ns, returned.transaction)
            outcome = "info" if returned is None else returned.type
            operations.append(acknowledgements.Operation(invoked.op, invoked.at_ns, ended_ns, outcome, transaction_id))
        log = [acknowledgements.Record(each.transaction, each.op) for each in history.records[partition_id]]
        for what in acknowledgements.check(operations, log):
            yield f"partition {partition_id}: {what}"
