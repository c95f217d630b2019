"""Mutation check of the simulator: planted bugs are found. All of them: ``make simulate-mutants``."""

from collections.abc import Sequence

import pytest

from tests.simulation.mutants import MUTANTS
from tests.simulation.options import SimulationOptions, format_settings
from tests.simulation.processes import SimulationServer
from tests.simulation.schedule import ALL_FAULTS

RULES = (
    "S1",
    "S2",
    "S3",
    "S4",
    "S5",
    "S6",
    "S7",
    "S8",
    "S9",
    "S10",
    "L1",
    "L2",
    "L3",
    "L4",
    "L5",
    "L6",
    "L7",
    "H1",
    "H2",
    "H3",
    "H4",
    "W",
    "A",
)

OF_EVERY_RULE = tuple(next(name for name in MUTANTS if name.startswith(f"{rule}-")) for rule in RULES)


def course(name: str) -> tuple[tuple[str, ...], list[str], int]:
    """By which planted bugs that are found in the same course of events stand together: it has to pass without them."""
    mutant = MUTANTS[name]
    return mutant.fault_kinds, format_settings(mutant.conditions), mutant.found_by


PARTS = 24
OTHERS = sorted((name for name in MUTANTS if name not in OF_EVERY_RULE), key=course)
OTHERS_IN_PARTS = [OTHERS[len(OTHERS) * part // PARTS : len(OTHERS) * (part + 1) // PARTS] for part in range(PARTS)]


def test_every_rule_has_a_planted_bug() -> None:
    for rule in RULES:
        assert any(name.startswith(f"{rule}-") for name in MUTANTS), rule


@pytest.mark.parametrize("name", MUTANTS)
def test_what_is_stated_of_a_planted_bug(name: str) -> None:
    mutant = MUTANTS[name]
    assert 0 <= mutant.found_by < mutant.seeds
    assert set(mutant.fault_kinds) <= set(ALL_FAULTS)
    SimulationOptions(**mutant.conditions)


def test_planted_bugs_are_listed(simulations: SimulationServer) -> None:
    exit_code, output = simulations.simulate("--list-mutants")
    assert exit_code == 0
    assert [line.split(":")[0] for line in output.splitlines()] == list(MUTANTS)
    mutant = MUTANTS["skip-truncate"]
    assert f"skip-truncate: {mutant.description}; found by seed {mutant.found_by}, " in output


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("names", [OF_EVERY_RULE[::2], OF_EVERY_RULE[1::2]], ids=["one half", "other half"])
def test_a_planted_bug_of_every_rule_is_found(simulations: SimulationServer, names: tuple[str, ...]) -> None:
    """By the seed that is known to find it."""
    found(simulations, names, "--only-planted")


@pytest.mark.deep
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", OF_EVERY_RULE)
def test_what_finds_a_bug_of_every_rule_finds_nothing_without_it(simulations: SimulationServer, name: str) -> None:
    fault_kinds, settings, seed = course(name)
    arguments = [word for setting in settings for word in ("--set", setting)]
    if fault_kinds:
        arguments += ["--faults", ",".join(fault_kinds)]
    exit_code, output = simulations.simulate("--start", str(seed), "--seeds", "1", *arguments)
    assert exit_code == 0, output
    assert output.count(" ok ") == 1


@pytest.mark.deep
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("names", OTHERS_IN_PARTS, ids=range(PARTS))
def test_all_other_planted_bugs_are_found(simulations: SimulationServer, names: list[str]) -> None:
    found(simulations, names)


def found(simulations: SimulationServer, names: Sequence[str], *arguments: str) -> None:
    """Plant each bug, and expect it to be found."""
    exit_code, output = simulations.simulate("--known", "--jobs", "1", "--mutant", ",".join(names), *arguments)
    assert exit_code == 0, output
    assert output.count(" found by seed ") == output.count("\n") == len(names)
