"""Tables of a report."""

from benchmarks.cluster.report import LEAN, OTHER, WALTZ, Report, Result
from benchmarks.cluster.scenarios import FEED, Scenario, readers
from benchmarks.cluster.summary import P50, RATE, Metrics
from benchmarks.cluster.tables import markdown, tables

ROUND: Metrics = {RATE: 50, P50: 2, "batches_per_s": 10, "transactions_per_batch": 5, "cpu_us.server": 3, "lag": 1}


def report(*results: Result, contestants: tuple[str, ...] = (WALTZ, LEAN)) -> Report:
    return Report({}, {}, dict.fromkeys(contestants, ""), list(results))


def test_a_table_has_text_first_and_numbers_after_it() -> None:
    assert markdown(["", "n"], [["a", "1"]]) == "|  | n |\n| --- | ---: |\n| a | 1 |"


def test_appends_show_median_best_round_share_and_highest_lag() -> None:
    rounds = [ROUND, ROUND | {RATE: 60, "lag": 7}, ROUND | {RATE: 40}]
    found = tables(report(Result(Scenario(), {WALTZ: rounds, LEAN: [{RATE: 100, P50: 1}] * 3})))
    assert list(found) == ["Appends", "Cost of a batch"]
    cells = found["Appends"].splitlines()[2].split(" | ")
    assert cells[1:9] == ["50.0 (60.0)", "100", "50 %", "-", "2.00 (2.00)", "-", "-", "2.00"]
    assert cells[10] == "3.00 (3.00)"
    assert cells[12] == "7.00"
    assert found["Cost of a batch"].splitlines()[2].split(" | ")[1:3] == ["10.0", "5.00"]
    assert "15.0" in found["Cost of a batch"]


def test_several_partitions_are_held_against_one_with_as_many_in_flight() -> None:
    results = [Result(Scenario(), {WALTZ: [{RATE: 80}]}), Result(Scenario(partitions=9), {WALTZ: [{RATE: 60}]})]
    results.append(Result(Scenario(partitions=9, in_flight=2), {WALTZ: [{RATE: 60}]}))
    results.append(Result(Scenario(partitions=9, journal=True), {WALTZ: [{RATE: 120}]}))
    lines = tables(report(*results))["Appends"].splitlines()[2:]
    assert [line.split(" | ")[4] for line in lines] == ["-", "75 %", "-", "150 %"]


def test_reading_stands_in_its_own_table() -> None:
    found = tables(report(Result(Scenario(face=FEED, log_length=9), {WALTZ: [{RATE: 500}]})))
    assert list(found) == ["Readers"]
    assert "| 500 | - | - | - |" in found["Readers"]


def test_curves_stand_in_their_own_table() -> None:
    results = [Result(each, {WALTZ: [{P50: each.readers}]}) for each in readers()]
    line = tables(report(*results))["Curves"].splitlines()[2]
    assert line == "| p50_ms over readers at the tip | 1 | 200 | 1.00 | 200 | 200.00 | **no** |"


def test_system_calls_are_listed_the_most_frequent_first() -> None:
    counted = {"calls_per_batch.server": 5.0, "call_per_batch.server.read": 1.0, "call_per_batch.server.write": 4.0}
    found = tables(report(Result(Scenario(), {WALTZ: [ROUND | counted | {"call_per_batch.server.brk": 0.01}]})))
    assert "| 5.00 | write 4.00, read 1.00 |" in found["System calls per batch"]


def test_another_checkout_has_tables_of_its_own() -> None:
    found = tables(report(Result(Scenario(), {WALTZ: [ROUND], OTHER: [ROUND]}), contestants=(WALTZ, OTHER)))
    assert {"Appends (waltz)", "Appends (other)"} < set(found)
