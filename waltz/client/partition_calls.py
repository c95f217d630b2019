"""Questions about a partition that every face answers alike: its mark and its write session."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from waltz.client.engine.engine import Engine
from waltz.client.engine.sessions import ExclusiveSession


class PartitionCalls(ABC):
    """Part of every client."""

    @abstractmethod
    def _own_engine(self) -> Engine:
        """The engine; raises unless the client is open and this is its own event loop."""

    async def _joined_engine(self, partition_id: int) -> Engine:
        """The engine, when it takes part in a partition that the client joins at its first use."""
        return self._own_engine()

    async def high_water_mark(
        self, partition_id: int, *, confirmed: bool = False, timeout_s: float | None = None
    ) -> int:
        """Id of the last committed transaction of a partition, asked of its server; -1 when there is none.

        Right after the partition has moved it may be that of the server before, until the client hears of the new one:
        then it is behind. With ``confirmed`` it is not: whatever was committed before the call is included, for a
        quorum of the storages has confirmed the answer.

        Args:
            partition_id: The partition.
            confirmed: Ask for the confirmation of a quorum.
            timeout_s: How long to wait, in seconds.

        Raises:
            PartitionNotFoundError: The cluster has no such partition.
            ConfirmedMarkNotSupportedError: With ``confirmed``: the server is too old to confirm marks.
            DeadlineExceededError: No answer came in time; by default within 10 s.
            ClientClosedError: The client is closed.
        """
        return await self._own_engine().high_water_mark(partition_id, timeout_s, confirmed=confirmed)

    async def renew_session(self, partition_id: int) -> int:
        """Go on in the present write session of a partition, whoever has begun it; returns its number.

        Appends of unknown outcome may still be added, by whoever shares the session.

        Raises:
            SessionFencedError: Another client holds an exclusive session.

        Raises as :meth:`last_transaction_id`, too.
        """
        return await (await self._joined_engine(partition_id)).sessions.renew(partition_id)

    @asynccontextmanager
    async def exclusive(self, partition_id: int) -> AsyncIterator[ExclusiveSession]:
        """Be the only writer of a partition: ``async with client.exclusive(partition_id) as session:``.

        A new session begins, in which only this client may append; leaving the block ends it. When somebody else takes
        the partition over meanwhile, appends end with ``SessionFencedError``. Raises as :meth:`last_transaction_id`.
        """
        engine = await self._joined_engine(partition_id)
        async with engine.sessions.exclusive(partition_id) as session:
            yield session
