"""One table that both clusters write: what applications have written to the source is merged into the target.

Applications go on writing to the target meanwhile, so a mirror of this kind has neither the target for itself nor the
ids of the source. Its position is in the target's log, in the same transactions as the rows (``origins``). An attempt

1. follows the log of the target, from its beginning: that tells the position, and which row of each key has to win;
2. appends what follows in the source, whole transactions, under a lock that every batch of such a mirror takes: the
   append fails if another process has appended since, also one that was taken for dead;
3. waits until it sees its own batch in the target, and goes on.

So whatever becomes of an append, it is in the target once or not at all, and the next attempt reads which.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from waltz.asynchronous import Client
from waltz.client.errors import ClientAheadError, ConfirmedMarkNotSupportedError, LockConflict, TrimmedError
from waltz.client.locks import PartitionLocalLock
from waltz.common.errors import WaltzError
from waltz.mirror.attempts import Attempts, SourceFailedError, Target
from waltz.mirror.claims import Claims
from waltz.mirror.errors import MirrorStoppedError, SourceTrimmedError
from waltz.mirror.merging import Copy, Merged, Versions, batch_of, copy_of, next_group
from waltz.mirror.mirror_metrics import MirrorState, PartitionState, Stage
from waltz.mirror.source_log import ClientLog
from waltz.mirror.window import WindowLimit
from waltz.table.codecs import Codec
from waltz.table.envelope import Batch, encode, envelope_of
from waltz.table.face.configured import check_enabled, check_table, properties_of
from waltz.table.face.locks import locks_of_batch
from waltz.table.properties import PartitionProperties

logger = logging.getLogger(__name__)

LOCK_NAME = "waltz.mirror"
"""Name of the lock of all batches from one source; the id is that of the source's key."""

APPEND_TIMEOUT_S = 30.0


