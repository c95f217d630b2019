"""The transaction monitor against a naive model, exhaustively and at random, and case by case."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waltz.client.engine.partition.monitor import MonitorState, Registration, TransactionMonitor
from waltz.client.errors import ClientClosedError, PartitionInactiveError


class Naive:
    """The rules said as plainly as possible: a list of [request, outcome, flushed]."""

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        self.state = "stopped"
        self.entries: list[list[object]] = []
        self.outcomes: list[tuple[str, object]] = []
        self.last: object = None

    @property
    def pending(self) -> int:
        return sum(outcome is None for _, outcome in self.entries)

    def start(self) -> bool:
        changed, self.state = self.state == "stopped", "started" if self.state == "stopped" else self.state
        return changed

    def stop(self) -> bool:
        changed, self.state = self.state == "started", "stopped" if self.state == "started" else self.state
        return changed

    def register(self, req: str) -> str:
        if self.state == "closed":
            return "closed"
        if self.state == "stopped":
            return "inactive"
        if any(req == other for other, _ in self.entries):
            return "duplicate"
        if self.pending >= self.maximum:
            return "full"
        self.entries.append([req, None])
        self.last = req
        return "registered"

    def _settle(self, entry: list[object], outcome: object) -> None:
        if entry[1] is None:
            entry[1] = outcome
            self.outcomes.append((str(entry[0]), outcome))

    def _remove_through(self, req: str, outcome: object) -> None:
        if all(req != other for other, _ in self.entries):
            return
        while True:
            entry = self.entries.pop(0)
            self._settle(entry, outcome if entry[0] == req else False)
            if entry[0] == req:
                return

    def committed(self, req: str) -> None:
        self._remove_through(req, True)

    def flush(self, req: str) -> None:
        self._remove_through(req, False)

    def abort(self, req: str) -> None:
        for entry in self.entries:
            if entry[0] == req:
                self._settle(entry, False)

    def close(self) -> None:
        self.state = "closed"
        for entry in self.entries:
            self._settle(entry, "closed")
        self.entries.clear()


class Real:
    """The monitor behind the interface of the model."""

    def __init__(self, maximum: int) -> None:
        self.monitor: TransactionMonitor[str] = TransactionMonitor(7, maximum)
        self.outcomes: list[tuple[str, object]] = []

    def start(self) -> bool:
        return self.monitor.start()

    def stop(self) -> bool:
        return self.monitor.stop()

    def register(self, req: str) -> str:
        try:
            return self.monitor.register(req.encode(), req).value
        except PartitionInactiveError:
            return "inactive"
        except ClientClosedError:
            return "closed"

    def committed(self, req: str) -> None:
        oldest = self.monitor.oldest
        expected = self.monitor.get(req.encode()) if oldest == req.encode() else None
        item = self.monitor.take_oldest(req.encode())
        assert item == expected
        if item is not None:
            self.outcomes.append((item, True))
            return
        commit = self.monitor.committed(req.encode())
        if commit is not None:
            item, failed = commit
            self.outcomes += [(item, False) for item in failed]
            if item is not None:
                self.outcomes.append((item, True))

    def flush(self, req: str) -> None:
        self.outcomes += [(item, False) for item in self.monitor.flush(req.encode())]

    def abort(self, req: str) -> None:
        item = self.monitor.abort(req.encode())
        if item is not None:
            self.outcomes.append((item, False))

    def close(self) -> None:
        self.outcomes += [(item, "closed") for item in self.monitor.close()]


def compare(real: Real, naive: Naive) -> None:
    monitor = real.monitor
    assert real.outcomes == naive.outcomes
    assert monitor.pending == naive.pending
    assert monitor.state.value == naive.state
    assert len(monitor) == len(naive.entries)
    assert [monitor.get(str(req).encode()) for req, _ in naive.entries] == [
        req if outcome is None else None for req, outcome in naive.entries
    ]
    oldest, last = monitor.oldest, monitor.last_enqueued
    assert (None if oldest is None else oldest.decode()) == (naive.entries[0][0] if naive.entries else None)
    in_map = [req for req, _ in naive.entries]
    assert all(str(req).encode() in monitor for req in in_map)
    assert (None if last is None else last.decode()) == (naive.last if naive.last in in_map else None)


OPERATIONS = [
    *((name, req) for name in ("register", "committed", "flush", "abort") for req in "abc"),
    ("start", None),
    ("stop", None),
    ("close", None),
]


def run(operations: "list[tuple[str, str | None]] | tuple[tuple[str, str | None], ...]", maximum: int) -> None:
    real, naive = Real(maximum), Naive(maximum)
    real.start()
    naive.start()
    for name, req in operations:
        arguments = () if req is None else (req,)
        assert getattr(real, name)(*arguments) == getattr(naive, name)(*arguments)
        compare(real, naive)


def test_every_sequence_of_three_operations_behaves_as_the_model() -> None:
    prefix = [("register", "a"), ("register", "b"), ("register", "c")]
    for operations in itertools.product(OPERATIONS, repeat=3):
        run([*prefix[:2], *operations], 2)
        if operations[0][0] in ("abort", "committed", "flush", "close"):
            run([*prefix, *operations], 3)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(
        st.one_of(
            st.tuples(
                st.sampled_from(["register", "register", "register", "committed", "flush", "abort"]),
                st.sampled_from([f"r{i}" for i in range(12)]),
            ),
            st.sampled_from([("start", None), ("stop", None)]),
        ),
        max_size=60,
    ),
    st.integers(1, 6),
)
def test_random_sequences_behave_as_the_model(operations: list[tuple[str, str | None]], maximum: int) -> None:
    run(operations, maximum)


@pytest.fixture
def monitor() -> TransactionMonitor[str]:
    monitor: TransactionMonitor[str] = TransactionMonitor(0, 5)
    assert monitor.start()
    return monitor


def register(monitor: TransactionMonitor[str], *names: str) -> None:
    for name in names:
        assert monitor.register(name.encode(), name) is Registration.REGISTERED
        assert monitor.last_enqueued == name.encode()


def there(monitor: TransactionMonitor[str], *names: str) -> list[str]:
    return [name for name in names if name.encode() in monitor]


def test_a_duplicate_fails_at_once(monitor: TransactionMonitor[str]) -> None:
    register(monitor, "a")
    assert monitor.register(b"a", "other") is Registration.DUPLICATE
    assert monitor.pending == 1
    assert monitor.get(b"a") == "a"


def test_a_commit_fails_older_ones_and_leaves_later_ones(monitor: TransactionMonitor[str]) -> None:
    register(monitor, "1", "2", "3", "4", "5")
    assert monitor.committed(b"1") == ("1", ())
    assert monitor.committed(b"4") == ("4", ["2", "3"])
    assert there(monitor, "1", "2", "3", "4", "5") == ["5"]
    assert monitor.pending == 1
    assert monitor.committed(b"4") is None
    assert monitor.get(b"4") is None
    assert monitor.get(b"5") == "5"


def test_starting_and_stopping(monitor: TransactionMonitor[str]) -> None:
    fresh: TransactionMonitor[str] = TransactionMonitor(3, 1)
    assert not fresh.stop()
    with pytest.raises(PartitionInactiveError, match="partition inactive: partitionId=3"):
        fresh.register(b"a", "a")
    assert not monitor.start()
    register(monitor, "a", "b")
    assert monitor.stop()
    assert not monitor.stop()
    assert monitor.committed(b"a") == ("a", ())
    assert monitor.flush(b"b") == ["b"]


def test_capacity(monitor: TransactionMonitor[str]) -> None:
    register(monitor, *"abcde")
    assert monitor.register(b"f", "f") is Registration.FULL
    assert monitor.abort(b"c") == "c"
    assert monitor.abort(b"c") is None
    register(monitor, "f")


def test_abort_leaves_the_entry_until_it_is_flushed(monitor: TransactionMonitor[str]) -> None:
    register(monitor, "a", "b")
    assert monitor.abort(b"a") == "a"
    assert b"a" in monitor
    assert monitor.oldest == b"a"
    assert monitor.take_oldest(b"a") is None
    assert monitor.committed(b"a") == (None, ())
    assert b"a" not in monitor


def test_flush(monitor: TransactionMonitor[str]) -> None:
    register(monitor, "a", "b", "c")
    monitor.abort(b"a")
    assert monitor.flush(b"unknown") == ()
    assert monitor.flush(b"b") == ["b"]
    assert there(monitor, "a", "b", "c") == ["c"]


def test_close(monitor: TransactionMonitor[str]) -> None:
    register(monitor, "a", "b")
    monitor.abort(b"a")
    assert monitor.close() == ["b"]
    assert not there(monitor, "a", "b")
    assert monitor.state is MonitorState.CLOSED
    assert monitor.pending == 0
    assert monitor.close() == []
    assert not monitor.start()
    assert monitor.committed(b"b") is None
    with pytest.raises(ClientClosedError):
        monitor.register(b"c", "c")


def test_last_enqueued(monitor: TransactionMonitor[str]) -> None:
    assert [monitor.last_enqueued] == [None]
    register(monitor, "a", "b")
    monitor.abort(b"b")
    assert [monitor.last_enqueued] == [b"b"]
    monitor.committed(b"b")
    assert [monitor.last_enqueued] == [None]
