"""The feed: exact counts and terminators at every boundary, and a tip that nobody holds up."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.server.fakes import FakeChannel, channel_of, fed_ids, new_link, others, req_id, take
from waltz.common import tasks
from waltz.common.errors import ProtocolError, WaltzError
from waltz.common.metrics.registry import Histogram
from waltz.common.records import RecordHeader
from waltz.common.wire.client_server import FeedSuspended, encode, encode_feed_data
from waltz.server.feeding.caches import FEED_BLOCK_COUNT, FeedCache
from waltz.server.feeding.feed import MAX_CONTEXTS_PER_CONNECTION, MAX_SERVED_PER_TURN, Feed, FeedContext
from waltz.server.feeding.feed_frames import FEED_FRAME_SIZE_BYTES, FEED_VERSION, with_version
from waltz.server.requests.link import ClientLink


class Storages:
    """The committed headers of a partition; reads can be made to fail or to wait."""

    def __init__(self) -> None:
        self.mark = -1
        self.reads: list[tuple[int, int]] = []
        self.failures = 0
        self.gate: asyncio.Event | None = None
        self.short = False

    async def read(self, first: int, count: int) -> list[RecordHeader]:
        self.reads.append((first, count))
        if self.gate is not None:
            await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise WaltzError("no replica answered")
        last = min(first + (min(count, 3) if self.short else count) - 1, self.mark)
        return [RecordHeader(number, number.to_bytes(16, "big"), number) for number in range(first, last + 1)]


class Setup:
    def __init__(self, cache_bytes: int = 1 << 20) -> None:
        self.storages = Storages()
        self.cache = FeedCache(cache_bytes)
        self.misses = 0
        self.lag = Histogram((0, 10, 100))
        self.feed = Feed(0, self.cache, self.storages.read, self.missed, random.Random(1), self.lag)

    def missed(self) -> None:
        self.misses += 1

    def stored(self, mark: int) -> None:
        """Transactions that are at the storages but not in the cache."""
        self.storages.mark = mark
        self.feed.advance(mark)

    def commit(self, count: int) -> None:
        first = self.storages.mark + 1
        self.storages.mark += count
        items = [(number.to_bytes(16, "big"), number, number) for number in range(first, first + count)]
        frames = encode_feed_data(FEED_VERSION, items)
        self.cache.add(0, first, frames)
        self.feed.committed(first, count, frames)

    def context(self, link: ClientLink, position: int, remaining: int, spare: int = 0) -> None:
        terminator = encode(FeedSuspended(req_id(77)), link.channel.version)
        self.feed.add(FeedContext(link, position, remaining, terminator, spare))


async def settle(turns: int = 40) -> None:
    """Let the loop run what is ready."""
    for _ in range(turns):
        await asyncio.sleep(0)


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    made = Setup()
    made.feed.start()
    yield made
    await made.feed.close()


@pytest.mark.parametrize("batches", [[1] * 10, [10], [9, 1], [1, 9], [4, 6], [3, 3, 3, 3], [11], [25]])
async def test_a_context_at_the_tip_ends_exactly_where_promised(setup: Setup, batches: list[int]) -> None:
    link = new_link()
    setup.context(link, -1, 10)
    for count in batches:
        setup.commit(count)
    messages = take(link)
    assert fed_ids(messages) == list(range(10))
    assert messages[-1] == FeedSuspended(req_id(77))
    assert len(messages) == 11
    setup.commit(1)
    assert take(link) == []
    assert setup.feed.contexts_added == setup.feed.contexts_removed == 1


@pytest.mark.parametrize(
    ("batches", "fed"), [([1] * 10, 5), ([10], 10), ([11], 10), ([4, 4], 8), ([5, 1], 5), ([4, 7], 10), ([1, 9], 10)]
)
async def test_a_context_with_spare_transactions_ends_with_a_batch(setup: Setup, batches: list[int], fed: int) -> None:
    link = new_link()
    setup.context(link, -1, 10, spare=5)
    for count in batches:
        setup.commit(count)
    messages = take(link)
    assert fed_ids(messages) == list(range(fed))
    assert others(messages) == [FeedSuspended(req_id(77))]
    assert setup.feed.contexts_added == setup.feed.contexts_removed == 1


async def test_who_is_behind_is_fed_the_spare_transactions_too(setup: Setup) -> None:
    setup.stored(3 * FEED_BLOCK_COUNT)
    link = new_link()
    setup.context(link, 10, 2 * FEED_BLOCK_COUNT, spare=FEED_BLOCK_COUNT)
    await settle()
    messages = take(link)
    assert fed_ids(messages) == list(range(11, 11 + 2 * FEED_BLOCK_COUNT))
    assert others(messages) == [FeedSuspended(req_id(77))]


async def test_no_batch_is_divided_for_a_client_that_asks_again(setup: Setup) -> None:
    link = new_link()
    position = -1
    setup.context(link, position, 20, spare=10)
    for _ in range(50):
        setup.commit(7)
        messages = take(link)
        assert fed_ids(messages) == list(range(position + 1, position + 8))
        position += 7
        if others(messages):
            setup.context(link, position, 20, spare=10)


@pytest.mark.parametrize("version", range(FEED_VERSION + 1))
async def test_every_version_gets_its_own_frames(setup: Setup, version: int) -> None:
    links = [new_link(version=version), new_link(client_id=2), new_link(client_id=3, version=version)]
    for link in links:
        setup.context(link, -1, 100)
    setup.commit(3)
    for link in links:
        assert fed_ids(take(link)) == [0, 1, 2]


async def test_all_at_the_tip_get_one_and_the_same_object(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bytes] = []
    links = [new_link(client_id=number) for number in range(5)]
    for link in links:
        setup.context(link, -1, 100)
        monkeypatch.setattr(link.channel, "send", sent.append)
    setup.commit(4)
    assert len(sent) == 5
    assert all(frames is sent[0] for frames in sent)


@pytest.mark.parametrize("gap", [1, 2, FEED_BLOCK_COUNT - 1, FEED_BLOCK_COUNT, FEED_BLOCK_COUNT + 1, 3000])
@pytest.mark.parametrize("cached", [True, False])
async def test_a_context_behind_is_brought_to_the_tip_and_goes_on(setup: Setup, gap: int, cached: bool) -> None:
    if cached:
        setup.commit(gap)
    else:
        setup.stored(gap - 1)
    link = new_link()
    setup.context(link, -1, gap + 5)
    await settle()
    assert fed_ids(take(link)) == list(range(gap))
    assert bool(setup.misses) is not cached
    setup.commit(3)
    assert fed_ids(take(link)) == [gap, gap + 1, gap + 2]
    setup.commit(3)
    messages = take(link)
    assert fed_ids(messages) == [gap + 3, gap + 4]
    assert others(messages) == [FeedSuspended(req_id(77))]


async def test_a_context_that_ends_below_the_tip_gets_no_more(setup: Setup) -> None:
    setup.stored(2000)
    link = new_link()
    setup.context(link, 3, 1500)
    await settle()
    messages = take(link)
    assert fed_ids(messages) == list(range(4, 1504))
    assert messages[-1] == FeedSuspended(req_id(77))


async def test_commits_meanwhile_do_not_disturb_a_context_behind(setup: Setup) -> None:
    setup.stored(99)
    setup.storages.gate = asyncio.Event()
    behind, tip = new_link(client_id=1), new_link(client_id=2)
    setup.context(behind, -1, 110)
    setup.context(tip, 99, 10)
    await settle()
    assert setup.storages.reads == [(0, 100)]
    setup.commit(5)
    assert fed_ids(take(tip)) == [100, 101, 102, 103, 104], "the tip does not wait for a read"
    assert take(behind) == []
    setup.storages.gate.set()
    await settle()
    setup.commit(5)
    await settle()
    messages = take(behind)
    assert fed_ids(messages) == list(range(110))
    assert others(messages) == [FeedSuspended(req_id(77))]


async def test_the_cache_serves_others_while_a_read_is_stuck(setup: Setup) -> None:
    setup.stored(5000)
    setup.commit(10)
    setup.storages.gate = asyncio.Event()
    far, near = new_link(client_id=1), new_link(client_id=2)
    setup.context(far, -1, 10)
    await settle()
    setup.context(near, 5003, 7)
    await settle()
    assert fed_ids(take(near)) == list(range(5004, 5011))
    assert take(far) == []


async def test_contexts_at_the_same_position_share_one_read(setup: Setup) -> None:
    setup.stored(99)
    links = [new_link(client_id=number) for number in range(10)]
    for link in links:
        setup.context(link, -1, 100)
    await settle()
    assert setup.storages.reads == [(0, 100)]
    for link in links:
        assert fed_ids(take(link)) == list(range(100))


async def test_a_failed_read_is_tried_again(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waltz.server.feeding.feed.RETRY_INITIAL_S", 0.0001)
    setup.stored(9)
    setup.storages.failures = 3
    await setup.feed.close()
    setup.feed.start()
    link = new_link()
    setup.context(link, -1, 10)
    async with asyncio.timeout(60):
        while not (messages := take(link)):
            await asyncio.sleep(0.001)
    assert fed_ids(messages) == list(range(10))
    assert len(setup.storages.reads) == 4


async def test_short_reads_and_a_cache_without_room_make_progress() -> None:
    setup = Setup(cache_bytes=0)
    setup.feed.start()
    setup.storages.short = True
    setup.stored(3 * FEED_BLOCK_COUNT)
    one, two = new_link(client_id=1), new_link(client_id=2)
    setup.context(one, -1, 50)
    setup.context(two, 2 * FEED_BLOCK_COUNT, 50)
    await settle(300)
    assert fed_ids(take(one)) == list(range(50))
    assert fed_ids(take(two)) == list(range(2 * FEED_BLOCK_COUNT + 1, 2 * FEED_BLOCK_COUNT + 51))
    await setup.feed.close()


async def test_a_channel_that_is_not_writable_is_paused_and_resumed(setup: Setup) -> None:
    link = new_link()
    channel = channel_of(link)
    setup.context(link, -1, 100)
    channel.writable = False
    setup.commit(10)
    setup.commit(10)
    assert take(link) == []
    assert list(link.paused) == [setup.feed], "it waits to be called and is not looked at meanwhile"
    setup.feed.writable(link)
    await settle()
    assert take(link) == [], "still not writable"
    channel.writable = True
    link.resume_paused()
    await settle()
    assert fed_ids(take(link)) == list(range(20))
    setup.commit(1)
    assert fed_ids(take(link)) == [20]


async def test_resuming_a_channel_behind_pauses_again_when_it_fills(setup: Setup) -> None:
    setup.stored(5 * FEED_BLOCK_COUNT - 1)
    link = new_link()
    channel = channel_of(link)
    setup.context(link, -1, 5 * FEED_BLOCK_COUNT)
    fed: list[int] = []
    for _ in range(5):
        channel.writable, channel.writable_for = True, 1
        link.resume_paused()
        await settle()
        run = fed_ids(take(link))
        assert run, "every time it is writable something comes"
        fed += run
    assert fed == list(range(5 * FEED_BLOCK_COUNT))


async def test_pausing_one_does_not_pause_others(setup: Setup) -> None:
    slow, fast = new_link(client_id=1), new_link(client_id=2)
    setup.context(slow, -1, 100)
    setup.context(fast, -1, 100)
    channel_of(slow).writable = False
    setup.commit(3)
    assert fed_ids(take(fast)) == [0, 1, 2]
    assert take(slow) == []


async def test_a_closed_connection_is_dropped(setup: Setup) -> None:
    setup.stored(9)
    tip, behind = new_link(client_id=1), new_link(client_id=2)
    setup.context(tip, 9, 10)
    setup.context(behind, 2, 10)
    for link in (tip, behind):
        link.channel.abort()
    setup.commit(1)
    await settle()
    assert setup.feed.contexts_removed == 2
    assert take(tip) == take(behind) == []


async def test_forgetting_a_connection_during_its_read(setup: Setup) -> None:
    setup.stored(9)
    setup.storages.gate = asyncio.Event()
    link = new_link()
    setup.context(link, -1, 10)
    await settle()
    setup.feed.forget(link)
    setup.storages.gate.set()
    await settle()
    assert take(link) == []
    assert setup.feed.contexts_removed == 1


async def test_a_gap_in_the_commits_is_read_from_the_storages(setup: Setup) -> None:
    link = new_link()
    setup.commit(5)
    setup.context(link, 4, 100)
    setup.stored(9)
    setup.commit(2)
    await settle()
    assert fed_ids(take(link)) == list(range(5, 12))


async def test_a_mark_that_moved_down_closes_who_was_fed_more(setup: Setup) -> None:
    setup.commit(10)
    ahead, behind = new_link(client_id=1), new_link(client_id=2)
    setup.context(ahead, 9, 100)
    setup.context(behind, 3, 100)
    setup.feed.advance(5)
    assert channel_of(ahead).closed
    assert not channel_of(behind).closed


async def test_the_number_of_contexts_of_a_connection_is_limited(setup: Setup) -> None:
    link, other = new_link(client_id=1), new_link(client_id=2)
    for _ in range(MAX_CONTEXTS_PER_CONNECTION):
        setup.context(link, -1, 10)
    with pytest.raises(ProtocolError, match="more than"):
        setup.context(link, -1, 10)
    setup.context(other, -1, 10)


async def test_two_contexts_of_one_connection_are_independent(setup: Setup) -> None:
    link = new_link()
    setup.context(link, -1, 3)
    setup.context(link, -1, 5)
    setup.commit(6)
    assert sorted(fed_ids(take(link))) == [0, 0, 1, 1, 2, 2, 3, 4]


async def test_nothing_is_sent_after_close(setup: Setup) -> None:
    setup.stored(9)
    link = new_link()
    setup.context(link, -1, 10)
    await setup.feed.close()
    await settle()
    assert take(link) == []


steps = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.integers(1, 300)),
        st.tuples(st.just("stored"), st.integers(1, 1500)),
        st.tuples(st.just("context"), st.tuples(st.integers(0, 2000), st.integers(1, 1500), st.integers(0, 1500))),
        st.tuples(st.just("block"), st.integers(0, 10)),
        st.tuples(st.just("run"), st.integers(0, 3)),
    ),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(steps)
def test_every_promise_is_kept_exactly(actions: list[tuple[str, object]]) -> None:
    """Whatever happens in whatever order: consecutive ids from the position on, the count but for what may be spared,
    the terminator."""

    async def scenario() -> None:
        setup = Setup(cache_bytes=80_000)
        setup.feed.start()
        promises: list[tuple[ClientLink, int, int, int]] = []
        for action, argument in actions:
            if action == "commit" and isinstance(argument, int):
                setup.commit(argument)
            elif action == "stored" and isinstance(argument, int):
                setup.stored(setup.storages.mark + argument)
            elif action == "context" and isinstance(argument, tuple):
                link = new_link(client_id=len(promises), version=len(promises) % 5)
                position = min(argument[0] - 1, setup.storages.mark)
                spare = min(argument[2], argument[1] - 1)
                promises.append((link, position, argument[1], spare))
                setup.context(link, position, argument[1], spare)
            elif action == "block" and promises and isinstance(argument, int):
                channel = channel_of(promises[argument % len(promises)][0])
                channel.writable = not channel.writable
                if channel.writable:
                    promises[argument % len(promises)][0].resume_paused()
            elif isinstance(argument, int):
                await settle(argument)
        for link, *_ in promises:
            channel_of(link).writable = True
            link.resume_paused()
        await settle(400)
        for link, position, count, spare in promises:
            messages = take(link)
            fed = len(fed_ids(messages))
            assert fed_ids(messages) == list(range(position + 1, position + 1 + fed))
            possible = min(count, setup.storages.mark - position)
            assert fed == possible or (fed >= count - spare and others(messages))
            assert others(messages) == [FeedSuspended(req_id(77))] * (fed >= count - spare)
        await setup.feed.close()

    asyncio.run(scenario())


class CountingChannel(FakeChannel):
    """Counts what is sent instead of keeping it."""

    def __init__(self) -> None:
        super().__init__(FEED_VERSION)
        self.sends: list[int] = []

    def send(self, frame: bytes) -> None:
        self.sends.append(len(frame) // FEED_FRAME_SIZE_BYTES)


async def test_a_client_a_million_behind_is_served_in_bulk_and_slows_nobody(setup: Setup) -> None:
    """Whatever it needs, a commit is with those at the tip when it is done, and the loop turns in between are short."""
    million = 1_000_000
    setup.stored(million - 1)
    far, near = CountingChannel(), CountingChannel()
    far_link, near_link = ClientLink(far, 1), ClientLink(near, 2)
    setup.context(far_link, -1, million + 10_000)
    setup.context(near_link, million - 1, 10_000)
    commits = 0
    while sum(far.sends) < million:
        turn_before, tip_before = len(far.sends), sum(near.sends)
        await asyncio.sleep(0)
        assert len(far.sends) - turn_before <= 1, "one run per turn of the loop"
        if len(far.sends) % 200 == 0 and commits < 1000:
            setup.commit(1)
            commits += 1
            assert sum(near.sends) == tip_before + 1, "at once"
    assert max(far.sends) <= FEED_BLOCK_COUNT
    blocks = million // FEED_BLOCK_COUNT + 2
    assert len(setup.storages.reads) <= blocks, "one read for a block, not for a transaction"
    assert len(far.sends) <= blocks + commits
    await settle()
    assert sum(far.sends) == million + commits, "it has reached the tip"
    setup.commit(5)
    assert far.sends[-1] == near.sends[-1] == 5


async def test_a_commit_costs_one_conversion_for_each_version_however_many_clients(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversions: list[int] = []

    def counted(frames: bytes, version: int) -> bytes:
        conversions.append(version)
        return with_version(frames, version)

    monkeypatch.setattr("waltz.server.feeding.feed.with_version", counted)
    links = [new_link(client_id=number, version=FEED_VERSION - number % 3) for number in range(300)]
    for link in links:
        setup.context(link, -1, 1000)
    for _ in range(4):
        setup.commit(10)
    assert sorted(conversions) == [FEED_VERSION - 2] * 4 + [FEED_VERSION - 1] * 4
    assert all(fed_ids(take(link)) == list(range(40)) for link in links)


async def test_a_defect_breaks_the_connections_that_are_fed_and_the_feed_goes_on(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tasks, "RESTART_PAUSE_S", 0)
    setup.stored(9)
    links = [new_link(number) for number in (1, 2)]

    async def fail(first: int, count: int) -> list[RecordHeader]:
        raise ArithmeticError("planted")

    with monkeypatch.context() as planted:
        planted.setattr(setup.feed, "_read_headers", fail)
        for link in links:
            setup.context(link, -1, 10)
        await settle()
    assert [channel_of(link).closed for link in links] == [True, True]
    assert "the feed of partition 0 has failed for an unforeseen reason" in caplog.text
    again = new_link()
    setup.context(again, -1, 10)
    await settle()
    assert fed_ids(take(again)) == list(range(10))


async def test_a_crowd_is_served_in_several_turns(setup: Setup) -> None:
    """No turn of the loop sends to more than so many, in the end all have everything, and each in order."""
    crowd = 2 * MAX_SERVED_PER_TURN + 500
    channels = [CountingChannel() for _ in range(crowd)]
    for number, channel in enumerate(channels):
        link = ClientLink(channel, number)
        setup.context(link, -1, 1000)

    def sends() -> int:
        return sum(len(channel.sends) for channel in channels)

    setup.commit(1)
    assert sends() == MAX_SERVED_PER_TURN
    setup.commit(1)
    for _ in range(10):
        before = sends()
        await asyncio.sleep(0)
        assert sends() - before <= MAX_SERVED_PER_TURN
    assert all(sum(channel.sends) == 2 for channel in channels)


class Unhashed(ClientLink):
    """Counts how often it is compared or looked up."""

    lookups = 0

    def __hash__(self) -> int:
        Unhashed.lookups += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        Unhashed.lookups += 1
        return self is other


async def test_what_one_connection_does_costs_the_same_however_many_there_are(setup: Setup) -> None:
    """Coming, being paused and resumed, and going: all of it grows with the connections, and not with their square."""
    setup.commit(10)
    costs: list[int] = []
    for count in (100, 1000):
        Unhashed.lookups = 0
        links = [Unhashed(FakeChannel(FEED_VERSION), number) for number in range(count)]
        for link in links:
            setup.context(link, setup.storages.mark, 100)
            channel_of(link).writable = False
        setup.commit(1)
        for link in links:
            channel_of(link).writable = True
            link.resume_paused()
        await settle()
        setup.commit(1)
        for link in links:
            setup.feed.forget(link)
        costs.append(Unhashed.lookups)
        assert setup.feed.contexts_added == setup.feed.contexts_removed
    assert costs[1] <= 12 * costs[0]


async def test_what_connections_lack_is_observed(setup: Setup) -> None:
    """One observation whenever one is sent something; those at the tip lack nothing then."""
    at_tip, slow = new_link(), new_link()
    setup.context(at_tip, -1, 10_000)
    setup.context(slow, -1, 10_000)
    setup.commit(5)
    assert setup.lag.counts == [2, 0, 0, 0]
    take(slow)
    slow.channel.writable = False
    setup.commit(3 * FEED_BLOCK_COUNT)
    setup.commit(5)
    assert setup.lag.counts == [4, 0, 0, 0]
    assert setup.feed.lag_transactions == 3 * FEED_BLOCK_COUNT + 5
    assert [setup.feed.position_behind] == [4]
    slow.channel.writable = True
    setup.feed.writable(slow)
    await settle()
    assert setup.feed.lag_transactions == 0
    assert [setup.feed.position_behind] == [None]
    assert fed_ids(take(slow)) == list(range(5, 3 * FEED_BLOCK_COUNT + 10))
    assert setup.lag.counts[0] == 5
    assert sum(setup.lag.counts) > 5, "some pieces were sent while others were still to come"


async def test_nobody_lags_behind_what_was_not_promised(setup: Setup) -> None:
    link = new_link()
    setup.context(link, -1, 3)
    link.channel.writable = False
    setup.commit(100)
    assert setup.feed.lag_transactions == 3
    assert setup.feed.position_behind == -1
