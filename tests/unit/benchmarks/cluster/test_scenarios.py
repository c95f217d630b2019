"""The scenarios of the benchmark, and their names."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.cluster import scenarios
from benchmarks.cluster.scenarios import AWAIT, CALLBACKS, FEED, THREE_LOCKS, Scenario, Shape, by_shape, product

COUNTS = st.integers(0, 3)
SCENARIOS = st.builds(
    Scenario,
    face=st.sampled_from([CALLBACKS, AWAIT]),
    in_flight=st.just(256),
    size_bytes=st.sampled_from([128, 4096]),
    partitions=st.integers(1, 3),
    write_locks=st.integers(1, 3),
    read_locks=COUNTS,
    tls=st.booleans(),
    readers=COUNTS,
    behind=COUNTS,
    idle_partitions=COUNTS,
    idle_clients=COUNTS,
    log_length=COUNTS,
    journal=st.booleans(),
)


def everything() -> list[Scenario]:
    return [scenario for make in scenarios.sets().values() for scenario in make()]


@given(st.lists(SCENARIOS, unique=True))
def test_no_two_scenarios_have_the_same_label(those: list[Scenario]) -> None:
    assert len({each.label for each in those}) == len(those)


def test_labels_of_all_sets_differ() -> None:
    those = set(everything())
    assert len({each.label for each in those}) == len(those)


def test_label_names_only_what_is_special() -> None:
    assert Scenario().label == "plain, callbacks, 256 in flight, 128 B"
    assert Scenario(face=FEED, log_length=1000).label == "plain, feed, 128 B, log of 1,000"
    special = Scenario(AWAIT, 0, 5000, 4096, 64, 2, 1, tls=True)
    assert special.label == "TLS, await, 5,000/s, 4,096 B, 2 write + 1 read locks, 64 partitions"


def test_product_has_every_combination_once() -> None:
    those = product(
        in_flight=[1, 16], rates=[1000], sizes_bytes=[128, 4096], locks=[(1, 0), THREE_LOCKS], transports=[False, True]
    )
    assert len(those) == len(set(those)) == 3 * 2 * 2 * 2
    assert {(each.in_flight, each.rate) for each in those} == {(1, 0), (16, 0), (0, 1000)}


@pytest.mark.parametrize("scenario", everything(), ids=lambda each: each.label)
def test_every_scenario_of_a_set_can_be_measured(scenario: Scenario) -> None:
    assert scenario.reads or bool(scenario.in_flight) != bool(scenario.rate), "one loop, closed or open"
    assert not scenario.idle_clients or scenario.idle_partitions, "idle clients need a partition that is idle"
    assert not (scenario.reads or scenario.behind) or scenario.log_length, "there must be something to read"


def test_the_log_grows_from_nothing_to_the_length_that_is_asked_for() -> None:
    lengths = [each.log_length for each in scenarios.log_lengths(20_000_000)]
    assert lengths[0] == 1
    assert lengths[-1] == 20_000_000
    assert all(before < after for before, after in itertools.pairwise(lengths))


def test_scenarios_that_share_a_cluster_stand_together_each_once_with_longer_logs_later() -> None:
    longer, plain, tls = Scenario(log_length=5), Scenario(), Scenario(tls=True)
    assert by_shape([longer, tls, plain, longer]) == {Shape(True, 1): [tls], Shape(False, 1): [plain, longer]}


def test_idle_partitions_and_a_journal_count_for_the_shape() -> None:
    assert Scenario(partitions=2, idle_partitions=3).shape == Shape(False, 5)
    assert Scenario(journal=True).shape == Shape(False, 1, True)


@pytest.mark.parametrize(
    "scenario",
    [Scenario(readers=1), Scenario(behind=1), Scenario(idle_partitions=1), Scenario(log_length=1), Scenario(face=FEED)],
)
def test_the_lean_pipeline_does_not_do_what_it_cannot(scenario: Scenario) -> None:
    assert not scenario.fits_lean
    assert Scenario(tls=True, partitions=64, rate=5).fits_lean
