"""Whole simulations: no seed may fail. A failure shows the seed, the faults that matter, and how to see it again."""

from collections.abc import Iterable

import pytest
from _pytest.mark import ParameterSet

from tests.simulation.options import CONDITIONS
from tests.simulation.processes import SimulationServer, simulate_side_by_side


def deep(*values: int | str) -> ParameterSet:
    """Values that only the deep tests have."""
    return pytest.param(*values, marks=pytest.mark.deep)


LONG = {
    *("large-transactions", "plain-client", "few-alive", "partial-mounts", "wandering", "long-lines"),
    *("forgetful-storages", "mark-questions", "lagging-followers", "small-windows"),
    *("rot-during-repair", "roll-back-disk", "exchange-disks,strand-minority", "recover-partition,strand-minority"),
}
"""Conditions and courses of which one seed takes seven seconds or more: for the deep tests only."""


def one_seed_first(names: Iterable[str]) -> list[ParameterSet]:
    """Each of ``names`` with its first seed, which is for every day, and with two more."""
    return [
        *(deep(name, 0, 1) if name in LONG else pytest.param(name, 0, 1) for name in names),
        *(deep(name, 1, 2) for name in names),
    ]


COURSES = (
    "bit-rot",
    "rot-during-repair",
    "crash-between-calls,strand-minority",
    "roll-back-disk",
    "roll-back-disk-within-session",
    "exchange-disks,strand-minority",
    "two-coordinators,prefer-partitions",
    "failing-call,hung-disk,full-disk",
    "recover-partition,strand-minority",
)

WITHOUT_JOURNAL = ("--set", "journal_share=0.0", "--set", "archivers=0")
"""As these seeds ran when they failed."""

WHOLE_MOUNTS = ("--set", "max_feed_count=2048")
"""What these seeds had when they failed."""

REGRESSIONS = (
    (142, (), "sectors of an unsynced group that persisted out of order were taken for damage: replica out of service"),
    (268, WHOLE_MOUNTS, "the same, after a power loss between write and sync"),
    (269, WHOLE_MOUNTS, "the same, on two replicas at once: partition out of service"),
    (764, (), "a deposed owner told a client that it was ahead of the log, and the client took that as final"),
    (5004, (), "a deposed owner answered a mount of a newer generation: a client took its own commits for failed"),
    (15351, (), "a replica whose log ended within a batch made the server that it joined again spin for ever"),
    (13024, (), "a lost sector that held the first zeros of an intact record was taken for damage"),
    (60147, (), "index entries of a log that was cut below its mark were trusted although no sync had followed"),
    (
        20085,
        WHOLE_MOUNTS,
        "an attempt whose coroutine was closed with its loop told its application that it had failed",
    ),
    (
        129,
        ("--faults", "power-off-storage,power-off-all-storages,crash-while-writing"),
        "a write during which the power failed was applied as a whole after it: a disk that cannot be",
    ),
    (
        2,
        ("--faults", "failing-call,hung-disk,full-disk", "--set", "fault_count=10", "--only-faults", "1,3"),
        "a flush overtook an append that had waited before it: its client repeated it, and it was in the log twice",
    ),
    (
        8,
        ("--faults", "bit-rot,power-off-storage", "--set", "fault_count=14"),
        "a repair said that all was well of a partition that could not be opened for another reason",
    ),
    (
        15,
        ("--faults", "strand-minority,crash-while-writing,kill-server,storm"),
        "an administrative request to a server that was not managed yet was logged as a defect",
    ),
    (
        0,
        ("--set", "recover-partition", "--set", "fault_count=6"),
        "a storage that an operator had filled before any session reached it was never taken in",
    ),
    (
        104611,
        ("--set", "write-sessions"),
        "a renewed session was called not supported when the partition was mounted again at that moment",
    ),
    (
        116648,
        ("--set", "write-sessions"),
        "a connection to a storage was looked at for ever within one instant, by a deadline a rounding error away",
    ),
    (
        200817,
        (),
        "a replica was refused for the rest of an interrupted write where its log had been cut below its mark before",
    ),
    (
        300003,
        (),
        "an append that a server sent right after it had stood still made all later answers of that storage late",
    ),
    (200116, (), "too little time for an application far away that loses every race for a lock"),
    (551077, (), "too little time for an application far away that reads what it applies"),
    (550850, (), "an engine of a feed outlived the client that was closed while it joined the cluster"),
    (
        556441,
        (),
        "an operator's change that was made when the operator was interrupted: the simulator did not know of it",
    ),
    (
        3,
        (
            *("--set", "tables", "--set", "zookeeper_lag_s=3.0", "--set", "fault_count=16"),
            *("--set", "fault_kinds=('isolate-side','isolate-side','depose','boomerang')"),
        ),
        "the view of a table that was opened while nobody owned its partition stopped for good",
    ),
    (
        16,
        (
            *("--faults", "boomerang", "--set", "mark_interval_s=0.05", "--set", "servers=2", "--set", "partitions=3"),
            *("--set", "session_timeout_s=3.0", "--set", "network_delay_factor=1.0", "--set", "slow_lines=0.0"),
            *("--set", "zookeeper_delay_factor=1.0", "--set", "zookeeper_lag_s=0.0", "--set", "fault_count=12"),
        ),
        "an owner that heard of its opening after the next session had committed was taken for one that begins below",
    ),
    (
        22,
        ("--faults", "stop-in-order", "--set", "wire_clients=2", "--set", "session_share=0.7"),
        "the simulator's own wire client was asked to end and went on with its conversation: a connection left behind",
    ),
    (
        11,
        ("--set", "isolated-sides", "--set", "fault_count=20", "--set", "journal_share=0.0"),
        "a question for a confirmed mark took the late answer to a question that was given up before",
    ),
    (
        0,
        (
            *("--set", "moves", "--set", "fault_kinds=('take-back-at-once',)"),
            *("--set", "fault_count=10", "--set", "zookeeper_lag_s=3.0"),
        ),
        "the files of a replica were deleted while a server that had heard late opened a session that counted it",
    ),
)
"""Seeds that once found a defect, and which. Their courses have changed with the code; they still cost little."""


