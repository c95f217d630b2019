"""Calls about a partition that all faces share: its mark, its write session and its leader."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from waltz.client.arguments import check_integer
from waltz.client.election import Election
from waltz.client.engine.engine import Engine
from waltz.client.engine.environment import Environment
from waltz.client.engine.sessions import ExclusiveSession


class PartitionCalls(ABC):
    """Part of every client."""

    _environment: Environment

    @abstractmethod
    def _own_engine(self) -> Engine:
        """The engine; raises unless the client is open and this is its own event loop."""

    async def _joined_engine(self, partition_id: int) -> Engine:
        """The engine after the client has joined the partition."""
        return self._own_engine()

    async def high_water_mark(
        self, partition_id: int, *, confirmed: bool = False, timeout_s: float | None = None
    ) -> int:
        """Id of the last committed transaction of a partition, asked of its server; -1 when there is none.

        Right after the partition has moved, the former server may answer, until the client knows the new one: its mark
        may be old. A ``confirmed`` mark covers every transaction committed before the call, since a quorum of the
        storages has confirmed it.

        Args:
            partition_id: The partition.
            confirmed: Whether a quorum has to confirm the mark.
            timeout_s: Limit of the call in seconds.

        Raises:
            PartitionNotFoundError: The cluster has no such partition.
            ConfirmedMarkNotSupportedError: With ``confirmed``: the server is too old to confirm marks.
            DeadlineExceededError: No answer came in time; by default within 10 s.
            ClientClosedError: The client is closed.
        """
        return await self._own_engine().high_water_mark(partition_id, timeout_s, confirmed=confirmed)

    async def renew_session(self, partition_id: int) -> int:
        """Continue in the present write session of a partition, whichever client has begun it; returns its number.

        Appends of unknown outcome may still be added by any client of the session.

        Raises:
            SessionFencedError: Another client holds an exclusive session.

        Raises as :meth:`last_transaction_id`, too.
        """
        return await (await self._joined_engine(partition_id)).sessions.renew(partition_id)

    @asynccontextmanager
    async def exclusive(self, partition_id: int) -> AsyncIterator[ExclusiveSession]:
        """Be the only writer of a partition: ``async with client.exclusive(partition_id) as session:``.

        A new session begins, in which only this client may append; leaving the block ends it. When another client takes
        the partition over meanwhile, appends end with ``SessionFencedError``. Raises as :meth:`last_transaction_id`.
        """
        engine = await self._joined_engine(partition_id)
        async with engine.sessions.exclusive(partition_id) as session:
            yield session

    def election(self, partition_id: int, name: str | None = None) -> Election:
        """The election of the leader of a partition, to campaign in it and to observe it. A partition has one leader.

        Args:
            partition_id: The partition.
            name: The name of this candidate for observers; by default ``client`` and the id of the client.

        Raises:
            PartitionNotFoundError: The cluster has no such partition.
            ClientClosedError: The client is closed.
        """
        engine = self._own_engine()
        check_integer(partition_id, "partition_id")
        name = f"client {engine.client_id}" if name is None else name
        return Election(partition_id, name, engine, self._environment.cluster.directory, self._joined_engine)
