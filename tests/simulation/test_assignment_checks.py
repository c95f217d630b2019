"""A generation of a partition has one owner, and generations never go back."""

import pytest

from tests.memory_zookeeper import MemoryZooKeeperServer
from tests.simulation.assignment_checks import AssignmentChecks
from waltz.common.zk.znodes import PartitionAssignment, PartitionGeneration


def assignment(**servers: tuple[int, int]) -> PartitionAssignment:
    """Partition and generation of each server, by its name."""
    return PartitionAssignment(0, 2, {int(name[1:]): (PartitionGeneration(*owned),) for name, owned in servers.items()})


@pytest.mark.parametrize(
    ("second", "failure"),
    [
        (assignment(s1=(0, 3), s2=(1, 5)), None),
        (assignment(s2=(0, 4), s1=(1, 6)), None),
        (assignment(s2=(0, 3)), "generation 3 of partition 0 is assigned to server 2; it was to server 1"),
        (assignment(s1=(0, 2)), "partition 0 is assigned with generation 2; it was with 3"),
    ],
)
async def test_an_assignment_beside_the_one_before(second: PartitionAssignment, failure: str | None) -> None:
    failures: list[str] = []
    server = MemoryZooKeeperServer()
    client = await server.connect()
    await client.create("/assignment", b"", make_path=True)
    await client.create("/other", b"")
    with AssignmentChecks(failures.append).observing(server, "/assignment"):
        await client.set("/assignment", assignment(s1=(0, 3), s2=(1, 5)).encode())
        await client.set("/other", b"no assignment")
        await client.set("/assignment", second.encode())
    await client.close()
    assert failures == ([] if failure is None else [failure])