def seeds(simulations: SimulationServer, *arguments: str, start: int = 0, count: int) -> None:
    """Run consecutive seeds, none of which may fail."""
    exit_code, output = simulations.simulate("--start", str(start), "--seeds", str(count), "--jobs", "1", *arguments)
    assert exit_code == 0, output
    assert output.count(" ok ") == count


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("start", "count"), [(0, 3), deep(3, 9), *(deep(start, 11) for start in range(12, 56, 11))])
def test_no_seed_fails(simulations: SimulationServer, start: int, count: int) -> None:
    seeds(simulations, start=start, count=count)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("conditions", "start", "count"), one_seed_first(CONDITIONS))
def test_no_seed_fails_under_special_conditions(
    simulations: SimulationServer, conditions: str, start: int, count: int
) -> None:
    seeds(simulations, "--set", conditions, start=start, count=count)


@pytest.mark.deep
@pytest.mark.timeout(300)
@pytest.mark.parametrize("conditions", ["consumers", "tables"])
def test_no_seed_fails_with_consumers_or_tables(simulations: SimulationServer, conditions: str) -> None:
    seeds(simulations, "--set", conditions, start=3, count=7)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("kinds", "start", "count"), one_seed_first(COURSES))
def test_no_seed_fails_in_courses_that_seeds_do_not_draw(
    simulations: SimulationServer, kinds: str, start: int, count: int
) -> None:
    seeds(simulations, "--faults", kinds, "--set", "fault_count=10", start=start, count=count)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("start", "count"), [(24, 3), deep(3, 21), deep(27, 38), deep(65, 35)])
def test_no_seed_fails_with_many_write_sessions(simulations: SimulationServer, start: int, count: int) -> None:
    """An exclusive session that begins when nobody waits for it is a matter of a few ms; seed 24 has one."""
    seeds(simulations, "--set", "write-sessions", start=start, count=count)


@pytest.mark.deep
@pytest.mark.parametrize(("seed", "arguments", "found"), REGRESSIONS)
def test_seeds_that_once_failed(
    simulations: SimulationServer, seed: int, arguments: tuple[str, ...], found: str
) -> None:
    exit_code, output = simulations.simulate("--start", str(seed), "--seeds", "1", *WITHOUT_JOURNAL, *arguments)
    assert exit_code == 0, f"{found}\n{output}"


@pytest.mark.deep
def test_one_seed_is_one_course_of_events(simulations: SimulationServer) -> None:
    def digest(output: str) -> str:
        return next(line for line in output.splitlines() if line.startswith("seed 7 ")).rpartition("digest ")[2]

    one, two = ("--start", "7", "--seeds", "1"), ("--start", "6", "--seeds", "2", "--jobs")
    alone, after_another, apart = simulate_side_by_side([one, (*two, "0"), (*two, "1")])
    served = simulations.simulate(*one)
    assert digest(alone.output) == digest(after_another.output) == digest(apart.output) == digest(served.output)
