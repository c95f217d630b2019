"""The stream half of a client: mounts, appends and feeds over one connection to each server."""

import asyncio
import functools
import logging
import random
import ssl
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from waltz.client.engine.links.assignments import Assigned, Owner
from waltz.client.engine.links.links import LOOKS_PER_SILENCE, Connector, Links, ServerLink
from waltz.client.engine.partition.partition import StreamPartition
from waltz.client.engine.reads.data_requests import RpcPartition
from waltz.client.engine.settings import PartitionSettings
from waltz.client.engine.tasks import TaskOwner, take_all
from waltz.client.options import ClientOptions
from waltz.common.errors import ProtocolError
from waltz.common.ids import PARTITION_PART, Endpoint, ReqId
from waltz.common.net.channel import MIN_EARLY_FRAMES, connect
from waltz.common.wire.client_server import Message, decode, fed, feed_data_head
from waltz.common.wire.frames import FRAME_HEADER_SIZE_BYTES, Bounds

logger = logging.getLogger(__name__)


def _nothing() -> None:
    return


class StreamClient:
    """Owns the partitions and the connections on which they are mounted."""

    def __init__(
        self,
        settings: PartitionSettings,
        *,
        tls: ssl.SSLContext | None,
        long_wait_threshold_s: float,
        options: ClientOptions,
        random_source: random.Random,
        connector: Connector = connect,
        looked: Callable[[], None] = _nothing,
    ) -> None:
        """``looked`` is called at intervals of ``long_wait_threshold_s``."""
        self.partitions: list[StreamPartition] = []
        """The partitions by id; empty until the client has joined the cluster."""
        self._to_leave: set[int] = set()
        """Partitions that were activated, and whose deactivation is not certainly complete."""
        self._settings = settings
        self._looked = looked
        self._owners: dict[int, Endpoint] = {}
        self._long_wait_threshold_s = long_wait_threshold_s
        self._look_interval_s = options.silence_limit_s / LOOKS_PER_SILENCE
        self._links = Links(
            self, tls=tls, options=options, random_source=random_source, watched=True, connector=connector
        )
        self._tasks = TaskOwner()

    def create_partitions(self, client_id: int, partition_count: int, fetcher: Callable[[int], RpcPartition]) -> None:
        """Create the partition objects and start the timers. Called once."""
        self._links.client_id = client_id
        self.partitions = [
            StreamPartition(partition_id, client_id, self._settings, fetcher(partition_id))
            for partition_id in range(partition_count)
        ]
        self._tasks.keep(self._nudge_for_ever, "the nudge timer")
        self._tasks.keep(self._watch_links_for_ever, "the watch on silent connections")

    async def set_active(
        self, partition_ids: Collection[int], read_high_water_mark: Callable[[int], Awaitable[int]]
    ) -> None:
        """Deactivate all partitions that are not listed, then activate the listed ones. Unknown ids are ignored.

        Raises the errors of ``read_high_water_mark``, and ``ClientTimeoutError`` when appends are not decided in time;
        the call can be repeated.
        """
        wanted = sorted(set(partition_ids).intersection(range(len(self.partitions))))
        leaving = sorted(self._to_leave.difference(wanted))
        left = await asyncio.gather(*map(self._deactivate, leaving), return_exceptions=True)
        for error in left:  # after the end of all calls: none may leave a partition that is joined again meanwhile
            if error is not None:
                raise error
        self._to_leave.difference_update(leaving)
        for partition_id in wanted:
            partition = self.partitions[partition_id]
            if not partition.active:
                self._to_leave.add(partition_id)
                await partition.activate(
                    functools.partial(read_high_water_mark, partition_id),
                    functools.partial(self._find_server, partition),
                )
                self._find_server(partition)

    async def _deactivate(self, partition_id: int) -> None:
        partition = self.partitions[partition_id]
        await partition.deactivate(functools.partial(self._find_server, partition))

    def _find_server(self, partition: StreamPartition) -> None:
        owner = self._links.owner(partition.partition_id)
        if owner is not None:
            self._assign(partition, owner)

    def set_endpoints(self, endpoints: Mapping[Endpoint, Sequence[Assigned]]) -> None:
        """Take the owners of the partitions from the cluster."""
        for partition_id, owner in self._links.assign(endpoints).items():
            if 0 <= partition_id < len(self.partitions):
                self._assign(self.partitions[partition_id], owner)

    def remove_server(self, endpoint: Endpoint) -> None:
        """Remove a server that has left the cluster."""
        link = self._links.remove(endpoint)
        if link is not None:
            for partition in self._mounted_on(link):
                partition.detach()

    async def close(self, caller: asyncio.Task[Any] | None = None) -> None:
        """Close connections and partitions. Undecided submissions fail.

        Does not wait for ``caller``. That may be a task that runs a callback of a partition.
        """
        self._links.closed = True
        await take_all(
            lambda: asyncio.gather(*(partition.close(caller) for partition in self.partitions)),
            self._links.close,
            self._tasks.close,
        )

    def _assign(self, partition: StreamPartition, owner: Owner) -> None:
        before = self._owners.get(partition.partition_id)
        self._owners[partition.partition_id] = owner.endpoint
        if before is not None and before != owner.endpoint and partition.active:
            self._settings.events.moved(partition.partition_id, before, owner.endpoint)
        link = self._links.to(owner.endpoint) if partition.needs_server else None
        if link is None or partition.mount.link is link:
            partition.set_generation(owner.generation)
            return
        partition.detach()
        partition.set_generation(owner.generation)
        partition.attach(link)

    def _mounted_on(self, link: ServerLink) -> list[StreamPartition]:
        return [partition for partition in self.partitions if partition.mount.link is link]

    # Calls of the links: this is their LinkUser

    def link_ready(self, link: ServerLink) -> None:
        self._settings.events.connected(link.endpoint)
        for partition in self._mounted_on(link):
            partition.mount.link_ready()

    def link_lost(self, link: ServerLink, error: Exception) -> None:
        self._settings.events.lost(link.endpoint, error)
        for partition in self._mounted_on(link):
            partition.mount.link_lost()

    def link_refused(self, link: ServerLink) -> None:
        for partition in self._mounted_on(link):
            partition.appends.signal.notify()

    def link_writable(self, link: ServerLink) -> None:
        for partition in self._mounted_on(link):
            partition.appends.signal.notify()

    def link_received(self, link: ServerLink, buffer: bytes, bounds: Bounds) -> None:
        """Hand each message to its partition. Messages for partitions that are not mounted on this server are
        dropped."""
        channel = link.channel
        assert channel is not None
        version = channel.version
        head = feed_data_head(version)
        found = b""  # the present partition, in the form of request ids
        runs = 0  # of one partition each
        for start, end in bounds:
            if buffer[start - FRAME_HEADER_SIZE_BYTES : start + 1] != head:
                self._receive(link, decode(buffer, start, end, version))
                continue
            for item in fed(buffer, start, end):  # nearly all messages are of this kind, and come in runs
                wanted = item[0][PARTITION_PART]
                if wanted != found:
                    partition = self._partition_of(item[0])
                    mount = partition.mount
                    offer = partition.feed.offer
                    found = wanted
                    runs += 1
                if mount.link is link:
                    offer(item)
        if found:
            # A client with thousands of appends under way is busy anyway, and best served by large batches. So are
            # several partitions: the rest of this turn goes to them in turn, and an early write would cut each batch in
            # two.
            channel.early_frames = max(MIN_EARLY_FRAMES, partition.appends.monitor.pending // 2) * runs

    def _receive(self, link: ServerLink, message: Message) -> None:
        partition = self._partition_of(message.req_id)
        if partition.mount.link is not link:
            return
        handle = partition.handlers.get(type(message))
        if handle is not None:
            handle(message)
        elif not link.answers_ping(message):
            raise ProtocolError(f"{type(message).__name__} is not for a client's stream connection")

    def _partition_of(self, req_id: bytes) -> StreamPartition:
        partition_id = int.from_bytes(req_id[PARTITION_PART], "big")
        if partition_id >= len(self.partitions):
            raise ProtocolError(f"message for an unknown partition: {ReqId(req_id)}")
        return self.partitions[partition_id]

    async def _nudge_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._long_wait_threshold_s)
            for partition in self.partitions:
                try:
                    partition.appends.nudge()
                except Exception:  # the other partitions have to be nudged nevertheless (a defect of the original)
                    logger.exception("partition %d could not be nudged", partition.partition_id)
            self._looked()

    async def _watch_links_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._look_interval_s)
            for link in self._links:
                link.check_silence()
