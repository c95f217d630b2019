"""Finds out whether another set of replicas can carry a store session, before a session that commits is given up
(L7)."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import NamedTuple

from waltz.common.cluster.quorum import quorum_of
from waltz.common.errors import WaltzError
from waltz.common.net.backoff import Backoff
from waltz.common.tasks import owned
from waltz.server.store.connections import StorageConnections
from waltz.server.store.interface import StoreOptions

logger = logging.getLogger(__name__)

RECONSIDER_INTERVAL_S = 10.0
"""Time limit for the opening of a session with other storages than those of the last session; then the latter are
asked."""


class Answers(NamedTuple):
    """The answers until a quorum had answered, or could not answer any more."""

    enough: bool
    """Whether a quorum has answered."""
    errors: Mapping[str, Exception]
    """The reasons why storages did not answer, by connect string."""

    def describe(self, storages: Collection[str]) -> str:
        """The reason why there is no quorum of ``storages``."""
        if not storages:
            return "no storage is assigned"
        reasons = "; ".join(
            str(error) if storage in str(error) else f"{storage}: {error}"
            for storage, error in sorted(self.errors.items())
        )
        return f"{quorum_of(len(storages))} of {len(storages)} have to answer, but {reasons}"


async def ask(
    connections: StorageConnections, storages: Collection[str], session_id: int, partition_id: int, timeout_s: float
) -> Answers:
    """Find out whether a quorum of storages answers for a partition.

    The question is the request for the last session. It changes nothing at a storage that knows session ``session_id``;
    a storage with a newer session refuses it.
    """
    loop = asyncio.get_running_loop()
    asked = {
        loop.create_task(_ask(connections, storage, session_id, partition_id, timeout_s)): storage
        for storage in sorted(storages)
    }
    pending, missing = set(asked), quorum_of(len(asked))
    errors: dict[str, Exception] = {}
    try:
        while 0 < missing <= len(pending):
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                error = task.result()
                if error is None:
                    missing -= 1
                else:
                    errors[asked[task]] = error
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    return Answers(missing <= 0, errors)


async def _ask(
    connections: StorageConnections, storage: str, session_id: int, partition_id: int, timeout_s: float
) -> Exception | None:
    try:
        async with asyncio.timeout(timeout_s):
            client = await connections.client(storage)
            await client.last_session_info(session_id, partition_id, timeout_s=timeout_s)
    except TimeoutError:
        return WaltzError(f"no answer within {timeout_s:g} s")
    except (WaltzError, OSError) as error:
        return error
    return None


class ReplicaChange:
    """The questions, and their pace, for a partition whose session runs with other storages than the assigned ones."""

    def __init__(self, partition_id: int, connections: StorageConnections, options: StoreOptions) -> None:
        self._partition_id = partition_id
        self._connections = connections
        self._timeout_s = options.rpc_timeout_s
        self._loop = asyncio.get_running_loop()
        self._backoff = Backoff(options.initial_retry_interval_s, options.max_retry_interval_s, options.random_source)
        self._due_s = float("-inf")
        self.objection: str | None = None
        """The reason why the assigned storages have not taken over; ``None`` without an obstacle."""

    def reset(self) -> None:
        """Begin again: other storages were assigned, or the assigned storages have taken over."""
        self._due_s = float("-inf")
        self._backoff.reset()
        self.objection = None

    @property
    def pause_s(self) -> float:
        """The wait until the next question."""
        return max(self._due_s - self._loop.time(), 0)

    async def can_take_over(self, session_id: int, present: frozenset[str], assigned: frozenset[str]) -> Answers:
        """Whether the assigned storages could carry the session after ``session_id``, which runs with ``present``.

        Until the next question is due, the answer is that of the last question.
        """
        if self.objection is not None and self.pause_s:
            return Answers(False, {})
        answers = await self._ask(assigned, session_id)
        if answers.enough:
            self.objection = None
        else:
            self._postpone(session_id, present, assigned, answers)
        return answers

    async def choose(self, session_id: int, listed: frozenset[str], assigned: frozenset[str]) -> frozenset[str]:
        """The storages for a new session: the assigned storages, or those of the last session if only the latter can
        carry it."""
        answers = await self._ask(assigned, session_id)
        if answers.enough or not (await self._ask(listed, session_id)).enough:
            return assigned
        self._postpone(session_id, listed, assigned, answers)
        return listed

    @contextlib.asynccontextmanager
    async def reconsidered(
        self, session_id: int, listed: frozenset[str], assigned: frozenset[str], give_up: Callable[[str], None]
    ) -> AsyncIterator[None]:
        """While a session with the assigned storages opens, ask again whether only the storages of the last session can
        carry it.

        That may happen if storages die after their answers. ``give_up`` is called with the reason, once.
        """

        async def reconsider() -> None:
            while True:
                await asyncio.sleep(RECONSIDER_INTERVAL_S)
                if await self.choose(session_id, listed, assigned) != assigned:
                    give_up("the storages of the last session can go on, and no quorum of the assigned ones answers")
                    return

        if not listed or listed == assigned:
            yield
            return
        task = owned(reconsider(), "the question whether another replica set can open a session")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _ask(self, storages: frozenset[str], session_id: int) -> Answers:
        return await ask(self._connections, storages, session_id, self._partition_id, self._timeout_s)

    def _postpone(self, session_id: int, present: frozenset[str], assigned: frozenset[str], answers: Answers) -> None:
        self._due_s = self._loop.time() + self._backoff.next_delay_s()
        objection = f"the partition stays with {_names(present)}, not {_names(assigned)}: {answers.describe(assigned)}"
        if objection != self.objection:
            logger.warning("partition %d, session %d: %s", self._partition_id, session_id, objection)
        self.objection = objection


def _names(storages: Collection[str]) -> str:
    return ", ".join(sorted(storages)) or "none"
