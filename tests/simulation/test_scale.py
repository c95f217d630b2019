"""What a cluster uses grows with its size, and not with the square of it: counted, in simulated time.

Two clusters that differ in one dimension, or in all of them, are compared; the counts are the same in every run.
"""

import math

import pytest

from tests.simulation.meter import Phase
from tests.simulation.scale import SESSION_TIMEOUT_S, Scale
from tests.simulation.scale_report import Report, Size

pytestmark = pytest.mark.deep

SMALL = Size(partitions=24, servers=4, storages=6, clients=8)
MORE_PARTITIONS = SMALL._replace(partitions=72)
LARGE = Size(partitions=72, servers=12, storages=18, clients=24)

SERVER_NODE = "serverDescriptors/s_#"
METADATA = "store/partition/#"
MEMBERSHIP = "serverDescriptors"


@pytest.fixture(scope="module")
def reports() -> dict[Size, Report]:
    return {size: Scale(size).run() for size in (SMALL, MORE_PARTITIONS, LARGE)}


@pytest.fixture(params=[SMALL, MORE_PARTITIONS, LARGE], ids=["small", "more partitions", "large"])
def report(request: pytest.FixtureRequest, reports: dict[Size, Report]) -> Report:
    return reports[request.param]


def operations(phase: Phase, kind: str, path: str) -> int:
    return sum(count for (host, _, node), count in phase.operations.items() if (host, node) == (kind, path))


def test_everything_comes_about_in_time(report: Report) -> None:
    assert not report.failures
    limits_s = {
        "every partition has an owner": 1.0,
        "every client has mounted every partition": 1.0,
        "appends": 0.5,
        "every partition has an owner after the death of a server": SESSION_TIMEOUT_S + 1.0,
        "every client has mounted every partition after the death of a server": 1.0,
        "an append to each partition with two replicas of three": 0.5,
        "every server has noticed the death of a third of the storages": 6.0,
        "all replicas are current": 3.0,
    }
    assert report.converged_s.keys() == limits_s.keys()
    assert {what: s for what, s in report.converged_s.items() if s > limits_s[what]} == {}


def test_connections_and_watches_are_those_of_processes_not_of_partitions(report: Report) -> None:
    size = report.size
    assert report.connections["client-server"] == size.clients * size.servers
    assert report.connections["server-storage"] <= size.servers * size.storages
    assert report.watches == {"client": size.clients * (size.servers + 2), "server": size.servers * (size.servers + 3)}


def test_an_idle_cluster_does_not_use_zookeeper(report: Report) -> None:
    assert not report.phases["idle"].operations


def test_idle_partitions_do_nothing(reports: dict[Size, Report]) -> None:
    few, many = reports[SMALL].phases["idle"], reports[MORE_PARTITIONS].phases["idle"]
    for kind in ("client", "server", "storage"):
        assert many.callbacks[kind] <= few.callbacks[kind] * 1.05
    assert many.deliveries.total() <= few.deliveries.total() * 1.05


def test_a_start_reads_each_server_once_and_draws_ids_without_a_crowd(report: Report) -> None:
    size, servers, clients = report.size, report.phases["servers start"], report.phases["clients start"]
    assert operations(clients, "client", SERVER_NODE) == size.clients * size.servers
    assert operations(clients, "client", MEMBERSHIP) == 2 * size.clients
    assert operations(clients, "client", "ids/client") <= 2 * size.clients * (1 + math.log2(size.clients))
    assert operations(servers, "server", METADATA) <= 12 * size.partitions
    # Each writes an assignment at most once, as the coordinator, and reads all nodes again before.
    assert operations(servers, "server", SERVER_NODE) <= 3 * size.servers**2


def test_the_death_of_a_server_costs_each_process_the_same(report: Report) -> None:
    size, phase = report.size, report.phases["a server dies"]
    assert operations(phase, "client", SERVER_NODE) == 0
    assert operations(phase, "client", MEMBERSHIP) <= 6 * size.clients
    assert operations(phase, "server", SERVER_NODE) <= 2 * size.servers
    assert operations(phase, "server", MEMBERSHIP) <= 6 * size.servers
    moved = math.ceil(size.partitions / size.servers)
    assert operations(phase, "server", METADATA) <= 7 * moved
    assert phase.operations_of("storage") == 0


def test_the_death_of_storages_costs_nothing_and_their_return_one_write_per_partition(report: Report) -> None:
    assert not report.phases["a third of the storages dies"].operations
    phase, size = report.phases["the storages come back"], report.size
    assert phase.operations_of("server") <= 2 * size.partitions
    assert phase.operations_of("client") == 0


def test_a_run_is_the_same_every_time(reports: dict[Size, Report]) -> None:
    again = Scale(SMALL).run()
    for name, phase in again.phases.items():
        assert phase.operations == reports[SMALL].phases[name].operations, name
    assert again.digest == reports[SMALL].digest


def test_the_report_names_every_phase_and_every_count(reports: dict[Size, Report]) -> None:
    report = reports[SMALL]
    text = str(report)
    assert text.startswith("24 partitions, 4 servers, 6 storages, 8 clients; digest ")
    assert all(name in text for name in (*report.phases, *report.converged_s))
    assert "client-server 32" in text
    assert f"a server dies: {6 * 5} set of store/partition/# by servers" in text
