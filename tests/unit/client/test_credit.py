"""How much a partition asks for, against a naive server, whatever is committed, delivered, applied and broken."""

import asyncio
import dataclasses
import random
from collections import deque
from collections.abc import Hashable
from typing import Any, NamedTuple, cast
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.client.application import QUICK, Callbacks
from waltz.client.engine.links.links import ServerLink
from waltz.client.engine.partition.feed import Applier
from waltz.client.engine.partition.partition import StreamPartition
from waltz.client.engine.settings import PartitionSettings, SessionSettings
from waltz.client.engine.submission import Limits
from waltz.client.engine.tasks import TaskOwner
from waltz.client.transaction import Transaction
from waltz.common.ids import ReqId
from waltz.common.wire.client_server import (
    FeedData,
    FeedRequest,
    FeedSuspended,
    HighWaterMarkRequest,
    HighWaterMarkResponse,
    Message,
    MountRequest,
    MountResponse,
    PartitionState,
    decode,
)
from waltz.common.wire.frames import FRAME_HEADER

MOST = 8  # what the server feeds for one request
LEAST = 3
LOW = 4
HIGH = LOW + MOST + 2  # more than may come
OPTIONS = dataclasses.replace(QUICK, feed_queue_low=LOW, feed_queue_high=HIGH)


class Step(NamedTuple):
    """What happens next, and how often."""

    what: str
    times: int


steps = st.lists(
    st.builds(
        Step,
        st.sampled_from(["commit", "deliver", "deliver", "apply", "apply", "reconnect", "remount"]),
        st.integers(1, 30),
    ),
    max_size=60,
)


class Slow(Callbacks):
    """Applies as many as it may."""

    def __init__(self) -> None:
        super().__init__()
        self.permits = asyncio.Semaphore(0)

    async def apply_transaction(self, transaction: Transaction) -> None:
        await self.permits.acquire()
        self.record(transaction)


class Line:
    """A connection with the server at its other end, which sends when it is told to."""

    def __init__(self, partial_mounts: bool) -> None:
        self.partial_mounts = partial_mounts
        self.mark = -1
        self.version = 5
        self.seq_num = 0
        self.failure = None
        self.taken_bytes = 0
        self.was_paused = False
        self.paused_by: set[Hashable] = set()
        self.answers: deque[Message] = deque()
        self.context: tuple[int, int, Message] | None = None
        self.mount_marks: list[int] = []

    @property
    def channel(self) -> "Line":
        return self

    @property
    def writable(self) -> bool:
        return True

    def left_bytes(self) -> int:
        return 0

    def expect_answer(self) -> None: ...

    def reconnect(self, reason: str) -> None:
        raise AssertionError(reason)

    def pause(self, who: Hashable) -> None:
        self.was_paused = True
        self.paused_by.add(who)

    def resume(self, who: Hashable) -> None:
        self.paused_by.discard(who)

    def broken(self) -> None:
        self.answers.clear()
        self.context = None
        self.paused_by.clear()
        self.seq_num += 1

    def send(self, frame: bytes) -> None:
        message = decode(frame, FRAME_HEADER.size, len(frame), self.version)
        if isinstance(message, MountRequest):
            gap = self.mark - message.client_high_water_mark
            self.mount_marks.append(self.mark)
            ready = MountResponse(message.req_id, PartitionState.READY)
            self.promise(message.client_high_water_mark, min(gap, MOST) if self.partial_mounts else gap, ready)
        elif isinstance(message, FeedRequest):
            assert self.context is None, "one feed is asked for at a time"
            gap = self.mark - message.client_high_water_mark
            self.promise(message.client_high_water_mark, max(min(gap, MOST), LEAST), FeedSuspended(message.req_id))
        elif isinstance(message, HighWaterMarkRequest):
            self.answers.append(HighWaterMarkResponse(message.req_id, self.mark))

    def promise(self, position: int, count: int, terminator: Message) -> None:
        if count == 0:
            self.context = None
            self.answers.append(terminator)
        else:
            self.context = position, count, terminator

    def next_message(self) -> Message | None:
        if self.paused_by:
            return None
        if self.answers:
            return self.answers.popleft()
        if self.context is None or self.context[0] >= self.mark:
            return None
        position, count, terminator = self.context
        if count == 1:
            self.context = None
            self.answers.append(terminator)
        else:
            self.context = position + 1, count - 1, terminator
        return FeedData(ReqId.of(9, 1, 0, position + 1), position + 1, 0)


