"""Appends the staged rows of an epoch so that each row is in the log once, however often and by whomever it is tried.

A replay has to know which rows are in the log already, and that no earlier run can add one any more. The manifest says
the mark of each partition before anything of the epoch was appended, so only what lies above it is looked at; a record
there is one of ours iff its request id bears a client that has claimed the epoch, since no two clients of a cluster
ever share an id. Two locks of the log, named after the sink, keep earlier runs out (``T`` is the *take-over* lock,
``R`` the *rows* lock):

- The first row of a run **writes** ``T`` and **reads** ``R``, both checked against the mark up to which the run has
  looked for rows. It is refused if since then another run took over (``T``) or added any row (``R``).
- All other rows **read** ``T``, checked against the id of a row of this run, and **append** ``R``. They are refused as
  soon as a later run has taken over. Checked against the same row they do not conflict among themselves, so many are
  sent without waiting. When these are committed, the next are checked against the last of them. That misses nothing:
  it was admitted itself, so nobody had taken over before it. And it has to be done, since locks share places in the
  server's table: what is raised beside, such as the locks of a table's rows, in the end covers every place of ``T``.

So between the mark of a run's search and its first row nothing of the sink gets in, and after its first row nothing but
its own. A refusal without another run behind it (locks can share a place in the server's table, and a new server's
table begins with everything changed) makes the run look again, from where it looked before, and take over anew.

The order "mark, claim, search, first row" is what makes the claims complete: whoever appended below the mark had
claimed before it appended, so before this run's claim, which therefore finds it.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple, Protocol, TypeAlias

from waltz.client.locks import PartitionLocalLock
from waltz.common.errors import WaltzError
from waltz.common.net.backoff import Backoff
from waltz.spark.errors import SinkError
from waltz.spark.rows import Row
from waltz.spark.staging import Claims, Manifest, StagedFile, StagingArea, partitions_of

logger = logging.getLogger(__name__)

SLICE_ROWS = 8192
SLICE_BYTES = 16 << 20
"""Payload bytes that are handed to the client at a time."""

Contents: TypeAlias = Callable[[Row], Iterable[bytes]]
"""The part of a transaction that is the same whenever it is staged."""

_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.05, 2.0


class Guard(NamedTuple):
    """The locks of an append and the mark that they are checked against."""

    high_water_mark: int
    write: tuple[PartitionLocalLock, ...] = ()
    read: tuple[PartitionLocalLock, ...] = ()
    append: tuple[PartitionLocalLock, ...] = ()


class NotAllAppendedError(WaltzError):
    """Some rows were refused, or their outcome is not known: the log has to be searched for them."""


class SinkLog(Protocol):
    """The log as the sink sees it."""

    @property
    def client_id(self) -> int:
        """The client id in the request id of every append; no other client ever has it."""
        ...

    async def high_water_mark(self, partition_id: int) -> int:
        """The committed mark now, -1 for none. Raises ``NotAllAppendedError`` when no server can tell it now."""
        ...

    def rows(
        self, partition_id: int, after: int, up_to: int, client_ids: Collection[int]
    ) -> AsyncIterator[tuple[int, Row]]:
        """Ids and rows of what these clients have appended, ``after`` < id <= ``up_to`` (a committed mark)."""
        ...

    async def append(self, partition_id: int, rows: Sequence[Row], guard: Guard | None) -> int:
        """Append rows in order; the id of the last one, when all are committed.

        After the first rows the mark of the guard may be the id of a row that this call has appended before.

        Raises ``NotAllAppendedError`` when any was refused or its outcome is not known (it may even be appended later,
        if its locks still allow it by then), and ``SinkError`` when trying again cannot help.
        """
        ...


def locks_of(app_id: str) -> tuple[PartitionLocalLock, PartitionLocalLock]:
    """Take-over lock and rows lock. Names of one length that differ in one letter never share a hash."""
    return PartitionLocalLock(f"waltz.spark.sink.take-over:{app_id}", 0), PartitionLocalLock(
        f"waltz.spark.sink.rows-added:{app_id}", 0
    )


def whole(row: Row) -> Iterable[bytes]:
    """The contents of a transaction that is made of one row."""
    return (_encoded(row),)


def pass_over(area: StagingArea, epoch: int, files: Sequence[StagedFile], contents: Contents | None) -> bool:
    """Whether the epoch is done; then its rows are not appended again, and ``files`` are removed.

    ``contents`` is given where the epoch may be that of another query with the same name.

    Raises:
        SinkError: There are contents, and they are not those that were appended.
    """
    if not area.is_done(epoch):
        return False
    if contents is not None and partitions_of(files):
        manifest = area.manifest(epoch)
        if manifest is None or _contents(area, manifest.files, contents) != _contents(area, files, contents):
            raise SinkError(
                f"epoch {epoch} was completed before, with other rows or with later epochs behind it; a new checkpoint "
                "needs another txnAppId"
            )
    logger.warning("epoch %d was already completed; its rows are not appended again", epoch)
    area.discard(files)
    return True


def _contents(area: StagingArea, files: Sequence[StagedFile], contents: Contents) -> Counter[tuple[int, bytes]]:
    staged = Manifest(tuple(files), {})
    return Counter(
        (partition_id, blake2b(content, digest_size=16).digest())
        for partition_id in partitions_of(files)
        for row in area.rows(staged, partition_id)
        for content in contents(row)
    )


class EpochAppender:
    """Appends one epoch of one sink. One run of it is one claimant."""

    def __init__(
        self,
        area: StagingArea,
        app_id: str,
        epoch: int,
        log: SinkLog,
        *,
        timeout_s: float,
        jitter: random.Random,
        contents: Contents | None = whole,
    ) -> None:
        """``timeout_s``: how long nothing may get into the log before it fails; ``contents``: see :func:`pass_over`."""
        self._area = area
        self._epoch = epoch
        self._log = log
        self._timeout_s = timeout_s
        self._jitter = jitter
        self._contents = contents
        self._take_over, self._rows_added = locks_of(app_id)

    async def run(self, files: Sequence[StagedFile]) -> None:
        """Append what the epoch's first manifest says; ``files`` if there is none yet. Returns when all is committed.

        Raises ``SinkFencedError`` when another run has taken over, and ``SinkError``. After any error, or a crash at
        any point, the same call does what is left to do.
        """
        area, epoch = self._area, self._epoch
        if pass_over(area, epoch, files, self._contents):
            return
        manifest = area.manifest(epoch) or await self._settle(tuple(files))
        if manifest is not None:
            area.discard([file for file in files if file not in manifest.files])
        # Looked at again, after the manifest: if the epoch was completed in between, this may be a second manifest.
        if manifest is None or area.is_done(epoch):
            self._check_done()
            return
        try:
            await self._append(manifest)
        except FileNotFoundError:
            self._check_done()
            return
        area.complete(epoch)

    async def _settle(self, files: tuple[StagedFile, ...]) -> Manifest | None:
        """The epoch's manifest, this one or one that came first; ``None`` if the epoch is gone."""
        partition_ids = partitions_of(files)
        marks = await self._marks(partition_ids)
        self._area.propose(self._epoch, Manifest(files, dict(zip(partition_ids, marks, strict=True))))
        return self._area.manifest(self._epoch)

    def _check_done(self) -> None:
        if not self._area.is_done(self._epoch):
            raise SinkError(f"the decisions on epoch {self._epoch} are gone from the staging directory")

    async def _append(self, manifest: Manifest) -> None:
        partition_ids = partitions_of(manifest.files)
        claims = self._area.claims(self._epoch, self._log.client_id)
        marks = await self._marks(partition_ids)
        look = claims.claim()
        try:
            async with asyncio.TaskGroup() as group:
                for partition_id, mark in zip(partition_ids, marks, strict=True):
                    group.create_task(self._append_partition(manifest, partition_id, claims, mark, look=look))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _append_partition(
        self, manifest: Manifest, partition_id: int, claims: Claims, mark: int, *, look: bool
    ) -> None:
        """One partition; ``mark`` was read before the claim, and ``look`` says whether there may be rows below it."""
        looked_up_to = manifest.marks[partition_id]
        present: Counter[bytes] = Counter()
        patience = _Patience(self._timeout_s, self._jitter)
        obstacle: NotAllAppendedError | None = None
        while True:
            mark = max(mark, looked_up_to)
            if look:
                async for _, row in self._log.rows(partition_id, looked_up_to, mark, claims.client_ids):
                    present[_digest(row)] += 1
                    patience.renew()
            looked_up_to = mark
            if obstacle is not None:  # judged after the search: rows that the search finds are progress
                patience.check(obstacle)
            try:
                await self._append_missing(
                    partition_id, _missing(self._area.rows(manifest, partition_id), present), mark
                )
                return
            except NotAllAppendedError as error:
                obstacle = error
            await patience.pause()
            mark = await self._mark(partition_id)
            look = claims.claim()

    async def _append_missing(self, partition_id: int, rows: Iterator[Row], mark: int) -> None:
        first = next(rows, None)
        if first is None:
            return
        take_over = Guard(mark, write=(self._take_over,), read=(self._rows_added,))
        own = await self._log.append(partition_id, [first], take_over)
        for some in slices(rows):
            follow = Guard(own, read=(self._take_over,), append=(self._rows_added,))
            own = await self._log.append(partition_id, some, follow)

    async def _marks(self, partition_ids: Sequence[int]) -> list[int]:
        return await asyncio.gather(*(self._mark(partition_id) for partition_id in partition_ids))

    async def _mark(self, partition_id: int) -> int:
        patience = _Patience(self._timeout_s, self._jitter)
        while True:
            try:
                return await self._log.high_water_mark(partition_id)
            except NotAllAppendedError as error:
                patience.check(error)
                await patience.pause()


