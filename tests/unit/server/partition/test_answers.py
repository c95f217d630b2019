"""Verdicts become messages."""

import random

import pytest

from tests.unit.server.fakes import append, channel_of, feed, flush, mount, new_link, req_id, take
from waltz.common.errors import ProtocolError
from waltz.common.ids import LONG_MIN
from waltz.common.metrics.registry import Histogram
from waltz.common.records import RecordHeader
from waltz.common.wire.client_server import (
    MAX_FEED_COUNT,
    FlushResponse,
    HighWaterMarkRequest,
    HighWaterMarkResponse,
    LockFailure,
    Message,
    MountResponse,
    PartitionState,
    decode,
)
from waltz.common.wire.frames import CLIENT_SERVER, FrameSplitter
from waltz.server.feeding.caches import FeedCache
from waltz.server.feeding.feed import MAX_CONTEXTS_PER_CONNECTION, Feed, FeedContext
from waltz.server.partition.answers import Answers, lock_failures
from waltz.server.partition.sequencer import Verdict
from waltz.server.requests.pending import Pending, WaitingRequest

READY, AHEAD, UNKNOWN = Verdict.READY, Verdict.AHEAD, Verdict.UNKNOWN


class NotedFeed(Feed):
    """Keeps what is promised."""

    def __init__(self) -> None:
        super().__init__(3, FeedCache(1 << 20), self.read, lambda: None, random.Random(1), Histogram((0,)))
        self.promised: list[FeedContext] = []

    async def read(self, first: int, count: int) -> list[RecordHeader]:
        raise AssertionError

    def add(self, context: FeedContext) -> None:
        if len(self.promised) >= MAX_CONTEXTS_PER_CONNECTION:
            raise ProtocolError("too many")
        self.promised.append(context)


@pytest.mark.parametrize(
    ("request_", "verdict", "answer"),
    [
        (HighWaterMarkRequest(req_id(1)), READY, HighWaterMarkResponse(req_id(1), 9)),
        (HighWaterMarkRequest(req_id(1)), UNKNOWN, HighWaterMarkResponse(req_id(1), LONG_MIN)),
        (flush(1), READY, FlushResponse(req_id(1), 9)),
        (flush(1), UNKNOWN, None),
        (mount(1, 9), READY, MountResponse(req_id(1), PartitionState.READY)),
        (mount(1, 9), AHEAD, MountResponse(req_id(1), PartitionState.CLIENT_AHEAD)),
        (mount(1, 9), UNKNOWN, MountResponse(req_id(1), PartitionState.NOT_READY)),
        (feed(1, 11), UNKNOWN, None),
    ],
)
def test_a_verdict_is_told(request_: WaitingRequest, verdict: Verdict, answer: Message | None) -> None:
    link, noted = new_link(), NotedFeed()
    Answers(3, noted, 100).give(Pending(link, request_), verdict, 9)
    assert take(link) == ([] if answer is None else [answer])
    assert not noted.promised
    assert channel_of(link).error is None


def test_a_feed_from_beyond_the_mark_ends_its_connection() -> None:
    link = new_link()
    Answers(3, NotedFeed(), 100).give(Pending(link, feed(1, 11)), AHEAD, 9)
    assert str(channel_of(link).error) == "feed of partition 3 from 11 on, which is above the high-water mark 9"


@pytest.mark.parametrize(
    ("version", "gap", "mounted", "fed", "spare"),
    [
        (4, 5, 5, 100, 0),
        (4, 2 * MAX_FEED_COUNT, 2 * MAX_FEED_COUNT, 2 * MAX_FEED_COUNT, 0),
        (5, 5, 5, MAX_FEED_COUNT, MAX_FEED_COUNT // 2),
        (5, 2 * MAX_FEED_COUNT, MAX_FEED_COUNT, MAX_FEED_COUNT, MAX_FEED_COUNT // 2),
    ],
)
def test_what_is_promised_depends_on_the_version(version: int, gap: int, mounted: int, fed: int, spare: int) -> None:
    link, noted = new_link(version=version), NotedFeed()
    answers = Answers(3, noted, 100)
    answers.give(Pending(link, mount(1, 9)), READY, 9 + gap)
    answers.feed(link, feed(1, 9), 9 + gap)
    promised = [(context.position, context.remaining, context.spare) for context in noted.promised]
    assert promised == [(9, mounted, 0), (9, fed, spare)]


@pytest.mark.parametrize(
    ("min_fetch_size", "spare"), [(MAX_FEED_COUNT - 1, 1), (MAX_FEED_COUNT, 0), (MAX_FEED_COUNT + 1, 0)]
)
def test_the_configured_minimum_is_promised_for_certain(min_fetch_size: int, spare: int) -> None:
    noted = NotedFeed()
    Answers(3, noted, min_fetch_size).feed(new_link(version=5), feed(1, 9), 9)
    assert [(context.remaining, context.spare) for context in noted.promised] == [(MAX_FEED_COUNT, spare)]


def test_too_many_promises_end_the_connection_of_a_mount() -> None:
    link, noted = new_link(), NotedFeed()
    answers = Answers(3, noted, 100)
    for number in range(MAX_CONTEXTS_PER_CONNECTION + 1):
        answers.give(Pending(link, mount(number, 8)), READY, 9)
    assert isinstance(channel_of(link).error, ProtocolError)


def test_lock_failures_go_to_the_feeds_of_those_who_sent_the_appends() -> None:
    one, other = new_link(version=5), new_link(client_id=2)
    decided = [
        (7, Pending(one, append(1))),
        (7, Pending(other, append(2, client_id=2))),
        (7, Pending(one, flush(3))),
        (8, Pending(one, append(4))),
    ]
    notices = lock_failures(decided)
    told = {
        link: [(at, *decoded(frame, link.channel.version)) for at, frame in found] for link, found in notices.items()
    }
    assert told == {
        one: [(7, LockFailure(req_id(1), 7)), (8, LockFailure(req_id(4), 8))],
        other: [(7, LockFailure(req_id(2, 2), 7))],
    }


def decoded(frame: bytes, version: int) -> list[Message]:
    buffer, bounds = FrameSplitter(CLIENT_SERVER.magic, version).feed(frame)
    return [decode(buffer, start, end, version) for start, end in bounds]
