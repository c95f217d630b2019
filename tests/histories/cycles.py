"""List-append transactions: dependencies between them, and the cycles that no isolated execution has. Pure.

A transaction reads lists and appends elements to lists. Elements are unique, so a list that was read tells whose
version it is. The log tells the order of the versions of each list. From both follow the dependencies (Adya, "Weak
Consistency", 1999; Alvaro and Kingsbury, "Elle", 2020):

* ww: one transaction has written the version after that of the other, or a list has its elements after the other's,
* wr: one transaction has read the version of the other,
* rw: one transaction has read the version before that of the other.

A cycle of dependencies means that no order of the transactions, one after the other, explains what was read. A cycle
without ``rw`` is impossible at read committed, one with a single ``rw`` under snapshot isolation, every other one under
serializability, which tables promise.
"""

import enum
import itertools
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

SHOWN_STEPS = 12

Elements = tuple[str, ...]


class Step(NamedTuple):
    """A read of a list, or an append to it if there is an element."""

    key: str
    element: str | None = None
    seen: Elements | None = None
    """What a read has found, own elements included; ``None`` for an append."""


class Transaction(NamedTuple):
    """What a client was asked to do, and what it reported."""

    name: int
    steps: tuple[Step, ...]
    committed: bool | None = None
    """``None`` if the client has reported no outcome: the log tells it. The reads are then those in the log only."""


class Entry(NamedTuple):
    """A transaction in the log: whole lists, each with the elements that the transaction has appended at its end."""

    name: int
    lists: Mapping[str, Elements]


class Kind(enum.Enum):
    """What can be wrong."""

    G0 = "G0, a cycle of writes"
    G1A = "G1a, a read of what was not committed"
    G1B = "G1b, a read of what was overwritten in the same transaction"
    G1C = "G1c, a cycle of writes and reads"
    G_SINGLE = "G-single, a cycle with one missed write"
    G2 = "G2, a cycle with several missed writes"
    INTERNAL = "a read that misses an own write, or sees a later one"
    OTHER_LIST = "a read of a list that never was in the log"
    INVENTED = "a read of an element that nobody has appended"
    LOST = "committed, and not in the log"
    DOUBLED = "more than once in the log"
    UNDEAD = "reported as not committed, and in the log"
    GARBLED = "other elements in the log than appended"


class Anomaly(NamedTuple):
    """One finding, with the transactions of it; of a cycle, in its order."""

    kind: Kind
    transactions: tuple[int, ...]
    what: str

    def __str__(self) -> str:
        return f"{self.kind.value}: transactions {', '.join(map(str, self.transactions))}: {self.what}"


class Edge(NamedTuple):
    """A dependency of one transaction on another."""

    kind: str
    source: int
    target: int
    key: str


class _Read(NamedTuple):
    reader: int
    key: str
    seen: Elements


class _Append(NamedTuple):
    writer: int
    key: str
    is_last: bool


class _Versions:
    """The versions of one list, the empty one first."""

    def __init__(self) -> None:
        self.writers: list[int | None] = [None]
        self.lists: list[Elements] = [()]
        self.number_of: dict[int, int] = {}


def check(transactions: Iterable[Transaction], log: Iterable[Entry]) -> list[Anomaly]:
    """All that is wrong. ``log`` is in the order of the log."""
    by_name = {transaction.name: transaction for transaction in transactions}
    found: list[Anomaly] = []
    versions: defaultdict[str, _Versions] = defaultdict(_Versions)
    reads: list[_Read] = []
    present: set[int] = set()
    for entry in log:
        if entry.name in present:
            found.append(Anomaly(Kind.DOUBLED, (entry.name,), "a second record is left out"))
            continue
        present.add(entry.name)
        transaction = by_name.get(entry.name)
        if transaction is None:
            found.append(Anomaly(Kind.GARBLED, (entry.name,), "nobody has begun it"))
            continue
        if transaction.committed is False:
            found.append(Anomaly(Kind.UNDEAD, (entry.name,), f"it writes {sorted(entry.lists)}"))
        found += _take(transaction, entry, versions, reads)
    appends = _appends(by_name.values())
    for transaction in by_name.values():
        writes = any(step.element is not None for step in transaction.steps)
        if transaction.committed and writes and transaction.name not in present:
            found.append(Anomaly(Kind.LOST, (transaction.name,), "it was reported as committed"))
        elif transaction.committed:
            found += _own_reads(transaction, reads)
    edges = list(_writes(versions, appends))
    for read in dict.fromkeys(reads):
        anomaly = _misread(read, versions[read.key], appends, present)
        if anomaly is not None:
            found.append(anomaly)
        edges += _dependencies(read, versions[read.key], appends)
    return found + list(cycles(edges))


