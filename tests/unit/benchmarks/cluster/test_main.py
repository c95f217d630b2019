"""The command line."""

from pathlib import Path

import pytest

from benchmarks.cluster import scenarios
from benchmarks.cluster.__main__ import chosen, compared, parser
from benchmarks.cluster.report import WALTZ, Report, Result
from benchmarks.cluster.scenarios import AWAIT, Scenario
from benchmarks.cluster.summary import RATE


def scenarios_of(*arguments: str) -> list[Scenario]:
    return chosen(parser().parse_args(arguments))


def test_without_arguments_it_is_the_quick_set() -> None:
    assert scenarios_of() == scenarios.quick()


def test_sets_come_one_after_the_other() -> None:
    assert scenarios_of("readers", "idle-clients") == scenarios.readers() + scenarios.idle_clients()


def test_every_combination_of_what_is_given() -> None:
    found = scenarios_of("--in-flight", "1", "16", "--transport", "plain", "tls", "--locks", "2+1", "--face", AWAIT)
    assert found == [Scenario(AWAIT, n, write_locks=2, read_locks=1, tls=tls) for tls in (False, True) for n in (1, 16)]


def test_storages_may_keep_a_journal() -> None:
    found = scenarios_of("--partitions", "64", "--journal", "off", "on")
    assert found == [Scenario(partitions=64), Scenario(partitions=64, journal=True)]


def test_combinations_may_stand_beside_a_set() -> None:
    assert scenarios_of("readers", "--size", "1000") == [*scenarios.readers(), Scenario(size_bytes=1000)]


def test_the_longest_log_can_be_chosen() -> None:
    assert scenarios_of("log-length", "--log-length", "77")[-1].log_length == 77


def test_a_directory_without_waltz_is_no_checkout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["--tree", str(tmp_path)])
    assert "is no checkout of Waltz" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["quik"], ["--transport", "udp"], ["--locks", "many"], ["--journal", "yes"]])
def test_what_there_is_not_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(arguments)


def test_a_comparison_names_what_only_one_has() -> None:
    before = Report({}, {}, {}, [Result(each, {WALTZ: [{RATE: 1}]}) for each in (Scenario(), Scenario(tls=True))])
    after = Report({}, {}, {}, [Result(Scenario(), {WALTZ: [{RATE: 2}]})])
    text = compared(before, after, WALTZ, WALTZ)
    assert "+100.0 %" in text
    assert f"only in one of them: {Scenario(tls=True).label}" in text
