"""Mutation check of the simulator: planted bugs are found. All of them: ``make simulate-mutants``."""

from pathlib import Path

import pytest

from tests.simulation.mutants import MUTANTS
from tests.simulation.options import SimulationOptions
from tests.simulation.processes import simulate
from tests.simulation.schedule import ALL_FAULTS

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "simulation.md"

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
    "L1",
    "L2",
    "L3",
    "L4",
    "L5",
    "L6",
    "H1",
    "H2",
    "H3",
    "H4",
    "W",
)

IN_EVERY_RUN = (
    "ack-before-sync",
    "skip-truncate",
    "stale-session-accepted",
    "feed-gap-on-reconnect",
    "ready-of-an-older-generation",
    "request-id-twice",
    *(next(name for name in MUTANTS if name.startswith(f"{rule}-")) for rule in RULES),
)
"""One for every rule, and what would be worst; each by the seed that is known to find it, so that it takes a minute."""


def test_every_rule_has_a_planted_bug() -> None:
    for rule in RULES:
        assert any(name.startswith(f"{rule}-") for name in MUTANTS), rule


@pytest.mark.parametrize("name", MUTANTS)
def test_what_is_stated_of_a_planted_bug(name: str) -> None:
    mutant = MUTANTS[name]
    assert 0 <= mutant.found_by < mutant.seeds
    assert set(mutant.fault_kinds) <= set(ALL_FAULTS)
    SimulationOptions(**mutant.conditions)


@pytest.mark.parametrize("name", MUTANTS)
def test_the_documentation_says_the_same(name: str) -> None:
    mutant = MUTANTS[name]
    row = f"| `{name}` | {mutant.description} | {mutant.found_by} | {mutant.seeds} |"
    assert row in DOCUMENTATION.read_text(encoding="utf-8").splitlines()


@pytest.mark.timeout(600)
def test_planted_bugs_are_found() -> None:
    names = dict.fromkeys(IN_EVERY_RUN)
    exit_code, output = simulate("--known", "--mutant", ",".join(names))
    assert exit_code == 0, output
    assert output.count(" found by seed ") == output.count("\n") == len(names)