class _Patience:
    """Waits between attempts, and fails when attempts have made no progress for too long."""

    def __init__(self, timeout_s: float, jitter: random.Random) -> None:
        self._timeout_s = timeout_s
        self._backoff = Backoff(_FIRST_DELAY_S, _LONGEST_DELAY_S, jitter)
        self.renew()

    def renew(self) -> None:
        """There was progress."""
        self._deadline_s = asyncio.get_running_loop().time() + self._timeout_s
        self._backoff.reset()

    def check(self, error: Exception) -> None:
        """Raise ``SinkError`` when the time for further attempts is over; ``error`` ended the last attempt."""
        if asyncio.get_running_loop().time() >= self._deadline_s:
            raise SinkError(f"nothing was appended for {self._timeout_s:g} s: {error}") from error

    async def pause(self) -> None:
        """Wait a little before another attempt."""
        await asyncio.sleep(self._backoff.next_delay_s())


def slices(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """The rows in lists of bounded length and size."""
    some: list[Row] = []
    size_bytes = 0
    for row in rows:
        some.append(row)
        size_bytes += len(row.data)
        if len(some) == SLICE_ROWS or size_bytes >= SLICE_BYTES:
            yield some
            some, size_bytes = [], 0
    if some:
        yield some


def _missing(rows: Iterable[Row], present: Counter[bytes]) -> Iterator[Row]:
    """The rows that are not ``present``. Equal rows are interchangeable.

    Raises ``SinkError`` at the end if there is more in the log than rows.
    """
    if not present:
        yield from rows
        return
    left = present.copy()
    for row in rows:
        digest = _digest(row)
        if left[digest] > 0:
            left[digest] -= 1
        else:
            yield row
    strangers = left.total()
    if strangers:
        raise SinkError(f"the log holds {strangers} transactions of this sink that the staged rows do not explain")


def _digest(row: Row) -> bytes:
    return blake2b(_encoded(row), digest_size=16).digest()


def _encoded(row: Row) -> bytes:
    return row.header.to_bytes(4, "big", signed=True) + row.data
