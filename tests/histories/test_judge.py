"""The checkers: each finds a history that is corrupted in each way that it claims to find."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.histories import acknowledgements, fences, ledger, views
from tests.histories.__main__ import SHOWN, report
from tests.histories.events import Header, HistoryError, merge, read
from tests.histories.judge import collect, violations
from tests.histories.sometimes import CONDITIONS, counts

Events = list[dict[str, Any]]


def invoke(op: int, at_ns: int, partition: int, f: str, **call: object) -> dict[str, Any]:
    return {
        "type": "invoke",
        "op": op,
        "process": "client-1.1",
        "at_ns": at_ns,
        "partition": partition,
        "call": {"f": f, **call},
    }


def end(op: int, at_ns: int, kind: str = "ok", **fields: object) -> dict[str, Any]:
    return {"type": kind, "op": op, "at_ns": at_ns, **fields}


def record(partition: int, transaction: int, op: int, **fields: object) -> dict[str, Any]:
    return {"type": "record", "partition": partition, "transaction": transaction, "op": op, **fields}


def good() -> Events:
    """A history of each workload, with faults, in which most of the rare states are reached."""
    return [
        {"type": "header", "format": 1, "seed": 1, "registers": 0, "lists": 1, "fences": 2, "ledger": [3]},
        {"type": "owner", "partition": 0, "server": 1, "at_ns": 1},
        {"type": "fault", "kind": "moved", "targets": [], "at_ns": 5, "until_ns": 95},
        {"type": "fault", "kind": "cut", "targets": ["server-1", "storage-2"], "at_ns": 6, "until_ns": 7},
        {"type": "fault", "kind": "killed", "targets": ["client-1"], "at_ns": 6, "until_ns": 7},
        {"type": "fault", "kind": "struck", "targets": ["client-2"], "at_ns": 6, "until_ns": 7},
        {"type": "fault", "kind": "paused", "targets": ["zookeeper"], "at_ns": 40, "until_ns": 42},
        {"type": "fault", "kind": "paused", "targets": ["zookeeper"], "at_ns": 90, "until_ns": 4_000_000_091},
        {"type": "fault", "kind": "drained", "targets": ["server-1"], "at_ns": 38, "until_ns": 40},
        invoke(1, 10, 0, "write", rows={"k": "1.0"}, timestamp_ms=100),
        invoke(40, 10, 0, "view read", view="v:1", keys=["k", "l"], fresh=True),
        {"type": "owner", "partition": 0, "server": 2, "at_ns": 11},
        end(1, 12, "info", error="TimeoutError"),
        invoke(2, 10, 0, "read", keys=["k"]),
        end(2, 13, rows={"k": ["1.0", 100, 0]}),
        invoke(3, 14, 0, "swap", key="k", expected="0.0", value="3.0"),
        end(3, 15, conflict=True),
        invoke(4, 16, 0, "swap", key="k", expected="1.0", value="4.0"),
        end(4, 17, transaction=1, stamp_ms=[100, 200]),
        end(40, 17, rows={"k": ["1.0", 100, 0]}, applied=0),
        invoke(41, 18, 0, "view read", view="v:1", keys=["k"]),
        invoke(42, 18, 0, "view read", view="v:1", keys=["k"], least=1),
        invoke(43, 18, 0, "view read", view="v:1", keys=["k"], fresh=True),
        invoke(44, 18, 0, "view read", view="v:1", keys=["k"], fresh=True),
        end(41, 19, rows={"k": ["1.0", 100, 0]}, applied=0),
        end(42, 19, rows={"k": ["4.0", 150, 1]}, applied=1),
        end(43, 19, rows={"k": ["4.0", 150, 1]}, applied=1),
        end(44, 19, "fail", error="ViewUnavailableError"),
        invoke(5, 18, 0, "write", rows={"k": "5.0"}, timestamp_ms=300),
        invoke(10, 20, 1, "transact", steps=[["x", "10.0"], ["y", None]]),
        end(10, 21, transaction=0, seen=[None, []]),
        invoke(11, 22, 1, "transact", steps=[["x", None], ["y", "11.1"]]),
        end(11, 25, transaction=1, seen=[["10.0"], None], attempts=2),
        invoke(20, 30, 2, "fence"),
        end(20, 31, transaction=-1, session=1),
        invoke(21, 32, 2, "append", session=1),
        end(21, 33, transaction=0),
        invoke(22, 34, 2, "append", session=1),
        invoke(23, 35, 2, "fence"),
        end(23, 36, transaction=0, session=2, last=21),
        end(22, 37, "fail", error="SessionFencedError"),
        invoke(24, 38, 2, "append", session=2),
        end(24, 39, transaction=1),
        invoke(30, 40, 3, "append"),
        end(30, 41, transaction=0),
        invoke(31, 42, 3, "append"),
        end(31, 43, transaction=1),
        record(0, 0, 1, rows={"k": ["1.0", 100]}),
        record(0, 1, 4, rows={"k": ["4.0", 150]}),
        record(1, 0, 10, lists={"x": ["10.0"]}),
        record(1, 1, 11, lists={"y": ["11.1"]}),
        record(2, 0, 21, session=1),
        record(2, 1, 24, session=2),
        record(3, 0, 30),
        record(3, 1, 31),
        {"type": "effect", "partition": 3, "transaction": 0, "op": 30, "consumer": "client-1.1"},
        {"type": "effect", "partition": 3, "transaction": 1, "op": 31, "consumer": "client-2.2"},
    ]


def written(path: Path, events: Events) -> Path:
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return path


def found(path: Path, events: Events) -> list[str]:
    return violations(collect(read(written(path, events))))


def change(events: Events, place: Callable[[dict[str, Any]], bool], **fields: object) -> None:
    (event,) = (each for each in events if place(each))
    event.update(fields)


def ends(op: int) -> Callable[[dict[str, Any]], bool]:
    return lambda event: event["type"] in ("ok", "fail", "info") and event["op"] == op


def recorded(partition: int, transaction: int) -> Callable[[dict[str, Any]], bool]:
    return lambda event: (
        event["type"] == "record" and (event["partition"], event["transaction"]) == (partition, transaction)
    )


def test_a_good_history_is_possible(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "history", good())
    assert violations(collect(read(path))) == []
    assert report(path) == 0
    told = capsys.readouterr().out
    assert "no violation" in told
    assert "rare states are missing; a long campaign would fail" in told


def stale_read(events: Events) -> None:
    events[-12:-12] = [invoke(6, 50, 0, "read", keys=["k"]), end(6, 51, rows={"k": ["1.0", 100, 0]})]


def invented_row(events: Events) -> None:
    change(events, ends(2), rows={"k": ["9.0", 100, 0]})


def swap_of_another_row(events: Events) -> None:
    change(events, ends(3), conflict=False, transaction=2)


def first_read_of_a_row(events: Events) -> None:
    events[-12:-12] = [invoke(6, 50, 0, "read", keys=["new"]), end(6, 51, rows={"new": ["9.0", 1, 0]})]


def stale_view(events: Events) -> None:
    change(events, ends(43), applied=0, rows={"k": ["1.0", 100, 0]})


def fresh_row_of_a_stale_view(events: Events) -> None:
    change(events, ends(43), rows={"k": ["1.0", 100, 0]})


def view_before_what_was_demanded(events: Events) -> None:
    change(events, ends(42), applied=0, rows={"k": ["1.0", 100, 0]})


def view_of_another_state(events: Events) -> None:
    change(events, ends(41), rows={"k": ["4.0", 150, 1]})


def view_without_a_row(events: Events) -> None:
    change(events, ends(41), rows={})


def view_with_another_timestamp(events: Events) -> None:
    change(events, ends(42), rows={"k": ["4.0", 151, 1]})


def view_ahead_of_the_log(events: Events) -> None:
    change(events, ends(41), applied=2)


def missed_append(events: Events) -> None:
    change(events, ends(11), seen=[[], None])


def read_skew(events: Events) -> None:
    events[-12:-12] = [
        invoke(12, 50, 1, "transact", steps=[["x", None], ["y", None]]),
        end(12, 51, seen=[[], ["11.1"]]),
    ]


def behind_the_fence(events: Events) -> None:
    change(events, recorded(2, 1), session=1)


def intruder(events: Events) -> None:
    change(events, recorded(2, 1), session=1)
    events.append(record(2, 2, 25, session=2))


def other_register(events: Events) -> None:
    change(events, ends(23), last=22)


def early_fence(events: Events) -> None:
    change(events, ends(23), transaction=-1, last=None)


def fence_of_nothing(events: Events) -> None:
    change(events, ends(23), transaction=7)


def same_session(events: Events) -> None:
    change(events, ends(23), session=1)


def older_session_later(events: Events) -> None:
    change(events, ends(20), session=3)


def no_effect(events: Events) -> None:
    events.pop()


def two_effects(events: Events) -> None:
    events.append(events[-1])


def effect_of_nothing(events: Events) -> None:
    events.append({**events[-1], "transaction": 2})


def effects_in_another_order(events: Events) -> None:
    events[-2:] = reversed(events[-2:])


def lost(events: Events) -> None:
    events.remove(next(event for event in events if recorded(3, 1)(event)))
    events.pop()


def elsewhere(events: Events) -> None:
    change(events, ends(30), transaction=1)


def undead(events: Events) -> None:
    change(events, ends(31), type="fail", transaction=None)


def doubled(events: Events) -> None:
    events.append(record(3, 2, 31))


def gap(events: Events) -> None:
    events.append(record(3, 3, 31))


def of_nobody(events: Events) -> None:
    events.append(record(3, 2, 99))


def against_time(events: Events) -> None:
    change(events, ends(30), transaction=1)
    change(events, ends(31), transaction=0)
    change(events, recorded(3, 0), op=31)
    events[[recorded(3, 1)(event) for event in events].index(True)]["op"] = 30


@pytest.mark.parametrize(
    ("corrupt", "text"),
    [
        (stale_read, "registers: key 'k'"),
        (invented_row, "registers: key 'k'"),
        (swap_of_another_row, "registers: key 'k'"),
        (first_read_of_a_row, "registers: key 'new'"),
        (stale_view, "views: read 43 is fresh, and the view has applied 0; transaction 1"),
        (stale_view, "registers: key 'k'"),
        (fresh_row_of_a_stale_view, "registers: key 'k'"),
        (view_before_what_was_demanded, "views: read 42 demands transaction 1, and the view has applied 0"),
        (view_of_another_state, "views: read 41 of transaction 0 has found '4.0' (timestamp 150, transaction 1) at k"),
        (view_without_a_row, "has found no row at k, and the log has '1.0' (timestamp 100, transaction 0) there"),
        (view_with_another_timestamp, "views: read 42 of transaction 1 has found '4.0' (timestamp 151"),
        (view_ahead_of_the_log, "views: read 41 is of transaction 2, which is not in the log"),
        (missed_append, "lists: G2"),
        (read_skew, "lists: G-single"),
        (behind_the_fence, "behind the fence of session 2 at 0"),
        (intruder, "within the exclusive session 2"),
        (other_register, "fences: session 2 has read the write of operation 22"),
        (early_fence, "operation 21 had been acknowledged at 0 before"),
        (fence_of_nothing, "transaction 7, which is not in the log"),
        (same_session, "operations 20 and 23 have both begun session 1"),
        (older_session_later, "fences: session 3 had begun before session 2 was asked for"),
        (no_effect, "nothing was done for"),
        (two_effects, "2 effects of"),
        (effect_of_nothing, "which is not in the log"),
        (effects_in_another_order, "comes after that of transaction 1"),
        (lost, "operation 31 was acknowledged at 1, where the log has nothing"),
        (elsewhere, "operation 30 was acknowledged at 1, where the log has operation 31"),
        (undead, "operation 31 was reported as not appended, and is in the log at 1"),
        (doubled, "operation 31 is in the log at 1 and at 2"),
        (gap, "transaction 3 is where 2 is next"),
        (of_nobody, "operation 99, which nobody has begun"),
        (against_time, "operation 31 is in the log at 0, and had begun after operation 30 was acknowledged at 1"),
    ],
)
def test_it_finds(
    corrupt: Callable[[Events], None], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = good()
    corrupt(events)
    assert any(text in each for each in found(tmp_path / "history", events)), found(tmp_path / "history", events)
    assert report(tmp_path / "history") == 1
    assert "WRONG" in capsys.readouterr().out


def test_of_many_findings_some_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = good() + [record(3, transaction, 100 + transaction) for transaction in range(2, 14)]
    events.append({**good()[-1], "transaction": 99})
    assert report(written(tmp_path / "history", events)) == 1
    told = capsys.readouterr().out
    assert told.count("ledger: partition 3: nothing was done for") == SHOWN
    assert "  ledger: and 3 more\n" in told


def test_rare_states_are_counted_from_the_history(tmp_path: Path) -> None:
    history = collect(read(written(tmp_path / "history", good())))
    assert {name: count for name, count in counts(history).items() if count} == {
        "a partition got another owner while appends were in flight": 1,
        "a fresh read was in flight while the owner changed": 1,
        "a compare-and-set met another row": 1,
        "a transaction was repeated after a conflict": 1,
        "an append of unknown outcome was committed": 1,
        "an append of unknown outcome was not committed": 1,
        "a read found a row of unknown outcome": 1,
        "a fence overtook an append in flight": 1,
        "an append was refused because its session was over": 1,
        "a process was killed with operations in flight": 1,
        "a consumer went on where another one had ended": 1,
        "a consumer was killed between an effect and its commit": 1,
        "replicas were moved under load": 1,
        "a server was drained under load": 1,
        "appends were acknowledged while ZooKeeper was paused": 1,
        "ZooKeeper was paused for longer than sessions last": 1,
        "a view answered with an older state": 1,
        "a fresh read of a view was in flight while the owner changed": 1,
        "a client was killed": 1,
        "a zookeeper was paused": 2,
        "the lines from a server to a storage were cut": 1,
    }
    assert counts(history).keys() == CONDITIONS.keys()


def test_what_is_no_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "history"
    for events, text in (
        ([], "begins with its header"),
        (good()[1:], "begins with its header"),
        ([*good(), good()[0]], "one header"),
        ([good()[0], end(1, 2)], "operation 1 ends, and has not begun"),
        ([good()[0], {"type": "other"}], "line 2 is not one of a history"),
    ):
        with pytest.raises(HistoryError, match=text):
            collect(read(written(path, events)))
    assert report(path) == 1
    assert "there is no history" in capsys.readouterr().out
    with path.open("a") as file:
        file.write("")
    assert report(tmp_path / "absent") == 1


def test_files_are_merged_in_the_order_of_time_and_what_a_kill_has_cut_is_left_out(tmp_path: Path) -> None:
    one = written(tmp_path / "one", [invoke(1, 10, 3, "append"), end(1, 20, transaction=0)])
    two = written(tmp_path / "two", [invoke(2, 20, 3, "append"), end(2, 30, transaction=1), invoke(3, 40, 3, "append")])
    two.write_text(two.read_text()[:-5])
    header = Header(seed=1, registers=0, lists=1, fences=2, ledger=[3])
    merge(header, [one, two], [], tmp_path / "history")
    history = collect(read(tmp_path / "history"))
    assert [(event.type, event.op) for event in history.timed] == [("invoke", 1), ("invoke", 2), ("ok", 1), ("ok", 2)]


@given(
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from(["a", "b", None]), st.integers(0, 2)), max_size=5),
    st.integers(-1, 5),
    st.integers(0, 1),
    st.none() | st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2), st.integers(0, 5)),
)
def test_an_answer_is_right_if_and_only_if_it_is_the_winner_of_the_log(
    written_rows: list[tuple[int, str | None, int]], applied: int, key: int, row: tuple[str, int, int] | None
) -> None:
    records = [
        views.Record(place, {str(each): (value, timestamp_ms)})
        for place, (each, value, timestamp_ms) in enumerate(written_rows)
    ]
    before = [
        (timestamp_ms, place, value)
        for place, (each, value, timestamp_ms) in enumerate(written_rows)
        if each == key and place <= applied
    ]
    timestamp_ms, place, value = max(before, key=lambda each: each[:2], default=(0, 0, None))
    winner = None if value is None else (value, timestamp_ms, place)
    read = views.Read(1, 0, 1, False, -1, applied, [str(key)], {} if row is None else {str(key): views.Row(*row)})
    possible = applied < len(written_rows) and row == winner
    assert (list(views.check([read], [], records)) == []) == possible


@given(st.permutations(range(4)), st.lists(st.integers(0, 3), max_size=2), st.lists(st.integers(0, 3), max_size=2))
def test_effects_are_right_if_and_only_if_they_are_the_log(
    order: list[int], left_out: list[int], again: list[int]
) -> None:
    log = [ledger.Entry(transaction, transaction + 10) for transaction in range(4)]
    effects = [log[each] for each in order if each not in left_out] + [log[each] for each in again]
    assert (list(ledger.check(log, effects)) == []) == (effects == log)


@given(st.permutations(range(4)), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=4, max_size=4))
def test_the_order_of_the_log_is_right_if_and_only_if_no_pair_is_against_time(
    order: list[int], times: list[tuple[int, int]]
) -> None:
    spans = [(min(pair), max(pair)) for pair in times]
    operations = [acknowledgements.Operation(op, *spans[op], "ok", order.index(op)) for op in order]
    records = [acknowledgements.Record(transaction, op) for transaction, op in enumerate(order)]
    against = any(spans[later][1] < spans[earlier][0] for place, earlier in enumerate(order) for later in order[place:])
    assert bool(acknowledgements.check(operations, records)) == against


@given(st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=8), st.lists(st.integers(-1, 7), max_size=3))
def test_a_fence_holds_if_and_only_if_no_older_session_is_behind_it(
    written_in: list[tuple[int, bool]], places: list[int]
) -> None:
    records = [fences.Record(place, place, session) for place, (session, _) in enumerate(written_in)]
    begun = [
        fences.Fence(100 + session, session, session, session, place, place if 0 <= place < len(records) else None)
        for session, place in enumerate(sorted(places), 1)
        if place < len(records)
    ]
    older = any(
        record.session < fence.session
        for fence in begun
        for record in records
        if record.transaction > fence.transaction
    )
    mixed = any(
        record.session != fence.session
        for fence in begun
        for last in records
        if last.session == fence.session
        for record in records
        if fence.transaction < record.transaction < last.transaction
    )
    assert bool(fences.check(begun, [], records)) == (older or mixed)
