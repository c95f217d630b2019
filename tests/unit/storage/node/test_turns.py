"""Turns: changes of many partitions become durable together, and each partition is answered for itself."""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from tests.unit.storage.crash_files import CrashFiles
from tests.unit.storage.node.journal_support import (
    DIRECTORY,
    PARTITIONS,
    Client,
    Held,
    new_files,
    open_manager,
    stored,
)
from tests.unit.storage.node.test_partition import SUCCESS
from tests.unit.storage.node_support import record
from waltz.common.wire import storage as wire
from waltz.storage.disk.log.log import Prepared
from waltz.storage.node import checkpoints
from waltz.storage.node.journal_state import JournalState
from waltz.storage.node.partition import Sleeper
from waltz.storage.node.request_queue import DEFAULT_LIMITS

T = TypeVar("T")

pytestmark = [pytest.mark.virtual_time, pytest.mark.usefixtures("frequent_checkpoints")]


async def test_appends_of_a_turn_wake_no_tasks_of_partitions(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, client = held
    await client.outcome(client.append(0, -1, [record(0)]))
    slept: list[Sleeper] = []
    sleep = Sleeper.sleep

    def noting(sleeper: Sleeper) -> Awaitable[None]:
        slept.append(sleeper)
        return sleep(sleeper)

    monkeypatch.setattr(Sleeper, "sleep", noting)
    sent = [client.append(each, -1, [record(each == 0)]) for each in range(PARTITIONS)]
    assert [await client.outcome(each) for each in sent] == [SUCCESS] * PARTITIONS
    assert len(slept) == 1, "the first one does not know that others follow"


async def test_what_comes_during_a_turn_keeps_its_place(held: Held) -> None:
    files, manager, client = held
    files.free.clear()
    sent = [client.append(each, -1, [record(0)]) for each in range(PARTITIONS)]
    await files.until_waiting()
    sent += [client.append(each, -1, [record(1)]) for each in range(PARTITIONS)]
    sent += [client.append(1, -1, [record(2)]), client.send(1, wire.TruncateRequest, -1, 1, False)]
    sent += [client.append(1, -1, [record(2, b"after the truncation")])]
    await files.stay_waiting()
    assert not client.asker.answers
    files.free.set()
    assert [await client.outcome(each) for each in sent] == [SUCCESS] * (2 * PARTITIONS + 1) + [1, SUCCESS]
    assert list(client.asker.answers)[:PARTITIONS] == [2, 3, 4, 1], "all of a turn together"
    assert stored(manager, 1) == [record(0), record(1), record(2, b"after the truncation")]


async def test_what_is_no_append_waits_for_the_turn(held: Held) -> None:
    files, _, client = held
    files.free.clear()
    sent = [client.append(each, -1, [record(number)]) for number in range(2) for each in range(PARTITIONS)]
    await files.until_waiting()
    sent.append(client.send(1, wire.MaxTransactionIdRequest, -1, False))
    await files.stay_waiting()
    assert not client.asker.answers
    files.free.set()
    assert [await client.outcome(each) for each in sent] == [SUCCESS] * 2 * PARTITIONS + [1]


async def test_a_partition_that_fails_in_a_turn_costs_the_others_nothing(held: Held) -> None:
    _, manager, client = held

    def fail(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "planted")

    manager.partitions[1].log._descriptors.current_files = fail  # type: ignore[assignment, method-assign]
    sent = [client.append(each, -1, [record(0)]) for each in range(PARTITIONS)]
    assert [await client.outcome(each) == SUCCESS for each in sent] == [True, False, True, True]
    sent = [client.append(each, -1, [record(1)]) for each in range(PARTITIONS)]
    assert [await client.outcome(each) == SUCCESS for each in sent] == [True, False, True, True]
    assert list(manager.out_of_service()) == [1]


async def test_a_newer_session_fences_what_is_in_a_turn(held: Held) -> None:
    files, _, client = held
    files.free.clear()
    sent = [client.append(each, -1, [record(0)]) for each in range(PARTITIONS)]
    await files.until_waiting()
    client.send(2, wire.LastSessionInfoRequest, 7, False)
    files.free.set()
    answers = [await client.outcome(each) for each in sent]
    assert [answer == SUCCESS for answer in answers] == [True, True, False, True]
    assert "ConcurrentUpdateException" in str(answers[2])


async def test_a_partition_closes_after_the_turn_and_answers_what_waits(held: Held) -> None:
    files, manager, client = held
    files.free.clear()
    sent = [client.append(each, -1, [record(0)]) for each in range(PARTITIONS)]
    await files.until_waiting()
    late = client.append(1, -1, [record(1)])
    closing = asyncio.create_task(manager.partitions[1].close())
    await files.stay_waiting()
    assert not client.asker.answers
    files.free.set()
    await closing
    assert [await client.outcome(each) for each in sent] == [SUCCESS] * PARTITIONS
    assert "is not assigned" in str(await client.outcome(late))


async def test_a_partition_that_closes_before_the_turn_begins_is_left_out(held: Held) -> None:
    _, manager, client = held
    sent = [client.append(each, -1, [record(0)]) for each in range(PARTITIONS)]
    await manager.partitions[1].close()
    answers = [await client.outcome(each) for each in sent]
    assert [answer == SUCCESS for answer in answers] == [True, False, True, True]
    assert "is not assigned" in str(answers[1])


async def test_during_a_turn_no_more_than_the_queue_has_room_for_is_taken(held: Held) -> None:
    files, _, client = held
    files.free.clear()
    sent = [client.append(each, -1, [record(0)]) for each in range(PARTITIONS)]
    await files.until_waiting()
    room = DEFAULT_LIMITS.max_requests
    more = [client.append(1, -1, [record(transaction_id)]) for transaction_id in range(1, room + 2)]
    assert list(client.asker.answers) == more[-1:]
    assert "too many requests" in str(await client.outcome(more[-1]))
    files.free.set()
    assert [await client.outcome(each) for each in [*sent, *more[:-1]]] == [SUCCESS] * (PARTITIONS + room)


@pytest.mark.parametrize("held", [300], indirect=True)
async def test_appends_that_begin_another_segment_leave_the_turn(held: Held) -> None:
    files, manager, client = held
    for first in range(0, 30, 6):
        files.free.clear()
        sent = [client.append(each, -1, [record(first + number)]) for number in range(3) for each in range(PARTITIONS)]
        await files.until_waiting()
        sent += [client.append(each, -1, [record(first + 3 + number)]) for number in range(3) for each in range(2)]
        files.free.set()
        sent += [client.append(each, -1, [record(first + 3 + number)]) for number in range(3) for each in range(2, 4)]
        assert [await client.outcome(each) for each in sent] == [SUCCESS] * 6 * PARTITIONS
    for each in range(PARTITIONS):
        assert stored(manager, each) == [record(transaction_id) for transaction_id in range(30)]


async def test_a_defect_of_one_partition_in_a_turn_is_its_own(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    _, manager, client = held
    monkeypatch.setattr(manager.partitions[1].log, "publish", _defect)
    sent = [client.append(each, -1, [record(0)]) for each in range(PARTITIONS)]
    assert [await client.outcome(sent[each]) for each in (0, 2, 3)] == [SUCCESS] * 3
    assert list(manager.out_of_service()) == [1]
    sent = [client.append(each, -1, [record(1)]) for each in range(PARTITIONS)]
    assert [await client.outcome(each) == SUCCESS for each in sent] == [True, False, True, True]


def _defect(_prepared: Prepared) -> None:
    raise RuntimeError("planted")


async def test_a_defect_in_a_turn_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    files = new_files()
    manager = await open_manager(files)
    await manager.assign(range(PARTITIONS))
    client = Client(manager)

    def defect(self: object, partition_id: int, entries: object, number: int) -> None:
        raise AssertionError("planted")

    monkeypatch.setattr(JournalState, "note", defect)
    sent = [client.append(partition_id, -1, [record(0)]) for partition_id in range(PARTITIONS)]
    async with asyncio.timeout(10):
        answers = [await client.outcome(each) for each in sent]
    assert all("have been disabled" in str(answer) for answer in answers)
    assert "planted" in manager.out_of_service()[PARTITIONS - 1]
    await manager.close()
    monkeypatch.undo()
    files.restart()
    again = await open_manager(files)  # durable, although nobody was told
    assert [stored(again, partition_id) for partition_id in range(PARTITIONS)] == [[record(0)]] * PARTITIONS
    await again.close()


class SlowFiles(CrashFiles):
    """Files of which no call ends before it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.gate: asyncio.Event | None = None

    async def run(self, function: Callable[[], T]) -> T:
        if self.gate is not None:
            await self.gate.wait()
        return function()


async def test_a_disk_that_hangs_makes_the_journal_stalled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "IDLE_S", 60.0)
    files = SlowFiles()
    files.make_directory(DIRECTORY)
    manager = await open_manager(files)
    await manager.assign(range(PARTITIONS))
    client = Client(manager)
    journaled = manager._disks.first.journaled
    assert journaled is not None
    sent = [client.append(each, -1, [record(0)]) for each in range(PARTITIONS)]
    assert [await client.outcome(each) for each in sent] == [SUCCESS] * PARTITIONS
    files.gate = asyncio.Event()
    sent = [client.append(each, -1, [record(1)]) for each in range(PARTITIONS)]
    while "turn" not in journaled.state._calls_begun_s:
        await asyncio.sleep(0)
    assert manager.health().problems() == {}
    await asyncio.sleep(25)
    assert manager.health().disk == "the journal is stalled: a write or sync has not ended for 25 s"
    files.gate.set()
    assert [await client.outcome(each) for each in sent] == [SUCCESS] * PARTITIONS
    assert manager.health().problems() == {}
    files.gate = asyncio.Event()
    checkpoint = asyncio.create_task(journaled._checkpoints.checkpoint())
    while not journaled.state.syncing_s:
        await asyncio.sleep(0)
    await asyncio.sleep(25)
    (syncing,) = journaled.state.syncing_s
    assert manager.findings.stalled() == {syncing: "a read or write has not ended for 25 s"}
    files.gate.set()
    await checkpoint
    assert manager.health().problems() == {}
    await manager.close()


async def test_a_defect_when_a_turn_ends_leaves_nobody_waiting(held: Held) -> None:
    _, manager, client = held
    ended = manager.partitions[1].ended

    def defect(prepared: Prepared | None, error: Exception | None) -> None:
        ended(prepared, error)
        raise RuntimeError("planted")

    manager.partitions[1].ended = defect  # type: ignore[method-assign]
    sent = [client.append(each, -1, [record(0)]) for each in range(PARTITIONS)]
    async with asyncio.timeout(10):
        answers = [await client.outcome(each) for each in sent]
    assert answers[1] == SUCCESS
    assert all("have been disabled" in str(answers[each]) for each in (0, 2, 3))
