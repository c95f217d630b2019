"""Write sessions for the faces of a client."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from waltz.client.arguments import check_integer
from waltz.client.engine.partition.partition import StreamPartition
from waltz.client.engine.partition.partition_session import PartitionSession
from waltz.client.engine.reads.last_transaction import Answer
from waltz.client.engine.settings import SessionSettings
from waltz.client.engine.tasks import TaskOwner
from waltz.client.errors import InvalidOperationError, SessionFencedError, SessionNotSupportedError
from waltz.common.errors import WaltzError
from waltz.common.wire.write_sessions import LastTransactionStatus

logger = logging.getLogger(__name__)

_END_TIMEOUT_S = 10.0


class ExclusiveSession(NamedTuple):
    """A session in which no other client may write to the partition.

    Examples:
        ```python
        async with waltz.connect(cluster, session_write=True) as client:
            async with client.exclusive(0) as session:
                print("session", session.number, "begins behind transaction", session.transaction_id)
                await client.append(0, b"nobody else can write")
        ```
    """

    partition_id: int
    number: int
    """The number that every append carries. It is larger than the numbers of all earlier sessions."""
    transaction_id: int
    """The last transaction before the session; -1 if there is none. No append of an older session, or without a
    session, is ever behind it."""


class WriteSessions:
    """The write sessions of one client. The time limit of requests to a server is ``client.sessionTimeout``."""

    def __init__(
        self,
        settings: SessionSettings,
        find_partition: Callable[[int], StreamPartition],
        high_water_mark: Callable[[int], Awaitable[int]],
        tasks: TaskOwner,
    ) -> None:
        """``find_partition`` raises ``ClientClosedError`` and ``PartitionNotFoundError``."""
        self._settings = settings
        self._find_partition = find_partition
        self._high_water_mark = high_water_mark
        self._tasks = tasks
        self._exclusive: set[int] = set()

    def number(self, partition_id: int) -> int | None:
        """The number of the session of the appends; ``None`` while no appends are sent, or without sessions."""
        check_integer(partition_id, "partition_id")
        return self._find_partition(partition_id).session.number

    async def last_transaction_id(self, partition_id: int, *, fence: bool, if_session: int | None) -> int:
        """The id of the last transaction after all earlier appends; with ``fence``, after all appends of older
        sessions.

        Raises ``SessionFencedError``, ``SessionNotSupportedError``, ``DeadlineExceededError``,
        ``InvalidOperationError`` while an exclusive session of this client is open, ``PartitionInactiveError``,
        ``ClientAheadError`` and ``ClientClosedError``.
        """
        check_integer(partition_id, "partition_id")
        if if_session is not None:
            check_integer(if_session, "if_session")
            if not fence or if_session < 1:
                raise ValueError(f"if_session is the number of the session to be fenced, not {if_session}")
        session = self._find_partition(partition_id).session
        if fence and self._settings.enabled:
            self._check_not_exclusive(partition_id)
            begun = await session.fence(exclusive=self._settings.exclusive, expected_session=if_session)
            return begun.transaction_id
        if fence:
            logger.warning(
                "partition %d was not fenced: the client has no write sessions (client.enableSessionWrite)",
                partition_id,
            )
        try:
            return (await session.present()).transaction_id
        except SessionNotSupportedError:
            await session.flush()
            return await self._high_water_mark(partition_id)

    async def present(self, partition_id: int) -> int:
        """The number of the present session of the partition, of any client. Raises the same errors."""
        return (await self._enabled_session(partition_id).present()).number

    def holds(self, partition_id: int, number: int) -> bool:
        """Whether this client still has the session, as far as it knows."""
        return self._find_partition(partition_id).session.holds(number)

    async def renew(self, partition_id: int) -> int:
        """Continue in the present session of the partition. Returns its number. Raises the same errors."""
        session = self._enabled_session(partition_id)
        self._check_not_exclusive(partition_id)
        return await session.renew(exclusive=self._settings.exclusive)

    @asynccontextmanager
    async def exclusive(self, partition_id: int, *, if_session: int | None = None) -> AsyncIterator[ExclusiveSession]:
        """Begin a session that is exclusive until the block is left. With ``if_session``: only if that is the present
        session.

        Raises the same errors.
        """
        session = self._enabled_session(partition_id)
        self._check_not_exclusive(partition_id)
        self._exclusive.add(partition_id)

        def owned(ending: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
            return self._tasks.spawn(ending, f"ending an exclusive session of partition {partition_id}")

        try:
            begun = await session.begin(
                exclusive=True,
                expected_session=if_session,
                left=lambda answer: owned(self._end_when_begun(session, partition_id, answer)),
            )
            try:
                await session.settle(begun)
                yield ExclusiveSession(partition_id, begun.number, begun.transaction_id)
            finally:
                await asyncio.shield(owned(self._end(session, partition_id, begun.number)))
        finally:
            self._exclusive.discard(partition_id)

    async def _end_when_begun(self, session: PartitionSession, partition_id: int, answer: Answer) -> None:
        """End a session that begins after its caller was cancelled: otherwise no client could write."""
        try:
            async with asyncio.timeout(_END_TIMEOUT_S):
                response = await answer
        except (TimeoutError, WaltzError) as error:
            reason = str(error) or f"its server has said nothing for {_END_TIMEOUT_S:g} s"
            logger.warning("an exclusive session of partition %d may be left without an end: %s", partition_id, reason)
            return
        if response.last_transaction_status is LastTransactionStatus.OK:
            number = response.write_session
            await self._until_ended(session.release(number), partition_id, number)

    async def _end(self, session: PartitionSession, partition_id: int, number: int) -> None:
        """Let other clients write again. After a failure, the next fence ends the session."""
        if self._settings.exclusive or not session.holds(number):
            return
        await self._until_ended(session.fence(exclusive=False, expected_session=number), partition_id, number)

    async def _until_ended(self, ending: Coroutine[Any, Any, object], partition_id: int, number: int) -> None:
        try:
            async with asyncio.timeout(_END_TIMEOUT_S):
                await ending
        except SessionFencedError:
            pass  # a newer session has ended it
        except (TimeoutError, WaltzError) as error:
            reason = str(error) or f"it took more than {_END_TIMEOUT_S:g} s"
            logger.warning(
                "exclusive session %d of partition %d was left without an end: %s", number, partition_id, reason
            )

    def _enabled_session(self, partition_id: int) -> PartitionSession:
        check_integer(partition_id, "partition_id")
        if not self._settings.enabled:
            raise InvalidOperationError(
                "the client has no write sessions; connect with session_write=True (client.enableSessionWrite)"
            )
        return self._find_partition(partition_id).session

    def _check_not_exclusive(self, partition_id: int) -> None:
        if partition_id in self._exclusive:
            raise InvalidOperationError(
                f"this client has opened an exclusive session of partition {partition_id}; leave it first"
            )