def _take(
    transaction: Transaction, entry: Entry, versions: defaultdict[str, _Versions], reads: list[_Read]
) -> Iterator[Anomaly]:
    """Take a record: each list is a version, and what is before the own elements was read."""
    own: defaultdict[str, list[str]] = defaultdict(list)
    for step in transaction.steps:
        if step.element is not None:
            own[step.key].append(step.element)
    if own.keys() != entry.lists.keys():
        what = f"lists {sorted(entry.lists)} in the log, and {sorted(own)} appended to"
        yield Anomaly(Kind.GARBLED, (transaction.name,), what)
    for key, elements in entry.lists.items():
        appended = tuple(own[key])
        before = elements[: len(elements) - len(appended)]
        if elements != (*before, *appended):
            yield Anomaly(Kind.GARBLED, (transaction.name,), f"{key} ends with {elements[-3:]}, and not {appended}")
        else:
            reads.append(_Read(transaction.name, key, before))
        of_key = versions[key]
        of_key.number_of[transaction.name] = len(of_key.lists)
        of_key.writers.append(transaction.name)
        of_key.lists.append(elements)


def _appends(transactions: Iterable[Transaction]) -> dict[str, _Append]:
    """Who has appended each element, and whether it was the last one to its list in its transaction."""
    appends: dict[str, _Append] = {}
    for transaction in transactions:
        last = {step.key: step.element for step in transaction.steps if step.element is not None}
        for step in transaction.steps:
            if step.element is not None:
                appends[step.element] = _Append(transaction.name, step.key, last[step.key] == step.element)
    return appends


def _own_reads(transaction: Transaction, reads: list[_Read]) -> Iterator[Anomaly]:
    """The reads that the client has reported, without own elements at their ends."""
    own: defaultdict[str, Elements] = defaultdict(tuple)
    all_own = {step.element for step in transaction.steps if step.element is not None}
    for key, element, seen in transaction.steps:
        if element is not None:
            own[key] = (*own[key], element)
        elif seen is not None:
            before = seen[: len(seen) - len(own[key])]
            if seen != (*before, *own[key]):
                yield Anomaly(Kind.INTERNAL, (transaction.name,), f"{key} ends with {seen[-3:]}, and not {own[key]}")
            elif not all_own.isdisjoint(before):
                yield Anomaly(Kind.INTERNAL, (transaction.name,), f"{key} has {before[-3:]} before it was appended")
            else:
                reads.append(_Read(transaction.name, key, before))


def _misread(read: _Read, versions: _Versions, appends: Mapping[str, _Append], present: set[int]) -> Anomaly | None:
    """What is wrong with one read, apart from cycles."""
    if not read.seen:
        return None
    last = appends.get(read.seen[-1])
    if last is None or last.key != read.key:
        return Anomaly(Kind.INVENTED, (read.reader,), f"{read.seen[-1]!r} in {read.key}")
    if last.writer not in present:
        return Anomaly(Kind.G1A, (read.reader, last.writer), f"{read.seen[-1]!r} in {read.key} is not in the log")
    if not last.is_last:
        return Anomaly(Kind.G1B, (read.reader, last.writer), f"{read.key} ends with {read.seen[-1]!r}")
    number = versions.number_of.get(last.writer)
    if number is None or versions.lists[number] != read.seen:
        in_log = () if number is None else versions.lists[number]
        what = f"{read.key} was {_shown(read.seen)}, and is {_shown(in_log)} in the log"
        return Anomaly(Kind.OTHER_LIST, (read.reader, last.writer), what)
    return None


def _shown(elements: Elements) -> str:
    rest = len(elements) - SHOWN_STEPS
    return ("... " if rest > 0 else "") + " ".join(elements[-SHOWN_STEPS:]) if elements else "empty"


