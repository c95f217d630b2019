"""What a failure shows: the seed, the trace, the faults that matter, and commands that show it again."""

import shlex

import pytest

from tests.simulation.options import CONDITIONS, draw_options, format_settings, parse_settings
from tests.simulation.processes import SimulationServer


def command(output: str, name: str) -> list[str]:
    """The arguments of a command that a report gives."""
    line = next(line for line in output.splitlines() if line.startswith(f"{name}: "))
    words = shlex.split(line.removeprefix(f"{name}: "))
    assert words[:3] == ["python", "-m", "tests.simulation"]
    return words[3:]


def failure(output: str) -> list[str]:
    """Line of the seed (without the CPU time) and first failure."""
    lines = output.splitlines()
    number = next(number for number, line in enumerate(lines) if line.startswith("seed "))
    events = lines[number].rpartition(", ")[2]
    return [events, lines[number + 1]]


def test_a_failure_can_be_seen_again(simulations: SimulationServer) -> None:
    conditions = ("--faults", "kill-server,cut", "--set", "clients=2", "--set", "transactions=300")
    failed = simulations.simulate("--plant", "locks-not-raised", "--start", "3", "--seeds", "2", *conditions)
    assert failed.exit_code == 1
    assert "seed 3 " in failed.output
    assert "seed 4 " not in failed.output
    assert "it still fails with 0 of " in failed.output
    assert "  client-1 " in failed.output  # the trace

    again = simulations.simulate(*command(failed.output, "again"))
    assert again.exit_code == 1
    assert failure(again.output) == failure(failed.output)

    fewer = simulations.simulate(*command(failed.output, "with these faults only"))
    assert fewer.exit_code == 1
    assert " 0 faults," in fewer.output


def test_what_is_wrong_with_the_command_line(simulations: SimulationServer) -> None:
    assert simulations.simulate("--set", "no_such_option=1").exit_code == 2
    assert simulations.simulate("--faults", "no-such-fault").exit_code == 2
    assert simulations.simulate("--mutant", "no-such-bug").exit_code == 2


@pytest.mark.parametrize("name", CONDITIONS)
def test_conditions_are_options_and_can_be_written_down(name: str) -> None:
    conditions = parse_settings([name])
    assert conditions == CONDITIONS[name]
    assert parse_settings(format_settings(conditions)) == conditions
    options = draw_options(0)
    assert all(hasattr(options, option) for option in conditions)
