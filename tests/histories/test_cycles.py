"""Cycles over list-append transactions, against models that try everything."""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.histories.cycles import Anomaly, Edge, Entry, Kind, Step, Transaction, check, components, cycles

KEYS = ("x", "y")
CYCLES = {Kind.G0, Kind.G1C, Kind.G_SINGLE, Kind.G2}


def append(key: str, element: str) -> Step:
    return Step(key, element)


def read(key: str, *seen: str) -> Step:
    return Step(key, None, seen)


def done(name: int, *steps: Step) -> Transaction:
    return Transaction(name, steps, True)


def kinds(found: Sequence[Anomaly]) -> set[Kind]:
    return {anomaly.kind for anomaly in found}


Case = tuple[list[Transaction], list[Entry]]

GOOD: Case = (
    [
        done(1, append("x", "1")),
        done(2, read("x", "1"), append("x", "2"), append("y", "3"), read("x", "1", "2")),
        done(3, read("x", "1"), read("y")),
        Transaction(4, (append("y", "4"),), False),
        Transaction(5, (append("y", "5"), append("x", "6"))),
    ],
    [
        Entry(1, {"x": ("1",)}),
        Entry(2, {"x": ("1", "2"), "y": ("3",)}),
        Entry(5, {"x": ("1", "2", "6"), "y": ("3", "5")}),
    ],
)


def test_a_history_without_anomalies() -> None:
    assert check(*GOOD) == []


G0: Case = (
    [done(1, append("x", "1"), append("y", "2")), done(2, append("x", "3"), append("y", "4"))],
    [Entry(1, {"x": ("1",), "y": ("4", "2")}), Entry(2, {"x": ("1", "3"), "y": ("4",)})],
)
G1A: Case = ([Transaction(1, (append("x", "1"),), False), done(2, read("x", "1"))], [])
G1A_IN_A_WRITE = (
    [Transaction(1, (append("x", "1"),), False), done(2, append("x", "2"))],
    [Entry(2, {"x": ("1", "2")})],
)
G1B = ([done(1, append("x", "1"), append("x", "2")), done(2, read("x", "1"))], [Entry(1, {"x": ("1", "2")})])
G1C = (
    [done(1, append("x", "1"), read("y", "2")), done(2, append("y", "2"), read("x", "1"))],
    [Entry(1, {"x": ("1",)}), Entry(2, {"y": ("2",)})],
)
LOST_UPDATE = (
    [done(1, append("x", "1")), done(2, append("x", "2"))],
    [Entry(1, {"x": ("1",)}), Entry(2, {"x": ("2",)})],
)
READ_SKEW = (
    [done(1, append("x", "1"), append("y", "2")), done(2, read("x", "1"), read("y"))],
    [Entry(1, {"x": ("1",), "y": ("2",)})],
)
WRITE_SKEW = (
    [done(1, read("x"), append("y", "1")), done(2, read("y"), append("x", "2"))],
    [Entry(1, {"y": ("1",)}), Entry(2, {"x": ("2",)})],
)


@pytest.mark.parametrize(
    ("history", "kind"),
    [
        (G0, Kind.G0),
        (G1A, Kind.G1A),
        (G1A_IN_A_WRITE, Kind.G1A),
        (G1B, Kind.G1B),
        (G1C, Kind.G1C),
        (LOST_UPDATE, Kind.G_SINGLE),
        (READ_SKEW, Kind.G_SINGLE),
        (WRITE_SKEW, Kind.G2),
        (([done(1, append("x", "1"), read("x"))], [Entry(1, {"x": ("1",)})]), Kind.INTERNAL),
        (([done(1, append("x", "1")), done(2, read("x", "9", "1"))], [Entry(1, {"x": ("1",)})]), Kind.OTHER_LIST),
        (([done(1, read("x", "9"))], []), Kind.INVENTED),
        (([done(1, append("y", "1")), done(2, read("x", "1"))], [Entry(1, {"y": ("1",)})]), Kind.INVENTED),
        (([done(1, append("x", "1"))], []), Kind.LOST),
        (([done(1, append("x", "1"))], [Entry(1, {"x": ("1",)})] * 2), Kind.DOUBLED),
        (([Transaction(1, (append("x", "1"),), False)], [Entry(1, {"x": ("1",)})]), Kind.UNDEAD),
        (([done(1, append("x", "1"), append("x", "2"))], [Entry(1, {"x": ("2", "1")})]), Kind.GARBLED),
        (([done(1, append("x", "1"), append("y", "2"))], [Entry(1, {"x": ("1",)})]), Kind.GARBLED),
        (([], [Entry(1, {"x": ("1",)})]), Kind.GARBLED),
    ],
)
def test_it_finds(history: tuple[list[Transaction], list[Entry]], kind: Kind) -> None:
    assert kind in kinds(check(*history))


def test_a_finding_names_the_cycle() -> None:
    (found,) = check(*WRITE_SKEW)
    assert str(found) == ("G2, a cycle with several missed writes: transactions 1, 2: 1 -rw x-> 2 -rw y-> 1")


def test_a_long_chain_needs_no_recursion() -> None:
    chain = [Edge("ww", each, each + 1, "x") for each in range(5_000)]
    assert list(components(chain)) == []
    (found,) = cycles([*chain, Edge("wr", 5_000, 0, "x")])
    assert found.kind is Kind.G1C
    assert len(found.transactions) == 5_001