def _writes(versions: Mapping[str, _Versions], appends: Mapping[str, _Append]) -> Iterator[Edge]:
    """By the order of the log, and by the order of elements where a list does not continue the one before it."""
    for key, of_key in versions.items():
        for before, after in itertools.pairwise(of_key.writers[1:]):
            if before is not None and after is not None:
                yield Edge("ww", before, after, key)
        for number in range(1, len(of_key.lists)):
            elements, previous = of_key.lists[number], of_key.lists[number - 1]
            writers = [appends[each].writer for each in elements if each in appends and appends[each].key == key]
            added = set(writers[len(previous) :]) <= {of_key.writers[number]}
            if elements[: len(previous)] != previous or not added:
                yield from (Edge("ww", *pair, key) for pair in itertools.pairwise(writers))


def _dependencies(read: _Read, versions: _Versions, appends: Mapping[str, _Append]) -> Iterator[Edge]:
    """Those of one read. Of a list that ends in the middle of its writer's elements, they are those of the writer."""
    number = 0
    if read.seen:
        last = appends.get(read.seen[-1])
        if last is None or last.key != read.key or last.writer not in versions.number_of:
            return
        number = versions.number_of[last.writer]
    writer = versions.writers[number]
    if writer is not None and writer != read.reader:
        yield Edge("wr", writer, read.reader, read.key)
    following = versions.writers[number + 1] if number + 1 < len(versions.writers) else None
    if following is not None and following != read.reader:
        yield Edge("rw", read.reader, following, read.key)


def cycles(edges: Iterable[Edge]) -> Iterator[Anomaly]:
    """One anomaly of each class for each set of transactions that depend on each other."""
    distinct = list(dict.fromkeys(edge for edge in edges if edge.source != edge.target))
    for component in components(distinct):
        inside = [edge for edge in distinct if edge.source in component and edge.target in component]
        without_rw = [edge for edge in inside if edge.kind != "rw"]
        only_ww = [edge for edge in inside if edge.kind == "ww"]
        found = [
            (Kind.G0, _cycle(only_ww, only_ww)),
            (Kind.G1C, _cycle([edge for edge in inside if edge.kind == "wr"], without_rw)),
            (Kind.G_SINGLE, _cycle([edge for edge in inside if edge.kind == "rw"], without_rw)),
        ]
        if not any(cycle for _, cycle in found):
            found.append((Kind.G2, _cycle(inside, inside)))
        for kind, cycle in found:
            if cycle:
                path = " ".join(f"{edge.source} -{edge.kind} {edge.key}->" for edge in cycle[:SHOWN_STEPS])
                yield Anomaly(kind, tuple(edge.source for edge in cycle), f"{path} {cycle[-1].target}")


def _cycle(firsts: Sequence[Edge], edges: Sequence[Edge]) -> list[Edge]:
    """A shortest cycle of one of ``firsts`` and then some of ``edges``; empty if there is none."""
    leaving: defaultdict[int, list[Edge]] = defaultdict(list)
    for edge in edges:
        leaving[edge.source].append(edge)
    shortest: list[Edge] = []
    for first in firsts:
        reached: dict[int, Edge] = {first.target: first}
        waiting = deque([first.target])
        while waiting and first.source not in reached:
            for edge in leaving[waiting.popleft()]:
                if edge.target not in reached:
                    reached[edge.target] = edge
                    waiting.append(edge.target)
        if first.source in reached:
            cycle = [reached[first.source]]
            while cycle[-1] is not first:
                cycle.append(reached[cycle[-1].source])
            if not shortest or len(cycle) < len(shortest):
                shortest = cycle[::-1]
    return shortest


def components(edges: Sequence[Edge]) -> Iterator[set[int]]:
    """The sets of at least two transactions that reach each other (Tarjan's algorithm, without recursion)."""
    leaving: defaultdict[int, list[int]] = defaultdict(list)
    for edge in edges:
        leaving[edge.source].append(edge.target)
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in list(leaving):
        if root in index:
            continue
        work: list[tuple[int, Iterator[int]]] = []
        _visit(root, index, low, stack, on_stack)
        work.append((root, iter(leaving[root])))
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    _visit(target, index, low, stack, on_stack)
                    work.append((target, iter(leaving.get(target, ()))))
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component: set[int] = set()
                    while node not in component:
                        component.add(stack.pop())
                    on_stack -= component
                    if len(component) > 1:
                        yield component


def _visit(node: int, index: dict[int, int], low: dict[int, int], stack: list[int], on_stack: set[int]) -> None:
    index[node] = low[node] = len(index)
    stack.append(node)
    on_stack.add(node)
