"""Rounds over the replicas of many partitions."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from tests.unit.client.fake_server import until
from waltz.common.replica_states import ReplicaStatus
from waltz.server.process import replica_rounds
from waltz.server.process.replica_rounds import ReplicaRounds
from waltz.server.store.replica.replica_view import ReplicaView


class Partition:
    """Notes that it is looked at."""

    status = ReplicaStatus.CURRENT

    def __init__(self, partition_id: int, turns: list[list[int]]) -> None:
        self._partition_id = partition_id
        self._turns = turns
        self.asked: list[bool] = []
        self.told = 0

    def confirm_if_idle(self, *, unasked: bool) -> None:
        self.asked.append(unasked)

    def tell_time(self, time_ms: int) -> None:
        self.told = time_ms

    @property
    def replica_views(self) -> Sequence[ReplicaView]:
        self._turns[-1].append(self._partition_id)
        return (ReplicaView("s1:6000", self.status, 5),)


class NotedRounds(ReplicaRounds):
    """Notes the turns of the loop in which something is looked at."""

    def __init__(self, partitions: Mapping[int, Partition], turns: list[list[int]]) -> None:
        super().__init__(lambda: partitions, lambda: 1234)
        self._turns = turns

    def start(self) -> None:
        self._turns.append([])
        super().start()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_rounds, "ROUND_S", 0.01)
    monkeypatch.setattr(replica_rounds, "LOOKED_AT_TOGETHER", 2)


async def test_a_few_partitions_are_looked_at_in_each_turn() -> None:
    turns: list[list[int]] = []
    partitions = {each: Partition(each, turns) for each in range(3)}
    rounds = NotedRounds(partitions, turns)
    rounds.start()
    await until(lambda: len(turns) > 3)
    del partitions[1]
    partitions[7] = Partition(7, turns)
    seen = len(turns)
    await until(lambda: len(turns) > seen + 4)
    rounds.close()
    assert turns[:3] == [[0, 1], [2], [0, 1]]
    assert turns[seen + 2 : seen + 4] in ([[0, 2], [7]], [[7], [0, 2]])
    seen = len(turns)
    await asyncio.sleep(0.03)
    assert len(turns) == seen, "nothing is looked at any more"
    rounds.close()


async def test_in_every_second_round_another_partition_is_asked_though_nobody_has_looked() -> None:
    turns: list[list[int]] = []
    partitions = {each: Partition(each, turns) for each in range(3)}
    rounds = NotedRounds(partitions, turns)
    rounds.start()
    await until(lambda: len(turns) == 2 * 12)
    rounds.close()
    unasked = [[partition.asked[each] for partition in partitions.values()] for each in range(12)]
    assert [sum(each) for each in unasked] == [1, 0] * 6
    assert [sum(partition.asked) for partition in partitions.values()] == [2, 2, 2], "each in its turn"


async def test_what_has_lasted_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    turns: list[list[int]] = []
    partitions: dict[int, Partition] = {}
    rounds = NotedRounds(partitions, turns)
    rounds.start()
    partitions[3] = Partition(3, turns)
    partitions[3].status = ReplicaStatus.AWAY
    await until(lambda: "partition 3: replica s1:6000 is away" in caplog.text)
    (record,) = caplog.records
    assert (record.levelname, record.partition, record.storage) == ("WARNING", 3, "s1:6000")  # type: ignore[attr-defined] # extra fields
    partitions[3].status = ReplicaStatus.CURRENT
    await until(lambda: "partition 3: replica s1:6000 is current, 5 transactions behind (was away)" in caplog.text)
    rounds.close()
