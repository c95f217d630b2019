"""Bugs to plant in what is said of the end of the log, and in the end of a ZooKeeper session."""

from collections.abc import Callable, Coroutine
from typing import Any

from tests.memory_zookeeper import MemoryZooKeeper
from waltz.client.engine.reads.marks import MarkQuestions
from waltz.server.partition.partition import ServerPartition
from waltz.server.partition.sequencer import Sequencer, Verdict
from waltz.server.requests.pending import Awaits, Pending
from waltz.server.store.session.session import StoreSession

Confirm = Callable[[StoreSession, float], Coroutine[Any, Any, bool]]

_confirm: Confirm = StoreSession.confirm
_confirmed_mark = ServerPartition._confirmed_mark

_LATELY_S = 1.0


async def confirmed_lately(session: StoreSession, timeout_s: float) -> bool:
    """What a quorum has answered a moment ago confirms the mark of a question that comes now."""
    if session.ended is None and session._loop.time() - session._confirmed_s < _LATELY_S:
        return True
    return await _confirm(session, timeout_s)


async def confirmed_by_nobody(partition: ServerPartition) -> int | None:
    """An owner takes its own word for the end of the log."""
    return partition._sequencer.high_water_mark


async def confirmed_by_a_lease(partition: ServerPartition) -> int | None:
    """An owner takes its ZooKeeper session for a lease: while that lasts by the owner's clock, nobody else is one."""
    if partition.in_doubt:
        return await _confirmed_mark(partition)
    return partition._sequencer.high_water_mark


def answers_of_older_questions(questions: MarkQuestions) -> None:
    """A call takes the answer to the question of a call that was given up before."""
    questions._asked, questions._wanted = questions._wanted, []
    questions._send()


def marks_without_session(sequencer: Sequencer, pending: Pending) -> Verdict | None:
    """A mark that was known once is told."""
    if sequencer.high_water_mark is not None:
        pending.end()
        return Verdict.READY
    pending.awaits = Awaits.SESSION
    sequencer._questions[pending] = None
    return None


def ahead_without_proof(sequencer: Sequencer, pending: Pending) -> Verdict | None:
    """An owner takes its own word for the end of the log."""
    pending.end()
    return Verdict.AHEAD


def lost_when_connected_again(zookeeper: MemoryZooKeeper) -> None:
    """Without a word of the ensemble a session goes on."""
