"""Times of commits in one store session: reports to the storages, questions to them, and copies for storages that have
received records as a copy."""

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from waltz.common.errors import WaltzError
from waltz.common.ids import NO_TRANSACTION
from waltz.common.tasks import owned
from waltz.common.wire.storage_times import TimeQuestion
from waltz.server.store.connections import Lane, StorageConnections
from waltz.server.store.interface import ReadFailedError, StoreOptions, TimeEntry, TimesNotKeptError
from waltz.server.store.replica.replica import Replica
from waltz.storage.remote.time_copies import copy_times

COPY_RETRY_S = 10.0
"""Pause before times are copied again that could not be."""


class TimedSession(Protocol):
    """The part of the session that is used here."""

    partition_id: int
    session_id: int
    connections: StorageConnections
    options: StoreOptions
    untimed: dict[str, int]
    """By storage the first transaction that it has got as a copy, without the times of commits."""

    @property
    def high_water_mark(self) -> int:
        """The last committed transaction known to the session."""
        ...

    def noticed(self, error: Exception) -> bool:
        """Note that a request to a storage has failed. Returns whether that has ended the session, because a newer
        session exists (rule S2)."""
        ...


class _Answer(NamedTuple):
    """The answer of one storage."""

    keeps_times: bool
    entry: TimeEntry | None = None


class CommitTimes:
    """Reports commits to the storages of a session at intervals, and asks the storages for times of commits."""

    __slots__ = ("_copies", "_copy_at_s", "_last", "_replicas", "_session")

    def __init__(self, session: TimedSession, replicas: Sequence[Replica]) -> None:
        self._session = session
        self._replicas = replicas
        self._last = TimeEntry(NO_TRANSACTION, 0)
        self._copies: dict[str, asyncio.Task[None]] = {}
        self._copy_at_s: dict[str, float] = {}
        """When the next attempt is due, for storages whose last one has failed."""

    async def close(self) -> None:
        """Copy no more times."""
        for task in self._copies.values():
            task.cancel()
        await asyncio.gather(*self._copies.values(), return_exceptions=True)

    def tell(self, high_water_mark: int, time_ms: int) -> None:
        """Report to all members that the mark is committed now. Without a new commit, only members without the last
        report get one."""
        if high_water_mark > self._last.transaction_id:
            self._last = TimeEntry(high_water_mark, max(time_ms, self._last.time_ms))
        for replica in self._replicas:
            if replica.live and replica.storage in self._session.untimed:
                self._begin_copy(replica)
            if replica.storage not in self._copies:  # times that are entered in their order cost the storage least
                replica.tell_committed(self._last, time_ms)

    async def entry(self, question: TimeQuestion, value: int, timeout_s: float) -> TimeEntry | None:
        """The best entry among the answers of all members and the knowledge of this session; ``None`` when no entry is
        known.

        Every entry is true, but not every storage has all entries: a new or repaired storage has later entries only.

        Raises:
            ReadFailedError: No storage has answered within the time.
            TimesNotKeptError: No storage that answered keeps times.
        """
        loop = asyncio.get_running_loop()
        questions = [
            loop.create_task(self._ask(replica, question, value, timeout_s))
            for replica in self._replicas
            if replica.live
        ]
        if questions:
            await asyncio.wait(questions, timeout=timeout_s)
        for task in questions:
            task.cancel()
        found = await asyncio.gather(*questions, return_exceptions=True)
        answers = [each for each in found if isinstance(each, _Answer)]
        if not answers:
            raise ReadFailedError(f"partition {self._session.partition_id}: no storage has answered for its times")
        if not any(each.keeps_times for each in answers):
            raise TimesNotKeptError(f"partition {self._session.partition_id}: no storage keeps times")
        return best_entry(question, value, [self._last, *(each.entry for each in answers)])

    def _begin_copy(self, replica: Replica) -> None:
        """Have the storage get the times that it lacks, unless that is under way, or has just failed."""
        storage = replica.storage
        if storage in self._copies or asyncio.get_running_loop().time() < self._copy_at_s.get(storage, 0.0):
            return
        what = f"a copy of times of partition {self._session.partition_id} to {storage}"
        task = self._copies[storage] = owned(self._copy(replica), what)
        task.add_done_callback(lambda _: self._copies.pop(storage, None))

    async def _copy(self, replica: Replica) -> None:
        session, storage = self._session, replica.storage
        first, last = session.untimed.pop(storage), min(replica.acked, session.high_water_mark)
        is_done = False
        try:
            is_done = await self._copy_from_others(replica, first, last)
        except (WaltzError, OSError) as error:
            session.noticed(error)
        finally:
            if not is_done:
                session.untimed[storage] = min(first, session.untimed.get(storage, first))
                self._copy_at_s[storage] = asyncio.get_running_loop().time() + COPY_RETRY_S

    async def _copy_from_others(self, replica: Replica, first: int, last: int) -> bool:
        """Copy what each other member knows, for some know more; whether one has told, or none can."""
        session = self._session
        ids, timeout_s = (session.session_id, session.partition_id), session.options.read_timeout_s
        destination = await session.connections.client(replica.storage, Lane.READ)
        if not destination.keeps_times:
            return True
        others = [other for other in self._replicas if other is not replica and other.live]
        told = failed = 0
        for other in others:
            try:
                source = await session.connections.client(other.storage, Lane.READ)
                if source.keeps_times:
                    read = partial(source.times, *ids, timeout_s=timeout_s)
                    await copy_times(read, partial(destination.enter_times, *ids, timeout_s=timeout_s), first, last)
                    told += 1
            except (WaltzError, OSError) as error:
                if session.noticed(error):
                    raise
                failed += 1
        return bool(told or (others and not failed))

    async def _ask(self, replica: Replica, question: TimeQuestion, value: int, timeout_s: float) -> _Answer | None:
        session = self._session
        try:
            client = await session.connections.client(replica.storage, Lane.READ)
            if not client.keeps_times:
                return _Answer(keeps_times=False)
            ids = (session.session_id, session.partition_id)
            found = await client.time_entry(*ids, question, value, timeout_s=timeout_s)
        except (WaltzError, OSError) as error:
            session.noticed(error)
            return None
        return _Answer(keeps_times=True, entry=None if found is None else TimeEntry(*found))


def best_entry(question: TimeQuestion, value: int, entries: Iterable[TimeEntry | None]) -> TimeEntry | None:
    """The entry that answers a question best: the highest transaction, or the earliest time."""
    known = [entry for entry in entries if entry is not None and entry.transaction_id != NO_TRANSACTION]
    if question is TimeQuestion.LAST_AT:
        return max((entry for entry in known if entry.time_ms <= value), default=None)
    covering = [entry for entry in known if entry.transaction_id >= value]
    return min(covering, key=lambda entry: (entry.time_ms, -entry.transaction_id), default=None)
