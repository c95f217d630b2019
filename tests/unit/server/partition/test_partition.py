"""A partition against a log that commits when it is told to."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable

import pytest

from tests.unit.server.fakes import (
    GENERATION,
    PartitionSetup,
    append,
    channel_of,
    fed_ids,
    feed,
    flush,
    mount,
    new_link,
    others,
    req_id,
    take,
)
from waltz.common.errors import ProtocolError
from waltz.common.ids import LONG_MIN, ReqId
from waltz.common.wire.client_server import (
    MAX_FEED_COUNT,
    FeedData,
    FeedRequest,
    FeedSuspended,
    FlushResponse,
    HighWaterMarkRequest,
    HighWaterMarkResponse,
    LockFailure,
    Message,
    MountResponse,
    PartitionState,
    TransactionDataRequest,
    TransactionDataResponse,
    encode_feed_data,
)
from waltz.common.wire.mark_feed import MarkAdvanced, MarkFeedRequest
from waltz.common.wire.version5 import (
    AppendFailed,
    AppendFailure,
    DataListStatus,
    PartitionClosed,
    TransactionDataListRequest,
    TransactionDataListResponse,
)
from waltz.server.feeding.feed_frames import FEED_VERSION
from waltz.server.partition.partition import PartitionOptions
from waltz.server.requests.link import ClientLink
from waltz.server.store.memory import MIN_SHARE_BYTES, MemoryBudget

READY, NOT_READY, CLIENT_AHEAD = PartitionState.READY, PartitionState.NOT_READY, PartitionState.CLIENT_AHEAD

Make = Callable[..., PartitionSetup]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    """Makes started partitions; they are closed in the end."""
    made: list[PartitionSetup] = []

    def make_one(
        records: int = 0, *, session: bool = True, memory: MemoryBudget | None = None, **options: float
    ) -> PartitionSetup:
        partition_options = PartitionOptions(**options)  # type: ignore[arg-type]  # ints are floats here
        setup = PartitionSetup(records, partition_options, memory=memory)
        setup.partition.start()
        if session:
            setup.log.open_session()
        made.append(setup)
        return setup

    yield make_one
    for setup in made:
        if not setup.partition.closed:
            await setup.partition.close()


async def settle() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


async def answer(link: ClientLink) -> list[Message]:
    """Wait for something to be sent."""
    async with asyncio.timeout(60):
        while not (messages := take(link)):
            await asyncio.sleep(0.001)
    return messages


# Mount


@pytest.mark.parametrize(
    ("records", "mark", "fed", "state"),
    [
        (0, -1, [], READY),
        (10, 9, [], READY),
        (10, -1, list(range(10)), READY),
        (10, 0, list(range(1, 10)), READY),
        (10, 10, [], CLIENT_AHEAD),
        (0, 0, [], CLIENT_AHEAD),
    ],
)
async def test_mount_feeds_exactly_to_the_mark(
    make: Make, records: int, mark: int, fed: list[int], state: PartitionState
) -> None:
    setup, link = make(records), new_link()
    setup.partition.mount(link, mount(1, mark))
    await settle()
    messages = take(link)
    assert fed_ids(messages) == fed
    assert others(messages) == [MountResponse(req_id(1), state)]
    assert others(messages)[-1] is messages[-1]


LARGE_GAP = 2 * MAX_FEED_COUNT + 10


@pytest.mark.parametrize(
    ("version", "fed"), [(4, [LARGE_GAP]), (5, [MAX_FEED_COUNT, MAX_FEED_COUNT, 10])], ids=["4", "5"]
)
async def test_a_feed_request_is_good_for_a_large_gap_or_a_part_of_it(make: Make, version: int, fed: list[int]) -> None:
    """Clients of the versions that the original has get the whole gap, as from the original."""
    setup, link = make(LARGE_GAP), new_link(version=version)
    setup.partition.mount(link, mount(1, LARGE_GAP - 1))
    take(link)
    position = -1
    for count in fed:
        setup.partition.feed(link, feed(1, position))
        await settle()
        messages = take(link)
        assert fed_ids(messages) == list(range(position + 1, position + 1 + count))
        position += count
        if position < LARGE_GAP - 1 or version < 5:
            assert messages[-1] == FeedSuspended(req_id(1))


@pytest.mark.parametrize(("version", "fed"), [(4, 2 * MAX_FEED_COUNT), (5, MAX_FEED_COUNT)])
async def test_a_mount_is_ready_when_a_part_of_a_large_gap_is_fed(make: Make, version: int, fed: int) -> None:
    """From version 5 on, where the client knows that it may have to ask for the rest."""
    setup, link = make(2 * MAX_FEED_COUNT), new_link(version=version)
    setup.partition.mount(link, mount(1, -1))
    await settle()
    messages = take(link)
    assert fed_ids(messages) == list(range(fed))
    assert others(messages) == [MountResponse(req_id(1), READY)]
    assert others(messages)[-1] is messages[-1]


async def test_no_setting_lets_a_feed_request_be_good_for_more(make: Make) -> None:
    setup, link = make(MAX_FEED_COUNT + 20, min_fetch_size=MAX_FEED_COUNT + 10), new_link(version=5)
    setup.partition.mount(link, mount(1, MAX_FEED_COUNT + 19))
    take(link)
    setup.partition.feed(link, feed(1, -1))
    await settle()
    messages = take(link)
    assert len(fed_ids(messages)) == MAX_FEED_COUNT
    assert messages[-1] == FeedSuspended(req_id(1))


async def test_mounting_anew_ends_what_earlier_mounts_were_promised(make: Make) -> None:
    setup, link = make(3), new_link()
    for number in range(1000):
        setup.partition.mount(link, mount(number, 2))
        setup.partition.feed(link, feed(number, 2))
    take(link)
    setup.partition.append(link, [append(1001)])
    setup.log.commit()
    assert fed_ids(take(link)) == [3], "once"
    gauges = {metric.name: read() for metric, read in setup.registry.gauges.items()}
    assert gauges["total-real-time-feed-context-added"] == 1000
    assert gauges["total-real-time-feed-context-removed"] == 999


async def test_nothing_is_fed_before_the_feed_request(make: Make) -> None:
    setup, link = make(3), new_link()
    setup.mounted(link)
    setup.partition.append(link, [append(1)])
    setup.log.commit()
    await settle()
    assert take(link) == []


@pytest.mark.parametrize("mark", [-2, LONG_MIN])
async def test_an_impossible_mark_is_a_protocol_error(make: Make, mark: int) -> None:
    setup, link = make(3), new_link()
    with pytest.raises(ProtocolError):
        setup.partition.mount(link, mount(1, mark))
    setup.mounted(link)
    with pytest.raises(ProtocolError):
        setup.partition.feed(link, feed(1, mark))


async def test_mount_waits_for_the_appends_before_it(make: Make) -> None:
    setup, old, new = make(1), new_link(number=0), new_link(seq_num=1, number=1)
    setup.mounted(old)
    setup.partition.append(old, [append(1), append(2)])
    setup.partition.mount(new, mount(3, 0, seq_num=1))
    setup.log.commit(1)
    assert take(new) == []
    setup.log.commit(1)
    await settle()
    messages = take(new)
    assert fed_ids(messages) == [1, 2]
    assert messages[-1] == MountResponse(req_id(3), READY)


async def test_mount_waits_for_the_first_session(make: Make) -> None:
    setup, link = make(2, session=False), new_link()
    setup.partition.mount(link, mount(1, 1))
    assert take(link) == []
    setup.log.open_session()
    assert take(link) == [MountResponse(req_id(1), READY)]


async def test_mount_without_a_session_is_not_ready_in_the_end(make: Make) -> None:
    setup, link = make(2, session=False, answer_timeout_s=0.01), new_link()
    setup.partition.mount(link, mount(1, 1))
    assert await answer(link) == [MountResponse(req_id(1), NOT_READY)]
    setup.log.open_session()
    await settle()
    assert take(link) == [], "one answer only"
    setup.partition.mount(link, mount(2, 1))
    assert take(link) == [MountResponse(req_id(2), READY)]


async def test_mount_behind_appends_that_are_never_decided_is_not_ready_in_the_end(make: Make) -> None:
    setup, link = make(answer_timeout_s=0.01), new_link()
    setup.mounted(link)
    setup.partition.append(link, [append(1)])
    setup.partition.mount(link, mount(2, -1))
    assert await answer(link) == [MountResponse(req_id(2), NOT_READY)]
    setup.log.commit()
    assert take(link) == []


async def test_mount_survives_a_change_of_session(make: Make) -> None:
    setup, link = make(), new_link()
    setup.mounted(link)
    setup.partition.append(link, [append(1), append(2)])
    setup.partition.mount(link, mount(3, -1))
    setup.log.end_session()
    assert take(link) == []
    setup.log.reopen(committed=1)
    await settle()
    messages = take(link)
    assert fed_ids(messages) == [0]
    assert messages[-1] == MountResponse(req_id(3), READY)


async def test_a_stale_mount_is_told_not_ready(make: Make) -> None:
    setup = make(1)
    new, old = new_link(seq_num=5, number=1), new_link(seq_num=4, number=0)
    setup.mounted(new)
    setup.partition.mount(old, mount(1, 0, seq_num=4))
    assert take(old) == [MountResponse(req_id(1), NOT_READY)]
    setup.partition.append(old, [append(2)])
    assert setup.log.batches == []
    assert setup.meter("stale-append") == 1
    setup.partition.append(new, [append(2)])
    assert setup.log.batches == [1]


async def test_a_mount_may_be_of_an_older_generation(make: Make) -> None:
    setup, link = make(1), new_link()
    setup.partition.mount(link, mount(1, 0, generation=GENERATION - 1))
    assert take(link) == [MountResponse(req_id(1, generation=GENERATION - 1), READY)]


async def test_a_mount_of_a_newer_generation_waits_for_a_session_of_it(make: Make) -> None:
    """The owner between may still commit what its clients have sent it: the present mark says nothing of that."""
    setup, link = make(1), new_link()
    setup.partition.mount(link, mount(1, 0, generation=GENERATION + 1))
    setup.log.end_session()
    setup.log.reopen(committed=0)
    await settle()
    assert take(link) == []
    setup.partition.set_generation(GENERATION + 1)
    setup.log.end_session()
    setup.log.reopen(committed=0, foreign=2)
    await settle()
    messages = take(link)
    assert fed_ids(messages) == [1, 2]
    assert messages[-1] == MountResponse(req_id(1, generation=GENERATION + 1), READY)


async def test_a_mount_of_a_newer_generation_is_not_ready_in_the_end(make: Make) -> None:
    setup, link = make(1, answer_timeout_s=0.01), new_link()
    setup.partition.mount(link, mount(1, 0, generation=GENERATION + 1))
    assert await answer(link) == [MountResponse(req_id(1, generation=GENERATION + 1), NOT_READY)]
    setup.partition.set_generation(GENERATION + 1)
    setup.log.end_session()
    setup.log.reopen(committed=0)
    await settle()
    assert take(link) == []


async def test_a_mount_of_a_newer_generation_is_forgotten_with_its_connection(make: Make) -> None:
    setup, link = make(1), new_link()
    setup.partition.mount(link, mount(1, 0, generation=GENERATION + 1))
    setup.partition.forget(link)
    setup.partition.set_generation(GENERATION + 1)
    setup.log.end_session()
    setup.log.reopen(committed=0)
    await settle()
    assert take(link) == []


async def test_a_closed_connection_gets_nothing(make: Make) -> None:
    setup, link = make(session=False), new_link()
    setup.partition.mount(link, mount(1, -1))
    setup.partition.flush(link, flush(1))
    link.channel.abort()
    setup.partition.forget(link)
    setup.log.open_session()


# Appends


async def test_appends_of_one_read_go_to_the_log_as_one_list(make: Make) -> None:
    setup, link = make(7), new_link()
    setup.mounted(link)
    setup.partition.append(link, [append(number, 6, [number]) for number in range(50)])
    assert setup.log.batches == [50]
    assert [undecided.transaction_id for undecided in setup.log.undecided] == list(range(7, 57))
    assert setup.meter("transaction") == 50


async def test_the_feed_carries_the_request_id_and_header_of_the_append(make: Make) -> None:
    setup, link, reader = make(), new_link(), new_link(client_id=2)
    setup.mounted(link)
    setup.mounted(reader)
    setup.partition.feed(reader, feed(9, -1))
    setup.partition.append(link, [append(1), append(2)])
    assert take(reader) == []
    setup.log.commit()
    assert take(reader) == [FeedData(req_id(1), 0, 1), FeedData(req_id(2), 1, 2)]
    assert setup.meter("successful-append") == 2


async def test_a_commit_is_encoded_once_for_all_clients(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = make()
    links = [setup.mounted(new_link(client_id=number, version=number % 6)) for number in range(120)]
    for link in links:
        setup.partition.feed(link, FeedRequest(req_id(0), -1))
    encoded: list[int] = []

    def counted(version: int, items: Iterable[tuple[bytes, int, int]]) -> bytes:
        found = list(items)
        encoded.append(len(found))
        return encode_feed_data(version, found)

    monkeypatch.setattr("waltz.server.partition.partition.encode_feed_data", counted)
    setup.partition.append(links[0], [append(number) for number in range(50)])
    setup.log.commit()
    assert encoded == [50]
    assert all(fed_ids(take(link)) == list(range(50)) for link in links)


async def test_appends_without_a_mount_are_dropped(make: Make) -> None:
    setup, link = make(), new_link()
    setup.partition.append(link, [append(1)])
    assert setup.log.batches == []
    assert setup.meter("stale-append") == 1
    setup.mounted(link, 5)  # the client is ahead: only the registration counts
    setup.partition.append(link, [append(1)])
    assert setup.log.batches == [1]


async def test_two_appends_with_one_request_id_are_both_stored(make: Make) -> None:
    setup, link = make(), new_link()
    setup.mounted(link)
    setup.partition.append(link, [append(1), append(1)])
    assert setup.log.batches == [2]


async def test_appends_of_another_generation_are_dropped_and_counted(make: Make) -> None:
    setup, link = make(), new_link()
    setup.mounted(link)
    for number, generation in enumerate((GENERATION - 1, GENERATION, GENERATION + 1), 1):
        setup.partition.append(link, [append(number, generation=generation)])
    assert [undecided.req_id for undecided in setup.log.undecided] == [req_id(2)]
    assert setup.meter("other-generation-append") == 2
    assert take(link) == []
    setup.partition.set_generation(GENERATION - 1)
    assert setup.log.generation == GENERATION, "generations only grow"
    setup.partition.set_generation(GENERATION + 1)
    assert setup.log.generation == GENERATION + 1
    setup.partition.append(link, [append(4, generation=GENERATION + 1)])
    setup.partition.append(link, [append(5)])
    assert [undecided.req_id for undecided in setup.log.undecided][1:] == [req_id(4, generation=GENERATION + 1)]
    assert setup.meter("other-generation-append") == 3


async def test_an_append_of_another_generation_can_still_fail_its_locks(make: Make) -> None:
    setup, link = make(5), new_link()
    setup.mounted(link)
    setup.partition.append(link, [append(1, 3, [7], generation=GENERATION - 1)])
    assert take(link) == [LockFailure(req_id(1, generation=GENERATION - 1), 4)]
    setup.partition.append(link, [append(2, 4, [7], generation=GENERATION - 1)])
    setup.partition.append(link, [append(3, 4, [7])])
    assert setup.log.batches == [1], "the dropped one recorded nothing"


# Locks


async def test_a_fresh_partition_takes_every_lock_as_changed_at_its_mark(make: Make) -> None:
    setup, link = make(10), new_link()
    setup.mounted(link)
    setup.partition.append(
        link, [append(1, 8, [5]), append(2, 9, [5]), append(3, 8, [], [6]), append(4, 0, [], [], [6])]
    )
    assert take(link) == [LockFailure(req_id(1), 9), LockFailure(req_id(3), 9)]
    assert setup.log.batches == [2]
    assert setup.meter("rejected-append") == 2


async def test_a_conflict_with_an_append_in_flight_is_told_right_behind_its_feed(make: Make) -> None:
    setup, link, reader = make(), new_link(), new_link(client_id=2)
    setup.mounted(link)
    setup.mounted(reader)
    setup.partition.feed(link, feed(0, -1))
    setup.partition.append(link, [append(1), append(2, -1, [5]), append(3, -1, [5]), append(4)])
    assert setup.log.batches == [3]
    assert take(link) == []
    setup.log.commit(1)
    assert fed_ids(take(link)) == [0]
    setup.log.commit(2)
    assert take(link) == [
        FeedData(req_id(2), 1, 2),
        LockFailure(req_id(3), 1),
        FeedData(req_id(4), 2, 4),
    ]
    setup.partition.append(link, [append(5, 0, [5])])
    assert take(link) == [LockFailure(req_id(5), 1)], "known to be committed: at once"


async def test_a_conflict_with_a_lost_append_is_checked_again(make: Make) -> None:
    setup, link = make(), new_link()
    setup.mounted(link)
    setup.partition.append(link, [append(1, -1, [5]), append(2, -1, [5]), append(3, -1, [5])])
    setup.log.end_session()
    assert take(link) == []
    setup.log.reopen(committed=0)
    assert [undecided.req_id for undecided in setup.log.undecided] == [req_id(2)], "the first that waited gets through"
    assert setup.meter("failed-append") == 1
    setup.log.commit()
    assert take(link) == [LockFailure(req_id(3), 0)]


async def test_what_is_looked_at_again_comes_before_what_waited(make: Make) -> None:
    setup, link = make(), new_link()
    setup.mounted(link)
    setup.partition.append(link, [append(1, -1, [5]), append(2, -1, [5])])
    setup.log.congested = True
    setup.partition.append(link, [append(3, -1, [5])])
    setup.log.end_session()
    setup.log.congested = False
    setup.log.reopen(committed=0)
    assert [undecided.req_id for undecided in setup.log.undecided] == [req_id(2)]


@pytest.mark.parametrize("committed", [1, 2])
async def test_a_conflict_with_what_settlement_finds_is_told_before_later_appends_are_fed(
    make: Make, committed: int
) -> None:
    setup, link, other = make(), new_link(client_id=1), new_link(client_id=2)
    setup.mounted(link)
    setup.mounted(other)
    setup.partition.feed(link, feed(0, -1))
    setup.partition.append(other, [append(1, -1, [5], client_id=2)])
    setup.partition.append(link, [append(2, -1, [5]), append(3)])
    setup.log.end_session()
    assert take(link) == []
    setup.log.reopen(committed)
    await settle()
    messages = take(link)
    assert [type(message) for message in messages] == [FeedData, LockFailure, FeedData][: committed + 1]
    assert messages[1] == LockFailure(req_id(2), 0), "the id is that of the append that changed the lock"
    assert setup.meter("rejected-append") == 1


async def test_a_conflict_with_what_settlement_has_not_found_is_checked_again_in_order(make: Make) -> None:
    """Of three that wait, the first is told; the others are looked at again, around what no replica was given."""
    setup, link, other = make(), new_link(client_id=1), new_link(client_id=2)
    setup.mounted(link)
    setup.mounted(other)
    setup.partition.append(other, [append(1, -1, [5], client_id=2), append(2, -1, [6], client_id=2)])
    setup.partition.append(link, [append(3, -1, [5]), append(4, 0, [6]), append(5), append(6, 0, [6]), append(7)])
    setup.log.written = 2
    setup.log.end_session()
    setup.partition.append(link, [append(8)])
    setup.log.reopen(committed=1)
    assert take(link) == [LockFailure(req_id(3), 0)]
    assert [undecided.req_id for undecided in setup.log.undecided] == [req_id(number) for number in (4, 5, 7, 8)]
    setup.log.commit()
    assert take(link) == [LockFailure(req_id(6), 1)]
    assert setup.meter("failed-append") == 1


async def test_a_flush_behind_what_settlement_finds_leaves_after_the_lock_failures(make: Make) -> None:
    setup, link = make(), new_link()
    setup.mounted(link)
    setup.partition.append(link, [append(1, -1, [5]), append(2, -1, [5])])
    setup.partition.flush(link, flush(2))
    setup.log.end_session()
    setup.log.reopen(committed=1)
    assert take(link) == [LockFailure(req_id(2), 0), FlushResponse(req_id(2), 0)]


async def test_a_flush_stays_behind_a_conflict_that_both_waited_for_a_session_and_saw_it_end(make: Make) -> None:
    """Answered before it, the flush would have the client repeat an append that is then committed as well."""
    setup, link = make(session=False), new_link()
    setup.partition.mount(link, mount(0, -1))
    setup.partition.append(link, [append(1, -1, [5]), append(2, -1, [5])])
    setup.partition.flush(link, flush(2))
    setup.log.open_session()
    setup.log.end_session()
    setup.log.reopen(committed=0)
    sent = take(link)
    assert FlushResponse(req_id(2), -1) not in sent
    assert [undecided.req_id for undecided in setup.log.undecided] == [req_id(2)]
    setup.log.commit()
    assert FlushResponse(req_id(2), 0) in take(link)


async def test_what_no_session_has_decided_is_refused_in_order_when_the_partition_leaves(make: Make) -> None:
    """What a replica was given is not (S5)."""
    setup, link = make(), new_link(version=5)
    setup.mounted(link)
    setup.partition.append(link, [append(1, -1, [5]), append(2), append(3, -1, [5]), append(4)])
    setup.log.written = 1
    setup.log.end_session()
    setup.partition.append(link, [append(5)])
    setup.partition.leave(AppendFailure.MOVED)
    take(link)
    await setup.partition.close()
    assert failures(take(link)) == [failed(number, AppendFailure.MOVED, -1) for number in (2, 3, 4, 5)]
    assert setup.memory.free_bytes == setup.memory.limit_bytes


@pytest.mark.parametrize(("committed", "foreign"), [(0, 0), (1, 0), (2, 0), (0, 3), (2, 3)])
async def test_a_changed_session_assigns_the_new_mark_to_every_lock(make: Make, committed: int, foreign: int) -> None:
    setup, link = make(5), new_link()
    setup.mounted(link)
    setup.partition.append(link, [append(1, 4, [5]), append(2, 4, [6])])
    setup.log.end_session()
    setup.log.reopen(committed, foreign)
    mark = 4 + committed + foreign
    assert setup.partition.high_water_mark == mark
    setup.partition.append(link, [append(3, mark - 1, [777]), append(4, mark, [777]), append(5, mark, [5, 6])])
    assert take(link) == [LockFailure(req_id(3), mark)]
    assert [undecided.transaction_id for undecided in setup.log.undecided] == [mark + 1, mark + 2]


async def test_an_unchanged_session_keeps_the_locks(make: Make) -> None:
    setup, link = make(5), new_link()
    setup.mounted(link)
    setup.partition.append(link, [append(1, 4, [5]), append(2, 4)])
    setup.log.commit()
    setup.log.end_session()
    setup.log.reopen(committed=0)
    setup.partition.append(link, [append(3, 4, [5]), append(4, 5, [5])])
    assert take(link) == [LockFailure(req_id(3), 5)]
    assert setup.log.batches == [2, 1]


# Waiting for a session


async def test_requests_wait_for_the_session_in_their_order(make: Make) -> None:
    setup, link, other = make(session=False), new_link(), new_link(client_id=2)
    setup.partition.mount(link, mount(1, -1))
    setup.partition.mount(other, mount(1, -1, client_id=2))
    setup.partition.append(link, [append(2, -1, [5])])
    setup.partition.append(other, [append(3, -1, [5], client_id=2)])
    setup.partition.flush(link, flush(2))
    setup.log.open_session()
    assert take(link) == [MountResponse(req_id(1), READY)]
    assert take(other) == [MountResponse(req_id(1, 2), READY)]
    assert [undecided.req_id for undecided in setup.log.undecided] == [req_id(2)]
    setup.log.commit()
    assert take(link) == [FlushResponse(req_id(2), 0)]
    assert take(other) == [LockFailure(req_id(3, 2), 0)]


async def test_a_congested_log_is_given_nothing_until_it_is_drained(make: Make) -> None:
    setup, link = make(), new_link()
    setup.mounted(link)
    setup.log.congested = True
    setup.partition.append(link, [append(1)])
    setup.partition.append(link, [append(2)])
    assert setup.log.batches == []
    setup.log.congested = False
    setup.partition.append(link, [append(3)])
    assert setup.log.batches == [], "nobody overtakes those who wait"
    setup.partition.drained()
    assert [undecided.req_id for undecided in setup.log.undecided] == [req_id(1), req_id(2), req_id(3)]


@pytest.mark.parametrize("version", range(7))
async def test_what_finds_no_room_to_wait_is_refused_and_the_connection_is_read_on(make: Make, version: int) -> None:
    setup, link = make(session=False, memory=MemoryBudget(0)), new_link(version=version)
    setup.partition.mount(link, mount(0, -1))
    setup.partition.append(link, [append(number, data=bytes(1000)) for number in range(1, 101)])
    told = [message.req_id for message in take(link) if isinstance(message, AppendFailed)]
    assert channel_of(link).reading, "other partitions have requests on the same connection"
    setup.log.open_session()
    kept = len(setup.log.undecided)
    assert 40 < kept < MIN_SHARE_BYTES / 1000
    assert [found.req_id for found in setup.log.undecided] == [req_id(number) for number in range(1, kept + 1)]
    assert setup.meter("refused-append") == 100 - kept
    assert told == ([req_id(number) for number in range(kept + 1, 101)] if version >= 5 else [])


async def test_locks_count_at_their_true_size(make: Make) -> None:
    setup, link = make(session=False, memory=MemoryBudget(0)), new_link(version=5)
    setup.partition.mount(link, mount(0, -1))
    setup.partition.append(link, [append(1, -1, range(1000)), append(2, -1, [], range(1000))])
    assert [message.req_id for message in take(link) if isinstance(message, AppendFailed)] == [req_id(2)]
    setup.log.open_session()
    assert setup.memory.used_bytes > 40_000, "undecided, too"
    setup.log.commit()
    assert setup.memory.used_bytes == 0


async def test_appends_that_wait_for_the_outcome_of_a_conflict_are_counted(make: Make) -> None:
    setup, link = make(), new_link(version=5)
    setup.mounted(link)
    setup.partition.append(link, [append(1, -1, [7])])
    setup.partition.append(link, [append(number, -1, [7], data=bytes(1000)) for number in range(2, 12)])
    assert setup.memory.used_bytes > 10_000
    setup.log.commit()
    assert setup.memory.used_bytes == 0


async def test_the_account_agrees_with_the_room_when_mounts_that_were_answered_are_dropped(make: Make) -> None:
    setup, link = make(session=False, answer_timeout_s=0), new_link()
    for number in range(5000):
        setup.partition.mount(link, mount(number, -1))
        if number % 100 == 0:
            await asyncio.sleep(0.001)
    assert setup.memory.used_bytes < 2000 * 200


async def test_other_requests_find_no_room_either(make: Make) -> None:
    setup, link = make(session=False, memory=MemoryBudget(0)), new_link()
    setup.partition.mount(link, mount(0, -1))
    setup.partition.append(link, [append(number) for number in range(1000)])
    setup.partition.mount(link, mount(1, -1))
    setup.partition.flush(link, flush(1))
    assert take(link) == [MountResponse(req_id(1), NOT_READY)]
    assert channel_of(link).reading


async def test_a_partition_without_a_session_leaves_room_to_the_others(make: Make) -> None:
    memory = MemoryBudget(4 << 20)
    dead, healthy, link = make(session=False, memory=memory), make(memory=memory), new_link(version=5)
    dead.partition.mount(link, mount(0, -1))
    healthy.mounted(link)
    dead.partition.append(link, [append(number, data=bytes(1000)) for number in range(10_000)])
    assert take(link), "some are refused"
    assert memory.used_bytes < memory.limit_bytes / 2
    for number in range(10):
        healthy.partition.append(link, [append(number, data=bytes(100_000))])
        healthy.log.commit()
    assert healthy.log.mark == 9
    assert healthy.meter("refused-append") == 0


async def test_a_partition_that_uses_more_than_its_share_takes_one_run_after_the_other(make: Make) -> None:
    setup, link = make(memory=MemoryBudget(0)), new_link(version=5)
    setup.mounted(link)
    for number in range(3):
        setup.partition.append(link, [append(number, data=bytes(40_000))])
        setup.partition.flush(link, flush(number))
    assert setup.log.batches == [1], "the first finds nothing in hand"
    assert setup.meter("refused-append") == 2
    setup.log.commit()
    setup.partition.append(link, [append(4)])
    assert setup.log.batches == [1, 1]


async def test_mounts_that_were_answered_do_not_pile_up(make: Make) -> None:
    setup = make(session=False, answer_timeout_s=0)
    link = new_link()
    for number in range(2000):
        setup.partition.mount(link, mount(number, -1))
        if number % 100 == 0:
            await asyncio.sleep(0.001)
    assert len(take(link)) > 1000
    gauges = {metric.name: read() for metric, read in setup.registry.gauges.items()}
    waiting = gauges["append-queue-size"]
    assert isinstance(waiting, int)
    assert waiting <= 1000


async def test_many_that_waited_are_looked_at_in_more_than_one_turn(make: Make) -> None:
    setup, link = make(session=False), new_link()
    setup.partition.mount(link, mount(0, -1))
    setup.partition.append(link, [append(number) for number in range(5000)])
    setup.partition.append(link, [append(5000 + number, -1, [], [], range(10_000)) for number in range(3)])
    setup.log.open_session()
    looked_at = [len(setup.log.undecided)]
    while looked_at[-1] < 5003:
        await asyncio.sleep(0)
        looked_at.append(len(setup.log.undecided))
    steps = [after - before for before, after in zip([0, *looked_at], looked_at, strict=False)]
    assert max(steps) < 2500
    assert [found.req_id for found in setup.log.undecided] == [req_id(number) for number in range(5003)]


async def test_too_many_deferred_lock_failures_make_further_requests_wait(make: Make) -> None:
    setup, link = make(max_undecided_count=3), new_link()
    setup.mounted(link)
    setup.partition.append(link, [append(0, -1, [5])])
    for number in range(1, 6):
        setup.partition.append(link, [append(number, -1, [5])])
    setup.log.commit()
    assert take(link) == [LockFailure(req_id(number), 0) for number in range(1, 6)]


# Flush


async def test_flush_is_answered_at_once_when_nothing_is_undecided(make: Make) -> None:
    setup, link = make(3), new_link()
    setup.partition.flush(link, flush(8))
    assert take(link) == [FlushResponse(req_id(8), 2)], "a flush needs no mount"


async def test_flush_waits_for_earlier_appends_only_and_leaves_after_lock_failures(make: Make) -> None:
    setup, link = make(), new_link()
    setup.mounted(link)
    setup.partition.feed(link, feed(0, -1))
    setup.partition.append(link, [append(1, -1, [5]), append(2, -1, [5])])
    setup.partition.flush(link, flush(2))
    setup.partition.append(link, [append(3)])
    setup.log.commit(1)
    assert take(link) == [
        FeedData(req_id(1), 0, 1),
        LockFailure(req_id(2), 0),
        FlushResponse(req_id(2), 0),
    ]


async def test_flush_over_a_change_of_session(make: Make) -> None:
    setup, link = make(), new_link()
    setup.mounted(link)
    setup.partition.append(link, [append(1), append(2), append(3)])
    setup.partition.flush(link, flush(3))
    setup.log.end_session()
    setup.partition.append(link, [append(4)])
    assert take(link) == []
    setup.log.reopen(committed=1)
    assert take(link) == [FlushResponse(req_id(3), 0)], "2 and 3 are known to be absent"
    assert [undecided.req_id for undecided in setup.log.undecided] == [req_id(4)]


# Feed requests


async def test_a_feed_request_before_the_data_gets_exactly_the_minimum_then_suspended(make: Make) -> None:
    setup, link = make(min_fetch_size=10), new_link()
    setup.mounted(link)
    for turn in range(3):
        setup.partition.feed(link, feed(turn, turn * 10 - 1))
        setup.partition.append(link, [append(number) for number in range(12)][: 10 if turn < 2 else 12])
        setup.log.commit()
        messages = take(link)
        assert fed_ids(messages) == list(range(turn * 10, turn * 10 + 10))
        assert others(messages) == [FeedSuspended(req_id(turn))]


async def test_a_feed_request_behind_more_than_the_minimum_gets_all_in_one_run(make: Make) -> None:
    setup, link = make(20, min_fetch_size=10), new_link()
    setup.mounted(link)
    setup.partition.feed(link, feed(1, -1))
    await settle()
    messages = take(link)
    assert fed_ids(messages) == list(range(20))
    assert messages[-1] == FeedSuspended(req_id(1))


async def test_a_feed_request_above_the_mark_is_a_protocol_error(make: Make) -> None:
    setup, link = make(3), new_link()
    setup.mounted(link)
    setup.partition.feed(link, feed(1, 3))
    await settle()
    assert isinstance(channel_of(link).error, ProtocolError)
    assert setup.log.confirmations == 1


async def test_a_deposed_owner_does_not_call_a_client_ahead(make: Make) -> None:
    """It has not heard yet that others have written; with the next session it knows."""
    setup, link, other = make(3), new_link(), new_link(client_id=2)
    setup.mounted(other)
    setup.log.is_owner = False
    setup.partition.mount(link, mount(1, 5))
    setup.partition.feed(other, feed(1, 4))
    setup.log.end_session()
    await settle()
    assert take(link) == take(other) == []
    setup.log.is_owner = True
    setup.log.reopen(committed=0, foreign=4)
    await settle()
    messages = take(link)
    assert fed_ids(messages) == [6]
    assert messages[-1] == MountResponse(req_id(1), READY)
    assert fed_ids(take(other)) == [5, 6]


async def test_a_client_is_not_called_ahead_when_nothing_can_be_proved(make: Make) -> None:
    setup, link = make(3), new_link()
    setup.log.is_owner = False
    setup.partition.mount(link, mount(1, 5))
    await settle()
    assert take(link) == [MountResponse(req_id(1), NOT_READY)]


async def test_a_defect_while_proving_is_no_proof_and_nobody_waits_for_ever(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    setup, link = make(3), new_link()

    async def fail(timeout_s: float) -> int | None:
        raise ArithmeticError("planted")

    with monkeypatch.context() as patch:
        patch.setattr(setup.log, "confirmed_mark", fail)
        setup.partition.mount(link, mount(1, 5))
        await settle()
    assert take(link) == [MountResponse(req_id(1), NOT_READY)]
    assert "planted" in caplog.text
    setup.partition.mount(link, mount(2, 5))
    await settle()
    assert take(link) == [MountResponse(req_id(2), CLIENT_AHEAD)]


async def test_marks_are_told_to_a_mounted_connection_when_a_session_is_open(make: Make) -> None:
    setup, link = make(3, session=False), new_link(version=FEED_VERSION)
    setup.partition.mount(link, mount(1, 2))
    setup.partition.feed(link, MarkFeedRequest(req_id(1), 0))
    await settle()
    assert take(link) == []
    setup.log.open_session()
    await settle()
    messages = take(link)
    assert MarkAdvanced(ReqId.of(-1, -1, 0, -1), 2) in messages
    assert fed_ids(messages) == []


async def test_marks_are_not_told_without_a_mount(make: Make) -> None:
    setup, link = make(3), new_link(version=FEED_VERSION)
    setup.partition.feed(link, MarkFeedRequest(req_id(1), 0))
    await settle()
    assert take(link) == []


async def test_a_request_for_marks_from_beyond_the_log_closes_the_connection_on_proof(make: Make) -> None:
    setup, link = make(3), new_link(version=FEED_VERSION)
    setup.mounted(link)
    setup.log.is_owner = False
    setup.partition.feed(link, MarkFeedRequest(req_id(1), 7))
    await settle()
    assert channel_of(link).error is None
    setup.log.is_owner = True
    setup.partition.feed(link, MarkFeedRequest(req_id(1), 7))
    await settle()
    assert isinstance(channel_of(link).error, ProtocolError)


async def test_a_client_from_beyond_the_end_is_a_warning_and_no_more(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    setup, link, other = make(3), new_link(), new_link(client_id=2)
    setup.log.is_owner = False
    setup.partition.mount(link, mount(1, 5))
    await settle()
    assert setup.partition.warnings == [], "this server may be the one that is behind"
    setup.log.is_owner = True
    for number, mark in ((2, 6), (3, 9), (4, 7)):
        setup.partition.mount(link, mount(number, mark))
        await settle()
    (warning,) = setup.partition.warnings
    assert "client client:1 has applied transactions up to 9, beyond the end of the log" in warning
    assert warning in caplog.text
    setup.mounted(other)
    setup.partition.append(other, [append(1, client_id=2)])
    setup.log.commit()
    assert setup.log.mark == 3
    setup.log.trouble = "no session opens"
    assert setup.partition.warnings == ["no session opens", warning]


async def test_a_feed_request_without_a_mount_is_dropped(make: Make) -> None:
    setup, link = make(3), new_link()
    setup.partition.feed(link, feed(1, 2))
    setup.partition.feed(link, feed(1, 99))
    await settle()
    assert take(link) == []


async def test_a_feed_request_before_the_first_session(make: Make) -> None:
    setup, link, ahead = make(3, session=False), new_link(client_id=1), new_link(client_id=2)
    setup.partition.mount(link, mount(1, 2))
    setup.partition.mount(ahead, mount(1, 2, client_id=2))
    setup.partition.feed(link, feed(1, 0))
    setup.partition.feed(ahead, feed(1, 7))
    setup.log.open_session()
    await settle()
    assert fed_ids(take(link)) == [1, 2]
    assert isinstance(channel_of(ahead).error, ProtocolError)


async def test_the_feed_goes_on_without_a_session(make: Make) -> None:
    setup, link = make(3), new_link()
    setup.mounted(link)
    setup.log.end_session()
    setup.partition.feed(link, feed(1, -1))
    await settle()
    assert fed_ids(take(link)) == [0, 1, 2]


async def test_what_others_committed_meanwhile_is_fed(make: Make) -> None:
    setup, link = make(3), new_link()
    setup.mounted(link)
    setup.partition.feed(link, feed(1, 2))
    setup.log.end_session()
    setup.log.reopen(committed=0, foreign=4)
    await settle()
    assert fed_ids(take(link)) == [3, 4, 5, 6]


async def test_lost_transactions_close_the_clients_that_were_fed_them(make: Make) -> None:
    setup, link = make(3), new_link()
    setup.mounted(link)
    setup.partition.feed(link, feed(1, 2))
    setup.log.end_session()
    del setup.log.records[1:]
    setup.log.reopen(committed=0)
    assert channel_of(link).closed
    again = new_link(seq_num=1, number=1)
    setup.partition.mount(again, mount(2, 2, seq_num=1))
    await settle()
    assert take(again) == [MountResponse(req_id(2), CLIENT_AHEAD)]


# Version 5


def failed(number: int, reason: AppendFailure, mark: int, generation: int = GENERATION) -> tuple[object, ...]:
    return (req_id(number, generation=generation), reason, mark)


def failures(messages: list[Message]) -> list[tuple[object, ...]]:
    assert all(isinstance(message, AppendFailed) for message in messages)
    return [tuple(message[:3]) for message in messages]


async def test_another_generation_is_told(make: Make) -> None:
    setup, link, old = make(3), new_link(version=5), new_link(client_id=2)
    for client in (setup.mounted(link), setup.mounted(old)):
        setup.partition.append(client, [append(1, generation=GENERATION + 1)])
    assert failures(take(link)) == [failed(1, AppendFailure.GENERATION_MISMATCH, 2, GENERATION + 1)]
    assert take(old) == []


async def test_what_a_later_session_has_not_found_is_told_only_then(make: Make) -> None:
    setup, link = make(3), new_link(version=5)
    setup.mounted(link)
    setup.partition.append(link, [append(1), append(2)])
    setup.partition.append(link, [append(3)])
    setup.log.end_session()
    await settle()
    assert take(link) == [], "their fate is unknown (S5)"
    setup.log.reopen(committed=1)
    await settle()
    assert failures(take(link)) == [failed(number, AppendFailure.NOT_STORED, 3) for number in (2, 3)]


async def test_undecided_appends_are_never_told_when_the_partition_leaves(make: Make) -> None:
    setup, link = make(3), new_link(version=5)
    setup.partition.mount(link, mount(77, 2))
    take(link)
    setup.partition.append(link, [append(1)])
    await setup.partition.close()
    assert take(link) == [PartitionClosed(req_id(77))]


@pytest.mark.parametrize("reason", [AppendFailure.MOVED, AppendFailure.STOPPING])
async def test_what_no_replica_was_given_is_told_when_the_partition_leaves(make: Make, reason: AppendFailure) -> None:
    setup, link, old = make(3), new_link(version=5), new_link(client_id=2)
    setup.partition.mount(link, mount(76, 2))
    setup.partition.mount(link, mount(77, 2))
    setup.mounted(old)
    take(link)
    setup.partition.append(link, [append(1, 2, [5]), append(2, 2, [5])])
    setup.log.written = 0
    setup.log.end_session()
    for client in (link, old):
        setup.partition.append(client, [append(3)])
    setup.partition.leave(reason)
    await setup.partition.close()
    messages = take(link)
    assert messages.pop(0) == PartitionClosed(req_id(77)), "at once, with the last mount's session id"
    assert failures(messages) == [failed(number, reason, 2) for number in (1, 2, 3)]
    assert take(old) == []


async def test_what_no_replica_was_given_goes_into_the_next_session(make: Make) -> None:
    """In the order of arrival, around what waited for a commit; then the flush is answered."""
    setup, link = make(3), new_link()
    setup.mounted(link)
    setup.partition.append(
        link, [append(1), append(2, 2, [5]), append(3, 2, [5]), append(4), append(5, 2, [], [], [5])]
    )
    setup.partition.flush(link, flush(5))
    setup.log.written = 1
    setup.log.end_session()
    setup.log.written = None
    setup.partition.append(link, [append(6)])
    setup.log.reopen(committed=0)
    await settle()
    assert [found.req_id for found in setup.log.undecided] == [req_id(number) for number in (2, 4, 5, 6)]
    assert take(link) == []
    setup.log.commit()
    assert take(link) == [LockFailure(req_id(3), 3), FlushResponse(req_id(5), 6)]


async def test_transaction_lists_come_from_the_cache_and_the_log(make: Make) -> None:
    setup, link = make(3), new_link(version=5)
    setup.mounted(link)
    setup.partition.append(link, [append(1), append(2)])
    setup.log.commit()
    setup.partition.transaction_list(link, TransactionDataListRequest(req_id(9), 3, 10, 1000))
    assert take(link) == [TransactionDataListResponse(req_id(9), 3, DataListStatus.OK, 4, setup.log.records[3:], None)]
    assert setup.log.reads == []
    setup.partition.transaction_list(link, TransactionDataListRequest(req_id(9), 1, 10, 1000))
    assert await answer(link) == [
        TransactionDataListResponse(req_id(9), 1, DataListStatus.OK, 4, setup.log.records[1:], None)
    ]


@pytest.mark.parametrize("why", ["no session", "in doubt"])
async def test_a_transaction_list_tells_no_mark_while_it_may_be_old(make: Make, why: str) -> None:
    """It says of the log what is in it; that there is nothing behind the mark is not known."""
    setup, link = make(5), new_link(version=5)
    setup.mounted(link)
    setup.partition.append(link, [append(1)])
    setup.log.commit()
    if why == "no session":
        setup.log.end_session()
    else:
        setup.partition.in_doubt = True
    take(link)
    setup.partition.transaction_list(link, TransactionDataListRequest(req_id(9), 1, 2, 1000))
    assert await answer(link) == [
        TransactionDataListResponse(req_id(9), 1, DataListStatus.OK, 2, setup.log.records[1:3], None)
    ]
    setup.partition.transaction_list(link, TransactionDataListRequest(req_id(9), 5, 2, 1000))
    assert take(link) == [TransactionDataListResponse(req_id(9), 5, DataListStatus.OK, 5, setup.log.records[5:], None)]
    setup.partition.transaction_list(link, TransactionDataListRequest(req_id(9), 6, 2, 1000))
    assert take(link) == [TransactionDataListResponse(req_id(9), 6, DataListStatus.NOT_READY, LONG_MIN, [], None)]
    setup.log.failing_reads = 1
    setup.partition.transaction_list(link, TransactionDataListRequest(req_id(9), 1, 2, 1000))
    assert await answer(link) == [
        TransactionDataListResponse(req_id(9), 1, DataListStatus.FAILED, LONG_MIN, [], "no replica answered")
    ]


async def test_a_session_that_ends_during_a_bulk_read_takes_the_mark_with_it(make: Make) -> None:
    setup, link = make(5), new_link(version=5)
    setup.mounted(link)
    setup.partition.transaction_list(link, TransactionDataListRequest(req_id(9), 1, 2, 1000))
    setup.log.end_session()
    assert await answer(link) == [
        TransactionDataListResponse(req_id(9), 1, DataListStatus.OK, 2, setup.log.records[1:3], None)
    ]


async def test_a_transaction_list_before_the_first_session_is_not_ready(make: Make) -> None:
    setup, link = make(3, session=False), new_link(version=5)
    setup.partition.transaction_list(link, TransactionDataListRequest(req_id(9), 1, 10, 1000))
    assert take(link) == [TransactionDataListResponse(req_id(9), 1, DataListStatus.NOT_READY, LONG_MIN, [], None)]


# High-water mark and data


async def test_the_high_water_mark_is_that_of_the_last_commit(make: Make) -> None:
    setup, link = make(3), new_link()
    setup.mounted(link)
    setup.partition.append(link, [append(1)])
    setup.partition.ask_high_water_mark(link, HighWaterMarkRequest(req_id(2)))
    setup.log.commit()
    setup.partition.ask_high_water_mark(link, HighWaterMarkRequest(req_id(3)))
    assert take(link) == [HighWaterMarkResponse(req_id(2), 2), HighWaterMarkResponse(req_id(3), 3)]


async def test_the_question_for_the_mark_waits_for_the_first_session(make: Make) -> None:
    setup, link = make(3, session=False), new_link()
    setup.partition.ask_high_water_mark(link, HighWaterMarkRequest(req_id(2)))
    assert take(link) == []
    setup.log.open_session()
    assert take(link) == [HighWaterMarkResponse(req_id(2), 2)]


async def test_the_question_for_the_mark_waits_for_a_session_of_the_generation_that_the_peer_knows(make: Make) -> None:
    """Before it another owner may have committed what this server has not heard of."""
    setup, link = make(3), new_link()
    question = HighWaterMarkRequest(req_id(2, generation=GENERATION + 1))
    setup.partition.ask_high_water_mark(link, question)
    setup.log.open_session()
    assert take(link) == []
    setup.partition.set_generation(GENERATION + 1)
    setup.log.open_session()
    assert take(link) == [HighWaterMarkResponse(question.req_id, 2)]


async def test_the_question_for_the_mark_is_answered_unknown_in_the_end(make: Make) -> None:
    setup, link = make(3, session=False, answer_timeout_s=0.01), new_link()
    setup.partition.ask_high_water_mark(link, HighWaterMarkRequest(req_id(2)))
    assert await answer(link) == [HighWaterMarkResponse(req_id(2), LONG_MIN)]
    setup.log.open_session()
    assert take(link) == []


async def test_data_of_a_fresh_commit_comes_from_the_cache(make: Make) -> None:
    setup, link = make(), new_link()
    setup.mounted(link)
    setup.partition.append(link, [append(1, data=b"payload")])
    setup.partition.transaction_data(link, TransactionDataRequest(req_id(2), 0))
    (missing,) = take(link)
    assert isinstance(missing, TransactionDataResponse)
    assert missing.error == (
        "com.wepay.waltz.store.exception.TransactionNotFoundException: partition=0transactionId=0"
    ), "not committed yet"
    setup.log.commit()
    setup.partition.transaction_data(link, TransactionDataRequest(req_id(3), 0))
    assert take(link) == [TransactionDataResponse(req_id(3), 0, b"payload", setup.log.records[0].checksum, None)]
    assert setup.log.reads == []


async def test_data_before_the_first_session_is_not_ready(make: Make) -> None:
    setup, link = make(3, session=False), new_link()
    setup.partition.transaction_data(link, TransactionDataRequest(req_id(2), 0))
    assert take(link) == [TransactionDataResponse(req_id(2), 0, None, 0, "partition not ready")]


# Close


async def test_closing_answers_mounts_and_questions(make: Make) -> None:
    setup, link = make(3, session=False), new_link()
    setup.partition.mount(link, mount(1, 2))
    setup.partition.append(link, [append(2)])
    setup.partition.flush(link, flush(2))
    setup.partition.ask_high_water_mark(link, HighWaterMarkRequest(req_id(3)))
    await setup.partition.close()
    assert take(link) == [MountResponse(req_id(1), NOT_READY), HighWaterMarkResponse(req_id(3), LONG_MIN)]
    assert setup.log.closed == 1
    assert not [metric for metric in setup.registry.gauges if metric.group == "waltz-server.partition-0"]


async def test_closing_forgets_what_was_cached_and_what_waited(make: Make) -> None:
    setup, link = make(), new_link()
    setup.mounted(link)
    setup.partition.append(link, [append(1)])
    setup.log.commit()
    setup.log.end_session()
    setup.partition.append(link, [append(2), append(3)])
    assert setup.memory.used_bytes
    assert setup.transaction_cache.get(0, 0) is not None
    await setup.partition.close()
    assert setup.transaction_cache.get(0, 0) is None
    assert setup.feed_cache.size_bytes == setup.memory.used_bytes == 0
    assert not link.mounts


async def test_gauges_tell_the_state(make: Make) -> None:
    setup, link = make(3), new_link()
    setup.mounted(link)
    setup.partition.append(link, [append(1), append(2)])
    gauges = {metric.name: read() for metric, read in setup.registry.gauges.items()}
    assert gauges["pending-append"] == 2
    assert gauges["high-water-mark"] == 2
    assert gauges["generation"] == GENERATION
    assert gauges["is-closed"] is False
    assert gauges["append-queue-size"] == 0
    setup.log.commit()
    assert {metric.name: read() for metric, read in setup.registry.gauges.items()}["pending-append"] == 0
    assert setup.registry.timer("waltz-server.partition-0", "response-latency").meter.count == 2
