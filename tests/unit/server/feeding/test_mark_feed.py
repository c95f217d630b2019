"""The feed of marks: each reader is told the latest mark, holds nobody up, and gets its transactions when it asks."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.server.fakes import channel_of, fed_ids, new_link, req_id, take
from tests.unit.server.feeding.test_feed import Setup, settle, setup
from waltz.common.ids import ReqId
from waltz.common.wire.client_server import FeedSuspended, encode
from waltz.common.wire.mark_feed import MarkAdvanced
from waltz.server.feeding.feed import MAX_SERVED_PER_TURN, FeedContext, marks_context
from waltz.server.feeding.feed_frames import FEED_VERSION
from waltz.server.requests.link import ClientLink

__all__ = ["setup"]


def told(link: ClientLink) -> list[int]:
    """The marks that a connection was told; nothing else was sent."""
    messages = take(link)
    assert all(isinstance(message, MarkAdvanced) for message in messages)
    return [message.transaction_id for message in messages if isinstance(message, MarkAdvanced)]


def reader(setup: Setup, position: int, client_id: int = 1) -> ClientLink:
    link = new_link(client_id=client_id, version=FEED_VERSION)
    setup.feed.add(marks_context(link, position))
    return link


async def test_a_reader_is_told_each_mark_and_no_transaction(setup: Setup) -> None:
    link = reader(setup, -1)
    assert told(link) == []
    setup.commit(3)
    setup.commit(1)
    assert told(link) == [2, 3]


async def test_the_message_names_the_partition(setup: Setup) -> None:
    link = reader(setup, -1)
    setup.commit(1)
    assert take(link) == [MarkAdvanced(ReqId.of(-1, -1, 0, -1), 0)]


async def test_a_reader_that_is_behind_is_told_at_once_and_nothing_is_read(setup: Setup) -> None:
    setup.stored(5_000_000)
    link = reader(setup, 7)
    await settle()
    assert told(link) == [5_000_000]
    assert setup.storages.reads == []
    assert setup.misses == 0


async def test_all_readers_get_the_same_object(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bytes] = []
    for number in range(20):
        monkeypatch.setattr(reader(setup, -1, number).channel, "send", sent.append)
    setup.commit(2)
    assert len(sent) == 20
    assert all(frame is sent[0] for frame in sent)


async def test_a_reader_that_cannot_be_written_to_is_told_the_latest_mark_later(setup: Setup) -> None:
    slow, fast = reader(setup, -1, 1), reader(setup, -1, 2)
    channel_of(slow).writable = False
    setup.commit(1)
    setup.commit(1)
    assert (told(slow), told(fast)) == ([], [0, 1])
    channel_of(slow).writable = True
    slow.resume_paused()
    await settle()
    assert told(slow) == [1]
    setup.commit(1)
    assert told(slow) == [2]


async def test_a_gap_in_the_commits_moves_the_mark_as_well(setup: Setup) -> None:
    link = reader(setup, -1)
    setup.stored(9)
    await settle()
    assert told(link) == [9]


async def test_a_mark_that_moved_down_closes_the_readers_that_were_told_more(setup: Setup) -> None:
    link = reader(setup, -1)
    setup.commit(5)
    setup.feed.advance(2)
    assert channel_of(link).error is not None


async def test_the_transactions_behind_a_feed_request_come_instead_of_marks(setup: Setup) -> None:
    link = reader(setup, -1)
    setup.commit(2)
    assert told(link) == [1]
    terminator = encode(FeedSuspended(req_id(77)), FEED_VERSION)
    setup.feed.add(FeedContext(link, 1, 3, terminator))
    setup.commit(3)
    assert fed_ids(messages := take(link)) == [2, 3, 4]
    assert messages[-1] == FeedSuspended(req_id(77))
    setup.commit(1)
    assert take(link) == []


async def test_a_connection_has_one_feed_of_marks(setup: Setup) -> None:
    link = reader(setup, -1)
    for _ in range(200):
        setup.feed.add(marks_context(link, -1))
    setup.commit(1)
    assert told(link) == [0]


async def test_a_closed_connection_is_told_nothing(setup: Setup) -> None:
    link = reader(setup, -1)
    setup.feed.forget(link)
    setup.commit(1)
    assert take(link) == []
    assert setup.feed.contexts_added == setup.feed.contexts_removed == 1


async def test_a_crowd_is_told_in_several_turns(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[ClientLink] = []
    crowd = [reader(setup, -1, number) for number in range(2 * MAX_SERVED_PER_TURN + 10)]
    for link in crowd:
        monkeypatch.setattr(link.channel, "send", lambda frame, link=link: sent.append(link))
    setup.commit(1)
    assert len(sent) == MAX_SERVED_PER_TURN
    for _ in range(5):
        before = len(sent)
        await asyncio.sleep(0)
        assert len(sent) - before <= MAX_SERVED_PER_TURN
    assert len(sent) == len(crowd)
    assert set(sent) == set(crowd)


@pytest.mark.parametrize("writable", [True, False])
async def test_notices_are_sent_all_the_same(setup: Setup, writable: bool) -> None:
    link = reader(setup, -1)
    channel_of(link).writable = writable
    setup.storages.mark = 0
    notice = encode(FeedSuspended(req_id(5)), FEED_VERSION)
    setup.feed.committed(0, 1, bytes(0), {link: [(0, notice)]})
    assert FeedSuspended(req_id(5)) in take(link)


ACTIONS = st.lists(
    st.sampled_from(["commit", "stored", "marks", "feed", "block", "run"]),
    min_size=5,
    max_size=40,
)


@settings(max_examples=100, deadline=None)
@given(ACTIONS)
def test_a_reader_that_changes_between_both_kinds_knows_every_transaction_in_order(actions: list[str]) -> None:
    """A client that takes marks and transactions as they come knows the log's end, and has every transaction that was
    committed after its last feed request."""

    async def scenario() -> None:
        setup = Setup()
        setup.feed.start()
        link = new_link(version=FEED_VERSION)
        received = -1
        needed: int | None = None  # the first transaction that must not be passed by, as far as anything is fed
        fed: set[int] = set()
        promised = 0

        def look() -> None:
            nonlocal received
            for message in take(link):
                if isinstance(message, MarkAdvanced):
                    assert message.transaction_id > received or needed is not None
                    received = max(received, message.transaction_id)
                else:
                    for transaction_id in fed_ids([message]):
                        if transaction_id == received + 1:
                            received = transaction_id
                            fed.add(transaction_id)

        for action in actions:
            if action == "commit":
                setup.commit(3)
            elif action == "stored":
                setup.stored(setup.storages.mark + 2)
            elif action == "marks" and promised == 0:
                look()
                setup.feed.add(marks_context(link, received))
                needed = None
            elif action == "feed" and promised == 0:
                setup.feed.add(FeedContext(link, received, 1 << 40, b""))
                needed = setup.storages.mark + 1
                promised = 1
            elif action == "block":
                channel_of(link).writable = not channel_of(link).writable
                link.resume_paused()
            elif action == "run":
                await settle(3)
                look()
        channel_of(link).writable = True
        link.resume_paused()
        await settle(400)
        look()
        if promised or "marks" in actions:
            assert received == setup.storages.mark
        if needed is not None:
            assert fed >= set(range(needed, setup.storages.mark + 1))
        await setup.feed.close()

    asyncio.run(scenario())