class Run:
    """One partition of a client, mounted over one line."""

    def __init__(self, partial_mounts: bool) -> None:
        self.line = Line(partial_mounts)
        self.callbacks = Slow()
        self.generation = 1
        self.most_waiting = 0
        shared = PartitionSettings(
            applier=Applier(self.callbacks.apply_transaction, self.callbacks.uncaught_exception),
            max_concurrent_transactions=5,
            limits=Limits(1 << 20, 10),
            retries=False,
            sessions=SessionSettings(False, False, False, 30.0),
            applying=asyncio.Semaphore(1),
            tasks=TaskOwner(),
            options=OPTIONS,
            random_source=random.Random(1),
        )
        self.partition = StreamPartition(0, 7, shared, cast("Any", None))

    async def play(self, played: list[Step]) -> None:
        async def mark() -> int:
            return -1

        await self.partition.activate(mark, lambda: None)
        self.line.mark = 20
        self.partition.set_generation(1)
        self.partition.attach(cast("ServerLink", self.line))
        for step in played:
            await self.take(step)
        for _ in range(self.line.mark + 10):  # everything is delivered and applied in the end
            await self.take(Step("deliver", 2 * MOST))
            await self.take(Step("apply", 2 * MOST))
        assert self.callbacks.applied[0] == list(range(self.line.mark + 1))
        assert self.partition.mount.channel is not None
        await self.partition.close()

    async def take(self, step: Step) -> None:
        mount = self.partition.mount
        if step.what == "commit":
            self.line.mark += step.times
        elif step.what == "deliver":
            for _ in range(step.times):
                message = self.line.next_message()
                if message is not None:
                    self.receive(message)
        elif step.what == "apply":
            for _ in range(step.times):
                self.callbacks.permits.release()
                await asyncio.sleep(0)
            for _ in range(3):
                await asyncio.sleep(0)
        elif step.what == "reconnect":
            mount.link_lost()
            self.line.broken()
            mount.link_ready()
        else:
            self.generation += 1
            self.partition.set_generation(self.generation)
        self.most_waiting = max(self.most_waiting, self.partition.feed.backlog)
        if mount.channel is not None:
            applied = self.callbacks.applied.get(0, [-1])[-1]
            assert applied >= self.line.mount_marks[-1], "whoever appends has seen what was committed before the mount"

    def receive(self, message: Message) -> None:
        partition = self.partition
        if isinstance(message, FeedData):
            partition.feed.offer(message)
        elif isinstance(message, MountResponse):
            partition.mount.response(message)
        elif isinstance(message, FeedSuspended):
            partition.mount.feed_suspended(message)
        else:
            assert isinstance(message, HighWaterMarkResponse)
            partition.mount.mark_told(message)


def play(played: list[Step], *, partial_mounts: bool) -> Run:
    async def scenario() -> Run:
        run = Run(partial_mounts)
        await run.play(played)
        return run

    with mock.patch("waltz.client.engine.partition.mount.MAX_FEED_COUNT", MOST):
        return asyncio.run(scenario())


@settings(max_examples=200, deadline=None)
@given(steps)
def test_a_partition_asks_for_what_it_has_room_for(played: list[Step]) -> None:
    run = play(played, partial_mounts=True)
    assert run.most_waiting <= LOW + MOST + 1, "with the answer to a mount"
    assert not run.line.was_paused


@settings(max_examples=100, deadline=None)
@given(steps)
def test_a_server_that_feeds_a_mount_as_a_whole_is_not_read_for_a_while(played: list[Step]) -> None:
    run = play(played, partial_mounts=False)
    assert run.most_waiting <= HIGH + 1
