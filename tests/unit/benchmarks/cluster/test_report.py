"""Results as JSON."""

import pytest

from benchmarks.cluster.report import LEAN, WALTZ, Report, ReportError, Result, from_json, to_json, with_rounds
from benchmarks.cluster.scenarios import Scenario
from benchmarks.cluster.summary import RATE, SHARE


def report(results: list[Result]) -> Report:
    return Report({"cpu": "2 x fast"}, {"rounds": 2, "seconds": 1.5}, {WALTZ: "here"}, results)


def test_what_was_written_is_read() -> None:
    written = report([Result(Scenario(tls=True, rate=5), {WALTZ: [{RATE: 1.5}, {RATE: 2}], LEAN: []})])
    assert from_json(to_json(written)) == written


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 0}', '{"format": 1, "results": [{}]}', '{"format": 1}'])
def test_other_files_are_refused(text: str) -> None:
    with pytest.raises(ReportError):
        from_json(text)


def test_shares_pair_the_rounds() -> None:
    result = Result(Scenario(), {WALTZ: [{RATE: 10}, {RATE: 30}], LEAN: [{RATE: 100}, {RATE: 100}]})
    assert result.of(WALTZ)[SHARE][:3] == pytest.approx((0.2, 0.1, 0.3))
    assert SHARE not in result.of(LEAN)
    assert result.of("nobody") == {}


def test_there_are_no_shares_without_the_lean_pipeline() -> None:
    assert SHARE not in Result(Scenario(), {WALTZ: [{RATE: 10}]}).of(WALTZ)


def test_rounds_of_another_start_come_behind() -> None:
    once = with_rounds(None, Scenario(), {WALTZ: [{RATE: 1}], LEAN: [{RATE: 2}]})
    twice = with_rounds(once, Scenario(), {WALTZ: [{RATE: 3}], LEAN: [{RATE: 4}]})
    assert twice == Result(Scenario(), {WALTZ: [{RATE: 1}, {RATE: 3}], LEAN: [{RATE: 2}, {RATE: 4}]})
