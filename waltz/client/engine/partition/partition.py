"""One partition of the stream half: its life, its server, its appends and its feed."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from waltz.client.engine.links.links import ServerLink
from waltz.client.engine.partition.appends import PartitionAppends
from waltz.client.engine.partition.feed import PartitionFeed
from waltz.client.engine.partition.monitor import MonitorState
from waltz.client.engine.partition.mount import Mount
from waltz.client.engine.partition.partition_session import PartitionSession
from waltz.client.engine.partition.probe import LatencyProbe
from waltz.client.engine.reads.data_requests import RpcPartition
from waltz.client.engine.reads.prefetch import Prefetcher
from waltz.client.engine.settings import PartitionSettings
from waltz.client.errors import (
    ClientClosedError,
    ClientTimeoutError,
    InvalidOperationError,
    PartitionInactiveError,
)
from waltz.common.ids import NO_TRANSACTION
from waltz.common.wire.append_delays import AppendsDelayed
from waltz.common.wire.client_server import (
    FeedSuspended,
    FlushResponse,
    HighWaterMarkResponse,
    LockFailure,
    Message,
    MountResponse,
)
from waltz.common.wire.consistency import AppendAck, ConsistencyRefused, PartitionConsistency
from waltz.common.wire.mark_feed import MarkAdvanced
from waltz.common.wire.refused import NotAuthorized
from waltz.common.wire.trimmed import Trimmed
from waltz.common.wire.version5 import AppendFailed, PartitionClosed
from waltz.common.wire.write_sessions import HeartbeatResponse, SessionFenced

_DEACTIVATION_FLUSH_INTERVAL_S = 1.0


class StreamPartition:
    """One partition. Inactive before :meth:`activate`."""

    def __init__(self, partition_id: int, client_id: int, settings: PartitionSettings, fetcher: RpcPartition) -> None:
        options = settings.options
        self.partition_id = partition_id
        self.generation = -1
        self.probe = LatencyProbe(settings.clock)
        self.appends = PartitionAppends(partition_id, client_id, settings, self.probe)
        self.feed = PartitionFeed(
            partition_id,
            settings.applier,
            Prefetcher(fetcher, options.prefetch_maximum),
            settings.applying,
            take_committed=self.appends.take_committed,
            is_own=self.appends.is_own,
            deferred=self.appends.deferred,
            settle_deferred=self.appends.settle_deferred,
            mount_reached=self._mount_reached,
            backlog_changed=self._backlog_changed,
            broke_off=self._feed_broke_off,
            probe=self.probe,
            options=options,
            random_source=settings.random_source,
        )
        self.mount = Mount(
            partition_id,
            self.feed,
            next_req_id=self.appends.next_req_id,
            mounted=self._mounted,
            await_applied=self.appends.await_applied,
            changed=self.appends.signal.notify,
            needs_headers=lambda: settings.applier is not None or self.appends.monitor.pending > 0,
            options=options,
        )
        self.appends.bind(self.mount, self.feed)
        self.session = PartitionSession(partition_id, self.appends, self.mount, fetcher, settings)
        self.handlers: Mapping[type[Message], Callable[[Any], None]] = {
            FeedSuspended: self.mount.feed_suspended,
            LockFailure: self.appends.lock_failure,
            AppendFailed: self.appends.append_failed,
            FlushResponse: self.appends.flush_response,
            MarkAdvanced: self.feed.mark_advanced,
            MountResponse: self.mount.response,
            HighWaterMarkResponse: self.mount.mark_told,
            PartitionClosed: self.mount.closed,
            SessionFenced: self.appends.session_fenced,
            HeartbeatResponse: self.session.response,
            NotAuthorized: self._not_authorized,
            Trimmed: self._trimmed,
            AppendsDelayed: self.appends.delayed,
            AppendAck: self.appends.acknowledged,
            ConsistencyRefused: self.appends.consistency_refused,
            PartitionConsistency: self.appends.guarantees.property_told,
        }
        """The handlers of messages of the server, except those of the feed."""
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._generation_flushes: list[asyncio.TimerHandle] = []

    # Life

    @property
    def active(self) -> bool:
        """Whether the client takes part in this partition (mounted or not)."""
        return self.appends.monitor.state is MonitorState.STARTED

    @property
    def needs_server(self) -> bool:
        """Whether the client takes part, or is leaving and still needs the outcomes of its appends.

        False while the client joins again: a former mount would continue behind transactions that the new begin drops.
        """
        return self.active or (self.feed.active and self.appends.monitor.pending > 0)

    async def activate(
        self, read_high_water_mark: Callable[[], Awaitable[int]], find_server: Callable[[], None]
    ) -> None:
        """Take part, from the application's high-water mark on, after the end of a running callback.

        The partition is not mounted by this: an earlier mount would continue behind the mark of its time. If the call
        is cancelled or fails, the partition is inactive.

        If another client with the same database of the application has moved the mark beyond the transactions fed here,
        undecided appends are decided first, as in :meth:`deactivate`, with the same error. A feed that begins at the
        mark would not contain them, and they would count as lost.
        """
        self.detach()
        await self._stop_feed()
        high_water_mark = await self._told(read_high_water_mark)
        if high_water_mark > self.feed.applied and self.appends.monitor.pending:
            await self.deactivate(find_server, high_water_mark)
            high_water_mark = await self._told(read_high_water_mark)
        if self.appends.monitor.start():
            self.feed.start(high_water_mark)

    async def _told(self, read_high_water_mark: Callable[[], Awaitable[int]]) -> int:
        high_water_mark = await read_high_water_mark()
        if high_water_mark < NO_TRANSACTION:
            raise InvalidOperationError(
                f"the client high-water mark of partition {self.partition_id} is {high_water_mark}; the least is -1"
            )
        return high_water_mark

    async def deactivate(self, find_server: Callable[[], None], applied_elsewhere: int = NO_TRANSACTION) -> None:
        """Leave the partition when all its appends are decided.

        ``find_server`` is called when the partition has to be mounted for that. If its feed has to begin again, the
        transactions up to ``applied_elsewhere`` are not applied again. Raises :class:`ClientTimeoutError` after too
        long a time: then the partition takes no submissions, and the call can be repeated.
        """
        appends = self.appends
        appends.stop()
        try:
            async with asyncio.timeout(self._options.flush_timeout_s):
                if appends.monitor.pending and not self.feed.active:
                    # A new join has failed or was cancelled; undecided appends are in the feed from this mark on.
                    await self._stop_feed()
                    self.feed.start(self.feed.applied, applied_elsewhere)
                    find_server()
                while appends.monitor.pending:
                    appends.flush_now()
                    await appends.signal.wait(_DEACTIVATION_FLUSH_INTERVAL_S)
        except TimeoutError:
            obstacle = appends.obstacle
            reason = "" if obstacle is None else f": {obstacle}"
            raise ClientTimeoutError(
                f"{appends.monitor.pending} transactions of partition {self.partition_id} were not decided within "
                f"{self._options.flush_timeout_s:g} s{reason}"
            ) from obstacle
        await self._stop_feed()
        appends.forget_decisions()
        appends.guarantees.end("the client has left the partition")
        self.detach()

    async def _stop_feed(self) -> None:
        await self.feed.stop(PartitionInactiveError(self.partition_id))

    async def close(self, caller: asyncio.Task[Any] | None = None) -> None:
        """End for ever. Undecided or unapplied submissions end with :class:`ClientClosedError`.

        Does not wait for ``caller``.
        """
        undecided = self.appends.fail()
        self.session.stop()
        self.detach()
        for timer in self._generation_flushes:
            timer.cancel()
        await self.feed.stop(ClientClosedError(), self._options.close_grace_s, caller)
        await self.appends.close(undecided, caller)

    # The server

    def attach(self, link: ServerLink) -> None:
        """Mount on the server of ``link``."""
        self.detach()
        self.mount.attach(link)

    def detach(self) -> None:
        """Leave the server."""
        if self.mount.link is not None:
            self.mount.link.resume(self)
        self.mount.detach()

    def set_generation(self, generation: int) -> None:
        """Use a newer generation in requests.

        The server drops appends of any other generation without an answer, and its partition object may be a new one
        without feeds. So the partition is mounted again, which ends lost appends. A little later it is flushed, because
        appends that reached the server before it knew the generation are lost, too.
        """
        if generation <= self.generation:
            return
        self.generation = generation
        self.appends.set_generation(generation)
        if self.mount.link is None:
            return
        self.mount.restart()
        for timer in self._generation_flushes:
            timer.cancel()
        self._generation_flushes = [
            self._loop.call_later(delay_s, self.appends.flush_now)
            for delay_s in self._options.generation_flush_delays_s
        ]

    def _not_authorized(self, message: NotAuthorized) -> None:
        if self.mount.refused(message):
            self.feed.advanced.notify()  # calls that wait for transactions would wait for ever
        elif not self.session.refused(message):
            self.appends.not_authorized(message)

    def _trimmed(self, message: Trimmed) -> None:
        self.mount.trimmed(message)
        self.feed.advanced.notify()  # calls that wait for transactions would wait for ever

    def _mounted(self) -> None:
        self.appends.mount_changed()
        self.appends.flush_now()
        self.session.mounted()

    # Calls of the feed

    def _mount_reached(self, session_id: bytes) -> None:
        self.mount.reached(session_id)

    def _feed_broke_off(self) -> None:
        if self.mount.link is not None:
            self.mount.link.resume(self)
        self.mount.restart_later()

    def _backlog_changed(self, size: int) -> None:
        link = self.mount.link
        if size > self._options.feed_queue_low:
            if link is not None:
                link.pause(self)
        else:
            if link is not None:
                link.resume(self)
            self.mount.backlog_is_low()
