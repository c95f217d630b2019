"""Rows of many keys: batches, scans, quarantine, and histories that end in the middle."""

from typing import Literal

from waltz.bot.expected import Expected
from waltz.bot.history import Call, Invoked, ReadCall, Returned, ScanCall, SwapCall, WriteCall

Rows = dict[str, tuple[str, int, int]]


class Run:
    """Operations one after the other; what was found is listed."""

    def __init__(self) -> None:
        self.expected = Expected()
        self.found: list[str] = []
        self._op = 0

    def begin(self, call: Call) -> int:
        self._op += 1
        self.expected.take(Invoked(type="invoke", op=self._op, process=0, time_ms=0, call=call))
        return self._op

    def end(
        self,
        op: int,
        kind: Literal["ok", "fail", "info"] = "ok",
        *,
        transaction: int | None = None,
        rows: Rows | None = None,
        conflict: bool = False,
        stamp_ms: tuple[int, int] | None = None,
    ) -> None:
        event = Returned(
            type=kind, op=op, time_ms=0, transaction=transaction, rows=rows, conflict=conflict, stamp_ms=stamp_ms
        )
        self.found += [f"{each.key}: {each.what}" for each in self.expected.take(event)]

    def write(self, timestamp_ms: int, kind: Literal["ok", "fail", "info"] = "ok", **rows: str | None) -> None:
        op = self.begin(WriteCall(f="write", rows=rows, timestamp_ms=timestamp_ms))
        self.end(op, kind, transaction=timestamp_ms if kind == "ok" else None)

    def scan(self, **rows: tuple[str, int]) -> None:
        op = self.begin(ScanCall(f="scan"))
        self.end(op, rows={key: (value, at, at) for key, (value, at) in rows.items()})


def test_what_was_written_is_valid_and_may_be_scanned() -> None:
    run = Run()
    run.write(1, a="1", b="2", c=None)
    run.write(2, "info", b="3")
    run.write(3, "fail", a="9")
    assert run.expected.valid == {"a": ["1"], "b": ["2", "3"]}
    run.scan(a=("1", 1), b=("3", 2))
    assert run.expected.valid == {"a": ["1"], "b": ["3"]}
    assert run.found == []
    assert (run.expected.operations, run.expected.unknown) == (4, 1)


def test_a_scan_finds_what_is_lost_back_or_strange_and_that_is_left_alone_from_then_on() -> None:
    run = Run()
    run.write(1, a="1", b="2", c="3", d="4")
    run.write(2, b=None)
    run.scan(b=("2", 1), c=("3", 1), d=("old", 1), strange=("s", 9))
    assert run.found == [
        "a: scan 3: there is no row; it can have been '1'",
        "b: scan 3: the row is '2' of transaction 1 and timestamp 1; it can have been no row",
        "d: scan 3: the row is 'old' of transaction 1 and timestamp 1; it can have been '4'",
        "strange: scan 3: there is a row that nobody wrote: ('s', 9, 9)",
    ]
    assert run.expected.valid == {"c": ["3"]}
    run.write(5, a="6", c="7")
    run.scan(c=("7", 5), strange=("s", 9))
    assert len(run.found) == 4
    assert list(run.expected.quarantine) == ["a", "b", "d", "strange"]


def test_swaps_and_reads() -> None:
    run = Run()
    run.write(1, a="1")
    swap = SwapCall(f="swap", key="a", expected="1", value="2")
    run.end(run.begin(swap), transaction=2, stamp_ms=(1, 4))
    run.end(run.begin(swap), conflict=True)
    read = ReadCall(f="read", keys=["a", "never"])
    run.end(run.begin(read), rows={"a": ("2", 3, 2)})
    assert run.found == []
    run.end(run.begin(swap), transaction=9, stamp_ms=(1, 4))
    assert run.found == ["a: swap 5: it was said to be done; it can have been '2'"]


def test_a_conflict_where_the_row_is_as_expected() -> None:
    run = Run()
    run.write(1, a="1")
    run.end(run.begin(SwapCall(f="swap", key="a", expected="1", value="2")), conflict=True)
    assert run.found == ["a: swap 2: the row was reported as different from the expected row; it can have been '1'"]


def test_a_read_that_has_failed_says_nothing() -> None:
    run = Run()
    run.write(1, a="1")
    run.end(run.begin(ScanCall(f="scan")), "fail")
    assert run.found == []


def test_what_never_ends_is_of_unknown_outcome() -> None:
    run = Run()
    run.write(1, a="1", b="1")
    run.begin(WriteCall(f="write", rows={"a": "2"}, timestamp_ms=2))
    run.begin(SwapCall(f="swap", key="b", expected="1", value="2"))
    read = run.begin(ReadCall(f="read", keys=["a", "b"]))
    run.end(read, rows={"a": ("2", 2, 2), "b": ("1", 1, 1)})
    assert run.expected.give_up() == []
    assert run.expected.valid == {"a": ["2"], "b": ["1", "2"]}
    run = Run()
    run.write(1, a="1")
    run.begin(WriteCall(f="write", rows={"a": "2"}, timestamp_ms=2))
    read = run.begin(ReadCall(f="read", keys=["a"]))
    run.end(read, rows={"a": ("0", 1, 1)})
    assert [each.key for each in run.expected.give_up()] == ["a"]


def test_an_end_without_a_beginning_is_passed_over() -> None:
    run = Run()
    run.end(17)
    assert run.found == []
