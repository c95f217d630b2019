"""The number of a partition's next session, taken on demand or while the present session continues."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import NamedTuple, TypeVar

from waltz.common.errors import WaltzError
from waltz.common.zk.znodes import PartitionMetadata
from waltz.server.store.interface import SessionEndedError, SupersededError
from waltz.server.store.metadata_node import MetadataNode
from waltz.server.store.session.continuity import Continuity
from waltz.server.store.session.session import StoreSession

logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")


class Begun(NamedTuple):
    """The metadata with the number of a session that is not open yet, and their version."""

    metadata: PartitionMetadata
    version: int

    @property
    def listed(self) -> frozenset[str]:
        """Connect strings of the storages in the metadata: those of the last session."""
        return frozenset(replica_id.connect_string for replica_id in self.metadata.replicas)


class NextSession:
    """Takes session numbers, and keeps a number that was taken ahead until it is used.

    Storages do not know a session before its recovery, so a taken number disturbs nothing. If the present session ended
    before a number is taken, appends would have to wait as long as ZooKeeper does not answer.
    """

    def __init__(self, node: MetadataNode, wake: asyncio.Event, timeout_s: float) -> None:
        """``wake`` is set whenever the present session may have to end in any case."""
        self._node = node
        self._wake = wake
        self._timeout_s = timeout_s
        self._ahead: Begun | None = None
        self.continuity = Continuity()

    async def begin(self, generation: int) -> Begun:
        """Take a number. Raises :class:`SupersededError` when a newer generation has taken a number,
        ``ZooKeeperError``, and ``ProtocolError`` when the metadata cannot be decoded."""
        begun = Begun(*await self._node.begin_session(generation))
        self.continuity.session_taken(begun.metadata.session_id, generation)
        return begun

    async def take(self, generation: int) -> Begun:
        """The number that was taken ahead for an owner of this generation, or a new number. Raises like
        :meth:`begin`."""
        begun, self._ahead = self._ahead, None
        if begun is None or begun.metadata.generation != generation:
            return await self.begin(generation)
        return begun

    async def take_ahead(self, session: StoreSession, superfluous: Callable[[], bool]) -> bool:
        """Take the number of the session after ``session``. Returns false if that has to be tried again.

        ``superfluous`` returns whether the session has to end in any case; then the call does not wait for ZooKeeper. A
        session that another owner has superseded ends.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                self._ahead = await unless(superfluous, self._wake, self.begin(session.generation))
        except SupersededError as error:
            session.end(error)
        except SessionEndedError:
            return False
        except (WaltzError, OSError) as error:
            logger.warning(
                "partition %d: session %d goes on, its renewal is postponed: %s",
                session.partition_id,
                session.session_id,
                str(error) or "ZooKeeper does not answer",
            )
            return False
        return True


async def unless(
    superfluous: Callable[[], bool], wake: asyncio.Event, work: Coroutine[object, object, ResultT]
) -> ResultT:
    """The result of ``work``. The work is cancelled when it has become superfluous.

    Args:
        superfluous: Checked whenever ``wake`` is set.
        wake: Stays set if the work is cancelled; otherwise it is cleared.
        work: The work.

    Raises:
        SessionEndedError: The work was superfluous.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    woken = loop.create_task(wake.wait())
    try:
        while not task.done():
            await asyncio.wait((task, woken), return_when=asyncio.FIRST_COMPLETED)
            if not woken.done():
                continue
            if superfluous():
                break
            wake.clear()
            woken = loop.create_task(wake.wait())
        if not task.done():
            raise SessionEndedError("the session has ended")
        return task.result()
    finally:
        task.cancel()
        woken.cancel()
        await asyncio.gather(task, woken, return_exceptions=True)
