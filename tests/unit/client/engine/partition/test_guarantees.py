"""Committed appends that wait until all storages have them, without a server."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.client.engine.partition.guarantees import Guarantees
from waltz.client.errors import NotGuaranteedError
from waltz.common.consistency import Consistency
from waltz.common.ids import ReqId
from waltz.common.wire.consistency import AppendAck, PartitionConsistency

MOUNT, OTHER_MOUNT = ReqId.of(1, 1, 0, 1), ReqId.of(1, 1, 0, 2)


class Setup:
    """Remembers what is asked and told."""

    def __init__(self) -> None:
        self.answers = True
        self.asked: list[int] = []
        self.told: list[int] = []
        self.errors: list[NotGuaranteedError] = []
        self.guarantees = Guarantees(0, self._ask)

    def _ask(self, transaction_id: int) -> bool:
        if self.answers:
            self.asked.append(transaction_id)
        return self.answers

    def wait(self, *transaction_ids: int) -> None:
        for transaction_id in transaction_ids:
            self.guarantees.wait(transaction_id, lambda error, found=transaction_id: self._tell(found, error))  # type: ignore[misc]  # mypy cannot infer the type of a default

    def _tell(self, transaction_id: int, error: NotGuaranteedError | None) -> None:
        if error is None:
            self.told.append(transaction_id)
        else:
            self.errors.append(error)

    def acknowledge(self, transaction_id: int) -> None:
        self.guarantees.acknowledged(AppendAck(MOUNT, transaction_id, 3))


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_one_question_stands_for_all_that_are_committed_in_a_turn() -> None:
    setup = Setup()
    setup.wait(1, 4, 5)
    assert setup.asked == []
    await turn()
    assert setup.asked == [5]
    setup.acknowledge(3)
    assert setup.told == [1]
    setup.wait(6)
    await turn()
    assert setup.asked == [5, 6]
    setup.acknowledge(9)
    assert setup.told == [1, 4, 5, 6]
    assert setup.guarantees.waiting_count == 0


async def test_what_is_known_already_is_told_later_and_not_asked() -> None:
    setup = Setup()
    setup.acknowledge(5)
    setup.wait(5)
    assert setup.told == []
    await turn()
    assert (setup.told, setup.asked) == ([5], [])


async def test_the_next_owner_is_asked_again_for_what_still_waits() -> None:
    setup = Setup()
    setup.wait(1, 2)
    await turn()
    setup.acknowledge(1)
    setup.answers = False
    setup.guarantees.mounted(OTHER_MOUNT)
    await turn()
    setup.answers = True
    setup.guarantees.mounted(MOUNT)
    await turn()
    assert setup.asked == [2, 2]
    setup.wait(1)  # what another server has said counts no more
    assert setup.told == [1]
    setup.acknowledge(2)
    assert sorted(setup.told) == [1, 1, 2]


async def test_what_is_given_up_is_forgotten() -> None:
    setup = Setup()
    setup.wait(1, 2)
    setup.guarantees.forget(1)
    setup.guarantees.forget(7)
    await turn()
    setup.acknowledge(2)
    assert setup.told == [2]


async def test_the_end_tells_everybody_and_asks_no_more() -> None:
    setup = Setup()
    setup.wait(3, 4)
    setup.guarantees.end("the client was closed")
    await turn()
    assert setup.asked == []
    assert [error.transaction_id for error in setup.errors] == [3, 4]
    assert str(setup.errors[0]).startswith("the client was closed: transaction 3 of partition 0 is committed, ")
    setup.acknowledge(4)
    assert setup.told == []


@pytest.mark.parametrize(
    ("demanded", "level"),
    [
        (Consistency.LEADER_ALL, Consistency.LEADER_ALL),
        (Consistency.QUORUM, Consistency.QUORUM),
        (Consistency.NONE, Consistency.LEADER_QUORUM),
    ],
)
async def test_the_level_of_those_that_name_none(demanded: Consistency, level: Consistency) -> None:
    guarantees = Setup().guarantees
    guarantees.property_told(PartitionConsistency(MOUNT, demanded))
    guarantees.mounted(MOUNT)
    assert guarantees.default is level, "told before the answer to this mount"
    guarantees.mounted(OTHER_MOUNT)
    assert guarantees.default is Consistency.LEADER_QUORUM, "the next owner has told nothing"


@given(
    st.lists(st.tuples(st.sampled_from(["wait", "ack", "forget", "mount", "turn"]), st.integers(0, 12)), max_size=40)
)
def test_each_is_told_once_and_not_too_early(steps: list[tuple[str, int]]) -> None:
    async def play() -> None:
        setup = Setup()
        waiting: set[int] = set()
        expected: list[int] = []
        mark = -1
        next_id = 0
        for step, value in steps:
            if step == "wait":
                setup.wait(next_id)
                (expected.append if next_id <= mark else waiting.add)(next_id)
                next_id += 1
            elif step == "ack":
                mark = max(mark, value)
                reached = {found for found in waiting if found <= mark}
                expected.extend(sorted(reached))
                waiting -= reached
                setup.acknowledge(value)
            elif step == "forget":
                waiting.discard(value)
                setup.guarantees.forget(value)
            elif step == "mount":
                mark = -1
                setup.guarantees.mounted(MOUNT)
            else:
                await turn()
                assert not waiting or setup.asked[-1] >= max(waiting)
            assert setup.guarantees.waiting_count == len(waiting)
        await turn()
        assert sorted(setup.told) == sorted(expected)

    asyncio.run(play())