@settings(deadline=None)
@given(
    st.lists(
        st.builds(Edge, st.sampled_from(("ww", "wr", "rw")), st.integers(0, 4), st.integers(0, 4), st.just("x")),
        max_size=12,
    )
)
def test_classes_of_cycles_are_those_of_all_simple_cycles(edges: list[Edge]) -> None:
    every = list(_simple_cycles(edges))
    expected: set[Kind] = set()
    for component in _reaching_each_other(edges):
        of_component: set[Kind] = set()
        for cycle in every:
            if cycle[0].source in component:
                of_kind = [edge.kind for edge in cycle]
                if of_kind.count("rw") == 1:
                    of_component.add(Kind.G_SINGLE)
                elif "rw" not in of_kind:
                    of_component.add(Kind.G1C if "wr" in of_kind else Kind.G0)
        expected |= of_component or {Kind.G2}
    found = list(cycles(edges))
    assert kinds(found) == expected
    for anomaly in found:
        pairs = zip(anomaly.transactions, (*anomaly.transactions[1:], anomaly.transactions[0]), strict=True)
        assert all(any((edge.source, edge.target) == pair for edge in edges) for pair in pairs)


def _simple_cycles(edges: list[Edge]) -> Iterator[list[Edge]]:
    for length in range(2, 6):
        for nodes in itertools.permutations(range(5), length):
            if nodes[0] == min(nodes):
                hops = zip(nodes, (*nodes[1:], nodes[0]), strict=True)
                choices = [[edge for edge in set(edges) if (edge.source, edge.target) == hop] for hop in hops]
                yield from map(list, itertools.product(*choices))


def _reaching_each_other(edges: list[Edge]) -> Iterator[set[int]]:
    reach = {node: {node} for node in range(5)}
    for _ in range(5):
        for edge in edges:
            for reached in reach.values():
                if edge.source in reached:
                    reached.add(edge.target)
    components = {frozenset(other for other in reach[node] if node in reach[other]) for node in range(5)}
    yield from (set(component) for component in components if len(component) > 1)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Transaction], list[Entry]]:
    """A serial execution, of which some reads and the order of some records are then changed."""
    elements = map(str, itertools.count(1))
    state: dict[str, tuple[str, ...]] = dict.fromkeys(KEYS, ())
    history: list[Transaction] = []
    log: list[Entry] = []
    all_lists: defaultdict[str, list[tuple[str, ...]]] = defaultdict(lambda: [()])
    for name in range(draw(st.integers(1, 4))):
        steps: list[Step] = []
        before = dict(state)
        for key in draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=3)):
            if draw(st.booleans()):
                state[key] = (*state[key], next(elements))
                all_lists[key].append(state[key])
                steps.append(append(key, state[key][-1]))
            else:
                steps.append(read(key, *state[key]))
        if draw(st.integers(0, 4)) == 0:  # it is not committed
            state = before
            history.append(Transaction(name, tuple(steps), draw(st.sampled_from((False, None)))))
            continue
        history.append(Transaction(name, tuple(steps), draw(st.sampled_from((True, True, None)))))
        if written := {step.key: state[step.key] for step in steps if step.element is not None}:
            log.append(Entry(name, written))
    for _ in range(draw(st.integers(0, 2))):
        number = draw(st.integers(0, len(history) - 1))
        name, steps_, committed = history[number]
        place = draw(st.integers(0, len(steps_) - 1))
        step = steps_[place]
        if step.element is None:
            other = step._replace(seen=draw(st.sampled_from(all_lists[step.key])))
            history[number] = Transaction(name, (*steps_[:place], other, *steps_[place + 1 :]), committed)
        elif log:
            number = draw(st.integers(0, len(log) - 1))
            log.insert(draw(st.integers(0, len(log) - 1)), log.pop(number))
    return history, log


@settings(deadline=None)
@given(histories())
def test_nothing_is_found_if_and_only_if_some_order_explains_everything(
    history: tuple[list[Transaction], list[Entry]],
) -> None:
    assert (check(*history) == []) == any(_explains(order, history[1]) for order in _orders(*history))


def _orders(transactions: list[Transaction], log: list[Entry]) -> Iterator[tuple[Transaction, ...]]:
    """All orders of those that took effect, or are only said to have read."""
    present = {entry.name for entry in log}
    yield from itertools.permutations(each for each in transactions if each.committed or each.name in present)


def _explains(order: Sequence[Transaction], log: list[Entry]) -> bool:
    state: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
    writers: defaultdict[str, list[int]] = defaultdict(list)
    entries = {entry.name: entry for entry in log}
    for transaction in order:
        written: dict[str, tuple[str, ...]] = {}
        for key, element, seen in transaction.steps:
            if element is not None:
                state[key] = written[key] = (*state[key], element)
            elif transaction.committed and seen != state[key]:
                return False
        if transaction.name in entries:
            if entries[transaction.name].lists != written or transaction.committed is False:
                return False
        elif written:
            return False
        for key in written:
            writers[key].append(transaction.name)
    in_log = {key: [entry.name for entry in log if key in entry.lists] for key in KEYS}
    return all(writers[key] == in_log[key] for key in KEYS)
