"""Costs from counts."""

import pytest

from benchmarks.cluster.summary import RATE
from benchmarks.cluster.window import Edge, Progress, Usage, batch_costs, call_costs, costs, roles


def test_costs_are_per_transaction_and_of_several_processes_of_a_kind_the_mean() -> None:
    before = Edge(10, {"client": Usage(1, 100, 20), "storage-1": Usage(2, 0, 30), "storage-2": Usage(0, 50, 30)})
    after = Edge(12, {"client": Usage(2, 300, 25), "storage-1": Usage(4, 20, 30), "storage-2": Usage(4, 70, 40)})
    assert costs(before, after, 1000) == {
        RATE: 500,
        "cpu_us.client": pytest.approx(1000),
        "cpu_percent.client": 50,
        "switches_per_s.client": 100,
        "resident_mib.client": 25,
        "growth_mib.client": 5,
        "cpu_us.storage": pytest.approx(3000),
        "cpu_percent.storage": 150,
        "switches_per_s.storage": 10,
        "resident_mib.storage": 35,
        "growth_mib.storage": 5,
    }


def test_of_no_transactions_there_are_no_costs_of_one() -> None:
    edge = Edge(1, {"client": Usage(1, 1, 1)})
    assert "cpu_us.client" not in costs(edge, edge._replace(at_s=2), 0)


def test_batches_are_related_by_rates() -> None:
    metrics = batch_costs(
        Progress(0, 0, ()), Progress(4, 400, ()), {RATE: 1000, "switches_per_s.server": 250, "lag": 1}
    )
    assert metrics == {"batches_per_s": 100, "transactions_per_batch": 10, "switches_per_batch.server": 2.5}


def test_without_batches_nothing_is_per_batch() -> None:
    progress = Progress(0, 7, ())
    assert batch_costs(progress, progress._replace(at_s=1), {RATE: 0}) == {}
    assert call_costs(progress, progress, {"server-1": {"read": 5}}) == {}


def test_system_calls_per_batch_by_name_and_together() -> None:
    counts = {"server-1": {"read": 20}, "storage-1": {"write": 10}, "storage-2": {"write": 20, "fdatasync": 10}}
    assert call_costs(Progress(0, 5, ()), Progress(1, 15, ()), counts) == {
        "calls_per_batch.server": 2,
        "call_per_batch.server.read": 2,
        "calls_per_batch.storage": 2,
        "call_per_batch.storage.fdatasync": 0.5,
        "call_per_batch.storage.write": 1.5,
    }


def test_roles_are_names_without_their_number() -> None:
    assert roles(["client", "storage-1", "storage-2"]) == {"client": ["client"], "storage": ["storage-1", "storage-2"]}