class TableMirror:
    """Merges one partition, until it is cancelled or has to stop for good."""

    def __init__(
        self,
        partition_id: int,
        source: Client,
        source_key: str,
        target: Client,
        target_key: str,
        place: Target,
        limit: WindowLimit,
        process: MirrorState,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        """``source`` and ``target`` are open clients, ``place`` says where the target's ZooKeeper is."""
        self._partition_id = partition_id
        self._source = source
        self._source_key = source_key
        self._target = target
        self._target_key = target_key
        self._limit = limit
        self._process = process
        self._state = process.partitions.setdefault(partition_id, PartitionState())
        self._state.has_own_ids = True
        self._now_ms = now_ms
        self._claims = Claims(place.zookeeper, place.root)
        self._attempts = Attempts(partition_id, place, self._state)
        self._lock = PartitionLocalLock(LOCK_NAME, source_key)
        self._merged = Merged(source_key, target_key)
        self._read: deque[Copy] = deque()
        self._read_bytes = 0
        self._read_id = -1
        self._stamp_ms = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()

    async def run(self) -> None:
        """Merge. Returns when that is over for good: the state of the partition then says why."""
        await self._attempts.run(self._check, self._attempt)

    async def _check(self) -> None:
        claim = await self._claims.read(self._partition_id)
        if claim is not None and not claim.promoted:
            raise MirrorStoppedError(
                f"partition {self._partition_id} is the exact mirror of the cluster with the key {claim.source}: no "
                "other writer may append to it before it is promoted (waltz mirror promote)"
            )

    async def _attempt(self) -> None:
        try:
            check_table(await properties_of(self._source, self._partition_id), self._partition_id)
        except WaltzError as error:
            raise SourceFailedError(str(error)) from error
        properties = await properties_of(self._target, self._partition_id)
        check_table(properties, self._partition_id)
        check_enabled(properties, self._partition_id)
        self._news.clear()
        await _first_of(self._follow(properties), self._merge(properties))

    # The target

    async def _follow(self, properties: PartitionProperties) -> None:
        """Look at every transaction of the target, from where the attempt before has come to."""
        log = ClientLog(self._target, self._partition_id)
        try:
            async with contextlib.aclosing(log.following(self._merged.applied)) as batches:
                async for records in batches:
                    for record in records:
                        envelope = envelope_of(record.transaction_id, record.data, properties.max_body_bytes)
                        self._merged.apply(record.transaction_id, envelope)
                    self._news.set()
        except ClientAheadError:
            self._merged = Merged(self._source_key, self._target_key)
            raise
        except TrimmedError as error:
            wanted = self._merged.applied + 1
            raise SourceTrimmedError(self._partition_id, wanted, error.first_available, "target") from error

    async def _reached(self, transaction_id: int) -> None:
        """Wait until the target is looked at up to a transaction."""
        while self._merged.applied < transaction_id:
            self._news.clear()
            await self._news.wait()

    async def _end(self) -> int:
        try:
            return await self._target.high_water_mark(self._partition_id, confirmed=True)
        except ConfirmedMarkNotSupportedError:
            return await self._target.high_water_mark(self._partition_id)

    # The source

    async def _read_source(self) -> None:
        """Read ahead, as much as the window allows."""
        self._read.clear()
        self._read_bytes = 0
        self._read_id = self._merged.position
        try:
            max_body_bytes = (await properties_of(self._source, self._partition_id)).max_body_bytes
            log = ClientLog(self._source, self._partition_id)
            versions = Versions(self._merged.position_version)
            async with contextlib.aclosing(log.following(self._read_id)) as batches:
                async for records in batches:
                    for record in records:
                        envelope = envelope_of(record.transaction_id, record.data, max_body_bytes)
                        copy = copy_of(record.transaction_id, record.header, envelope, versions)
                        while copy is not None and self._is_full(copy):
                            self._news.set()
                            self._room.clear()
                            await self._room.wait()
                        if copy is not None:
                            self._read.append(copy)
                            self._read_bytes += copy.size_bytes
                        self._read_id = record.transaction_id
                    self._news.set()
        except TrimmedError as error:
            raise SourceTrimmedError(self._partition_id, self._read_id + 1, error.first_available) from error
        except WaltzError as error:
            raise SourceFailedError(str(error)) from error

    def _is_full(self, copy: Copy) -> bool:
        size_bytes = self._read_bytes + copy.size_bytes
        too_much = len(self._read) >= self._limit.transactions or size_bytes > self._limit.size_bytes
        return too_much and bool(self._read)

    def _drop_read(self) -> None:
        """Forget what is in the target."""
        while self._read and self._read[0].transaction_id <= self._merged.position:
            self._read_bytes -= self._read.popleft().size_bytes
        self._room.set()

    # What is appended

    async def _merge(self, properties: PartitionProperties) -> None:
        await self._reached(await self._end())
        logger.info(
            "table %d is merged behind transaction %d of the source; %d keys",
            self._partition_id,
            self._merged.position,
            self._merged.keys,
        )
        self._attempts.show(Stage.WORKING)
        await _first_of(self._read_source(), self._append_for_ever(properties))

    async def _append_for_ever(self, properties: PartitionProperties) -> None:
        while True:
            self._news.clear()
            self._drop_read()
            self._state.mirrored_id = max(self._merged.position, -1 if self._read else self._read_id)
            self._state.in_flight_bytes = self._read_bytes
            if self._merged.unsettled:
                await self._settle(properties)
            elif self._read:
                group = next_group(self._read)
                batch = batch_of(self._source_key, group, self._stamp())
                if await self._append(batch, group[0].header, properties):
                    self._process.transactions += len(group)
                    self._process.size_bytes += sum(copy.size_bytes for copy in group)
            else:
                await self._news.wait()

    async def _settle(self, properties: PartitionProperties) -> None:
        """Let rows win that have to, where later ones with the same timestamp do."""
        transaction_id, keys = self._merged.next_unsettled()
        record = await ClientLog(self._target, self._partition_id).record(transaction_id)
        written = envelope_of(transaction_id, record.data, properties.max_body_bytes)
        keys = [key for key in keys if key in self._merged.unsettled]
        keys = [key for key in keys if self._merged.unsettled[key].place.transaction_id == transaction_id]
        if isinstance(written, Batch) and keys:
            await self._append(self._merged.settling_batch(keys, written, self._stamp()), record.header, properties)
        elif keys:
            logger.warning("transaction %d of table %d has no rows any more", transaction_id, self._partition_id)
            self._merged.cannot_settle(keys)

    async def _append(self, batch: Batch, header: int, properties: PartitionProperties) -> bool:
        """Append a batch, unless another process has appended one; whether that is done."""
        codec = properties.codec
        data = (
            encode(batch, codec, properties.max_body_bytes)
            if codec is Codec.NONE
            else await asyncio.to_thread(encode, batch, codec, properties.max_body_bytes)
        )
        try:
            transaction_id = await self._target.append(
                self._partition_id,
                data,
                header=header,
                write_locks=[self._lock],
                append_locks=locks_of_batch(batch.rows),
                high_water_mark=self._merged.applied,
                timeout_s=APPEND_TIMEOUT_S,
            )
        except LockConflict as conflict:
            await self._reached(await self._end() if conflict.transaction_id < 0 else conflict.transaction_id)
            return False
        self._attempts.progressed()
        await self._reached(transaction_id)
        return True

    def _stamp(self) -> int:
        """The timestamp of the row of a mirror: each wins over those before."""
        self._stamp_ms = max(self._now_ms(), self._stamp_ms + 1)
        return self._stamp_ms


async def _first_of(*works: Coroutine[Any, Any, None]) -> None:
    """Do all of these, until the first one ends; raises its error."""
    tasks = [asyncio.get_running_loop().create_task(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        if not task.cancelled():
            task.result()
