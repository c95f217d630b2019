"""Appends that are acknowledged below the quorum, in all faces that have them, over the mock driver."""

import asyncio

import pytest

import waltz
from tests.unit.client.application import QUICK, Callbacks
from waltz.client.mock import MockDriver, MockServerPartition

pytestmark = pytest.mark.timeout(120)


class Clicked(waltz.TransactionContext):
    """A transaction that one disk is enough for."""

    consistency = "leader"

    def __init__(self) -> None:
        self.acknowledged = asyncio.Event()
        self.completed: list[bool] = []
        self.outcome: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def partition_id(self, partition_count: int) -> int:
        return 0

    def execute(self, builder: waltz.TransactionBuilder) -> bool:
        builder.set_transaction_data(b"clicked", waltz.BytesSerializer())
        return True

    def on_acknowledgement(self, transaction_id: int) -> None:
        self.acknowledged.set()

    def on_completion(self, committed: bool) -> None:
        self.completed.append(committed)
        self.outcome.set_result(0)

    def on_exception(self, error: Exception) -> None:
        self.outcome.set_exception(error)


EARLY = ("leader", "leader_plus_one", "write_one_read_all", "none")


@pytest.fixture
def early() -> MockServerPartition:
    """A partition that demands nothing, of which a single storage takes appends."""
    (partition,) = MockServerPartition.create(1)
    partition.consistency = "none"
    partition.hold_commits()
    return partition


@pytest.mark.parametrize("level", EARLY)
async def test_an_acknowledgement_comes_before_the_commit(early: MockServerPartition, level: str) -> None:
    async with waltz.connect(MockDriver([early]), options=QUICK) as client:
        first, second = [await client.append(0, data, consistency=level) for data in (b"x", b"y")]
        assert isinstance(first, waltz.Acknowledgement)
        assert isinstance(second, waltz.Acknowledgement)
        assert (first, second, first.partition_id, first.is_committed) == (0, 1, 0, False)
        with pytest.raises(waltz.DeadlineExceededError, match="transaction 1 of partition 0 is acknowledged"):
            await second.committed(timeout_s=0.01)
        assert early.transactions == []
        early.release_commits()
        assert [await first.committed(), await second.committed()] == [0, 1]
        assert first.is_committed
        assert [record.data for record in early.transactions] == [b"x", b"y"]


async def test_what_was_acknowledged_and_is_lost_is_not_sent_again(early: MockServerPartition) -> None:
    async with waltz.connect(MockDriver([early]), options=QUICK) as client:
        acknowledged = await client.append(0, b"x", consistency="leader")
        unheard = asyncio.create_task(client.append(0, b"of a quorum"))
        early.lose_uncommitted()
        with pytest.raises(waltz.AckRetracted, match="acknowledged as transaction 0 .* is not in the log") as lost:
            await acknowledged.committed()
        assert (lost.value.partition_id, lost.value.transaction_id, lost.value.outcome_known) == (0, 0, True)
        assert not acknowledged.is_committed
        assert await unheard == 0, "what was not acknowledged is sent again"
        assert await client.append(0, b"later", consistency="leader") == 1
    assert [record.data for record in early.transactions] == [b"of a quorum", b"later"]


async def test_fewer_storages_than_the_level_asks_for_are_no_acknowledgement(
    early: MockServerPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waltz.client.mock.connection.storages_before_commit", lambda level: 1)
    async with waltz.connect(MockDriver([early]), options=QUICK) as client:
        appending = asyncio.create_task(client.append(0, b"x", consistency="leader_plus_one", timeout_s=60))
        later = asyncio.create_task(client.append(0, b"y", consistency="leader", timeout_s=60))
        assert await later == 1, "acknowledged after the first one was answered"
        assert not appending.done()
        early.lose_uncommitted()
        assert await appending == 0, "what was not acknowledged is sent again"
    assert [record.data for record in early.transactions] == [b"x"]


async def test_a_commit_may_come_first(early: MockServerPartition) -> None:
    early.release_commits()
    async with waltz.connect(MockDriver([early]), options=QUICK) as client:
        acknowledgement = await client.append(0, b"x", consistency="leader")
        assert acknowledgement.is_committed
        assert await acknowledgement.committed() == acknowledgement == 0


async def test_a_client_that_is_closed_does_not_know_the_end(early: MockServerPartition) -> None:
    async with waltz.connect(MockDriver([early]), options=QUICK) as client:
        acknowledgement = await client.append(0, b"x", consistency="leader")
    with pytest.raises(waltz.OutcomeUnknownError, match="may be committed"):
        await acknowledgement.committed()


def append_early(partition: MockServerPartition) -> None:
    with waltz.blocking.connect(MockDriver([partition]), options=QUICK) as client:
        first = client.append(0, b"x", consistency="leader")
        assert (first, first.partition_id, first.is_committed, repr(first)) == (
            *(0, 0, False),
            "<Acknowledgement: transaction 0 of partition 0>",
        )
        partition.release_commits()
        assert first.committed() == 0
        partition.hold_commits()
        second = client.append(0, b"y", consistency="leader")
        partition.lose_uncommitted()
        with pytest.raises(waltz.AckRetracted):
            second.committed()


async def test_threads_have_acknowledgements_too(early: MockServerPartition) -> None:
    await asyncio.to_thread(append_early, early)


async def test_a_context_is_told_of_an_acknowledgement_and_of_its_end(early: MockServerPartition) -> None:
    client = await MockDriver([early]).open_client(Callbacks(), options=QUICK)
    kept, lost = Clicked(), Clicked()
    await client.submit(kept)
    await kept.acknowledged.wait()
    assert kept.completed == []
    early.release_commits()
    assert await kept.outcome == 0
    early.hold_commits()
    await client.submit(lost)
    await lost.acknowledged.wait()
    early.lose_uncommitted()
    with pytest.raises(waltz.AckRetracted, match="transaction 1"):
        await lost.outcome
    assert (kept.completed, lost.completed) == ([True], [])
    assert len(early.transactions) == 1
    await client.close()
