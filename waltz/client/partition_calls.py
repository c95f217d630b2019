"""Calls about a partition that all faces share: its mark, its write session and its leader."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

from waltz.client.arguments import check_integer, milliseconds_of
from waltz.client.election import Election
from waltz.client.engine.engine import Engine
from waltz.client.engine.environment import Environment
from waltz.client.engine.sessions import ExclusiveSession
from waltz.common.iso_time import from_milliseconds


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

    async def offset_at(self, partition_id: int, time: datetime, *, timeout_s: float | None = None) -> int:
        """Id of the last transaction that is known to have been committed at or before a time; -1 when none is.

        A feed after it has every transaction that was committed later, and perhaps some of the time before: the
        storages note about once a second what is committed, by the clock of the partition's server. Never is the id
        that of a later transaction. For a time that has not come yet it is the high-water mark, which a quorum of the
        storages has confirmed. What was committed before the storages kept times (those of the original keep none)
        counts as committed when they began; then, and before the first transaction, the id is -1.

        Args:
            partition_id: The partition.
            time: The time, with a time zone.
            timeout_s: Limit of the call in seconds.

        Raises:
            PartitionNotFoundError: The cluster has no such partition.
            TimesNotSupportedError: The server is too old, or no storage of the partition keeps times.
            DeadlineExceededError: No answer came in time; by default within 10 s.
            ClientClosedError: The client is closed.
            ValueError: The time has no time zone.
        """
        return await self._own_engine().offset_at(partition_id, milliseconds_of(time, "time"), timeout_s)

    async def time_of(
        self, partition_id: int, transaction_id: int, *, timeout_s: float | None = None
    ) -> datetime | None:
        """The time by which a transaction is known to have been committed, in UTC; usually within a second.

        ``None`` when it is not known: the transaction is not committed, or was a moment ago. What was committed before
        the storages kept times has the time at which they began. Raises as :meth:`offset_at`.
        """
        check_integer(transaction_id, "transaction_id")
        time_ms = await self._own_engine().time_of(partition_id, transaction_id, timeout_s)
        return None if time_ms is None else from_milliseconds(time_ms)

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
