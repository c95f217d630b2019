"""Levels of appends at a partition, over a log whose storages do what the test says."""

from collections.abc import Iterator

import pytest

from tests.consistency_table import ACCEPTED, WORDS
from tests.unit.server.fakes import PartitionSetup, append, mount, new_link, others, req_id, take
from waltz.common.consistency import Consistency, consistency_named
from waltz.common.metrics.registry import MetricId
from waltz.common.wire.client_server import FeedData, Message, MountResponse, PartitionState
from waltz.common.wire.consistency import (
    AppendAck,
    AppendAckRequest,
    AppendLevelRequest,
    ConsistencyRefusal,
    ConsistencyRefused,
    PartitionConsistency,
)
from waltz.common.wire.version5 import AppendFailed, AppendFailure
from waltz.server.partition.append_rule import AppendRule
from waltz.server.partition.partition import PartitionOptions
from waltz.server.requests.link import ClientLink

ALL = Consistency.LEADER_ALL
MANDATORY_ALL = AppendRule(consistency=ALL)


@pytest.fixture
async def setup() -> PartitionSetup:
    made = PartitionSetup(3, PartitionOptions())
    made.partition.start()
    made.log.open_session()
    return made


def mounted(setup: PartitionSetup, version: int = 6, client_id: int = 1) -> ClientLink:
    """A mounted connection that has taken the answers to its mount."""
    link = new_link(client_id, version=version)
    setup.partition.mount(link, mount(1, 2, client_id))
    take(link)
    return link


def acks(link: ClientLink) -> list[tuple[int, int]]:
    return [(message.transaction_id, message.storage_count) for message in take(link) if type(message) is AppendAck]


def numbers() -> Iterator[int]:
    yield from range(10, 1000)


@pytest.mark.parametrize("demanded", WORDS)
async def test_all_64_pairs_with_and_without_the_demand(setup: PartitionSetup, demanded: str) -> None:
    link, number = mounted(setup), numbers()
    for word in WORDS:
        for required in (True, False):
            setup.partition.set_append_rule(AppendRule(consistency=consistency_named(demanded), required=required))
            setup.partition.tell_level(link, AppendLevelRequest(req_id(2), consistency_named(word)))
            take(link)
            before = len(setup.log.undecided)
            setup.partition.append(link, [append(next(number))])
            refused = [message for message in take(link) if type(message) is ConsistencyRefused]
            accepted = word in ACCEPTED[demanded] or not required
            assert len(setup.log.undecided) - before == accepted
            assert [message.refusal for message in refused] == [ConsistencyRefusal.BELOW_PROPERTY] * (not accepted)


async def test_a_connection_without_a_level_has_that_of_the_quorum(setup: PartitionSetup) -> None:
    link = mounted(setup)
    setup.partition.append(link, [append(1)])
    setup.partition.set_append_rule(MANDATORY_ALL)
    setup.partition.append(link, [append(2), append(3)])
    assert len(setup.log.undecided) == 1
    assert take(link) == [
        PartitionConsistency(req_id(1), ALL),
        *(
            ConsistencyRefused(
                req_id(number),
                ConsistencyRefusal.BELOW_PROPERTY,
                "the partition demands the consistency leader_all, and the append has leader_quorum",
            )
            for number in (2, 3)
        ),
    ]
    assert setup.meter("level-refused-append") == 2


@pytest.mark.parametrize("version", [4, 5])
async def test_older_writers_are_refused_on_demand_in_their_own_words(setup: PartitionSetup, version: int) -> None:
    setup.partition.set_append_rule(MANDATORY_ALL)
    link = mounted(setup, version)
    setup.partition.append(link, [append(1)])
    assert (len(setup.log.undecided), take(link)) == (1, [])
    setup.partition.set_append_rule(MANDATORY_ALL._replace(refuses_legacy=True))
    setup.partition.append(link, [append(2)])
    assert len(setup.log.undecided) == 1
    text = "the partition demands the consistency leader_all, and the client's protocol has no levels"
    told = [AppendFailed(req_id(2), AppendFailure.MOVED, 2, text)] if version == 5 else []
    assert take(link) == told
    setup.partition.set_append_rule(AppendRule(refuses_legacy=True))
    setup.partition.append(link, [append(3)])
    assert (len(setup.log.undecided), take(link)) == (2, [])


async def test_the_property_is_told_before_the_answer_to_a_mount_and_after_a_change(setup: PartitionSetup) -> None:
    links = {version: mounted(setup, version, client_id=version) for version in (5, 6)}
    setup.partition.set_append_rule(MANDATORY_ALL)
    assert [take(link) for link in links.values()] == [[], [PartitionConsistency(req_id(1, 6), ALL)]]
    setup.partition.set_append_rule(MANDATORY_ALL._replace(required=False, refuses_legacy=True))
    assert take(links[6]) == [], "clients need only the level"
    late = new_link(7, version=6)
    setup.partition.mount(late, mount(1, 2, 7))
    assert take(late) == [
        PartitionConsistency(req_id(1, 7), ALL),
        MountResponse(req_id(1, 7), PartitionState.READY),
    ]
    setup.partition.set_append_rule(AppendRule())
    for client_id, link in ((6, links[6]), (7, late)):
        assert take(link) == [PartitionConsistency(req_id(1, client_id), Consistency.LEADER_QUORUM)]


async def test_a_level_for_all_storages_is_refused_at_once_while_one_is_known_to_be_away(
    setup: PartitionSetup,
) -> None:
    link = mounted(setup)
    setup.log.missing_storages = ["b:1", "c:1"]
    setup.partition.append(link, [append(1)])
    assert len(setup.log.undecided) == 1, "the commit needs a quorum only"
    for level in (ALL, Consistency.WRITE_ALL_READ_ONE):
        setup.partition.tell_level(link, AppendLevelRequest(req_id(2), level))
        setup.partition.append(link, [append(2)])
        (refused,) = take(link)
        assert isinstance(refused, ConsistencyRefused)
        assert refused.refusal is ConsistencyRefusal.STORAGE_MISSING
        assert refused.text == f"an append at {level.word} needs all storages, and this server does not reach b:1, c:1"
    setup.log.missing_storages = []
    setup.partition.append(link, [append(3)])
    assert len(setup.log.undecided) == 2


async def test_a_level_ends_with_the_next_mount_of_the_connection(setup: PartitionSetup) -> None:
    link = mounted(setup)
    setup.partition.set_append_rule(MANDATORY_ALL)
    setup.partition.tell_level(link, AppendLevelRequest(req_id(2), ALL))
    setup.partition.append(link, [append(1)])
    assert len(setup.log.undecided) == 1
    setup.partition.mount(link, mount(5, 2))
    setup.partition.append(link, [append(2)])
    assert len(setup.log.undecided) == 1


async def test_levels_and_questions_of_a_connection_that_does_not_count_are_dropped(setup: PartitionSetup) -> None:
    stranger = new_link(version=6)
    setup.partition.tell_level(stranger, AppendLevelRequest(req_id(2), ALL))
    setup.partition.ask_acknowledgement(stranger, AppendAckRequest(req_id(3), 0))
    assert (setup.log.awaited, take(stranger)) == ([], [])


async def test_the_mark_of_all_is_told_now_at_each_change_and_no_more_when_it_is_reached(
    setup: PartitionSetup,
) -> None:
    link, other = mounted(setup), mounted(setup, client_id=2)
    setup.log.stored_by_all = 0
    setup.partition.ask_acknowledgement(link, AppendAckRequest(req_id(2), 2))
    assert acks(link) == [(0, 3)]
    gauge = setup.registry.gauges[MetricId("waltz-server.partition-0", "acknowledgements-awaited")]
    assert gauge() == 1
    setup.log.store_by_all(0)
    assert acks(link) == [], "nothing new"
    setup.log.store_by_all(1)
    assert (acks(link), acks(other)) == ([(1, 3)], [])
    setup.log.store_by_all(2)
    setup.log.store_by_all(3)
    assert acks(link) == [(2, 3)], "all that was asked for"
    assert gauge() == 0
    setup.partition.ask_acknowledgement(link, AppendAckRequest(req_id(3), 1))
    assert take(link) == [AppendAck(req_id(3), 3, 3)]


async def test_a_question_beyond_the_committed_mark_waits_for_that_only(setup: PartitionSetup) -> None:
    link = mounted(setup)
    setup.log.stored_by_all = 1
    setup.partition.ask_acknowledgement(link, AppendAckRequest(req_id(2), (1 << 63) - 1))
    assert setup.log.awaited == [2]
    setup.log.store_by_all(2)
    setup.log.store_by_all(3)
    assert acks(link) == [(1, 3), (2, 3)]


async def test_a_later_question_replaces_the_first_and_a_closed_connection_is_forgotten(setup: PartitionSetup) -> None:
    link = mounted(setup)
    setup.partition.ask_acknowledgement(link, AppendAckRequest(req_id(2), 1))
    setup.partition.ask_acknowledgement(link, AppendAckRequest(req_id(3), 2))
    setup.log.store_by_all(1)
    setup.log.store_by_all(2)
    assert [message for message in take(link) if isinstance(message, AppendAck)] == [
        AppendAck(req_id(3), 1, 3),
        AppendAck(req_id(3), 2, 3),
    ]
    setup.log.stored_by_all = 0
    setup.partition.ask_acknowledgement(link, AppendAckRequest(req_id(4), 2))
    take(link)
    setup.partition.forget(link)
    setup.log.store_by_all(2)
    assert take(link) == []


async def test_a_committed_append_is_fed_before_it_is_acknowledged(setup: PartitionSetup) -> None:
    link = mounted(setup)
    setup.partition.tell_level(link, AppendLevelRequest(req_id(2), ALL))
    setup.partition.append(link, [append(2)])
    setup.log.commit()
    setup.partition.ask_acknowledgement(link, AppendAckRequest(req_id(3), 3))
    found: list[Message] = take(link)
    assert all(isinstance(message, FeedData) for message in found)
    setup.log.store_by_all(3)
    assert others(take(link)) == [AppendAck(req_id(3), 3, 3)]


# Below the quorum


async def early(setup: PartitionSetup, level: Consistency, client_id: int = 1) -> ClientLink:
    """A connection whose appends are acknowledged before their commit."""
    setup.partition.set_append_rule(AppendRule(consistency=Consistency.NONE))
    link = mounted(setup, client_id=client_id)
    setup.partition.tell_level(link, AppendLevelRequest(req_id(2, client_id=client_id), level))
    take(link)
    return link


async def test_appends_are_acknowledged_by_the_storages_that_their_level_asks_for(setup: PartitionSetup) -> None:
    link = await early(setup, Consistency.LEADER)
    setup.partition.append(link, [append(10), append(11)])
    first = setup.log.undecided[0].transaction_id
    assert setup.log.awaits_some
    setup.partition.stored_by_some([first, first - 1, first - 1])
    assert take(link) == [AppendAck(req_id(10), first, 1)]
    setup.partition.tell_level(link, AppendLevelRequest(req_id(3), Consistency.LEADER_PLUS_ONE))
    setup.partition.append(link, [append(12)])
    setup.partition.stored_by_some([first + 2, first + 1, first - 1])
    assert take(link) == [AppendAck(req_id(11), first + 1, 1)]
    setup.partition.stored_by_some([first + 2, first + 2, first - 1])
    assert take(link) == [AppendAck(req_id(12), first + 2, 2)]
    assert not waits(setup), "nothing waits"


def waits(setup: PartitionSetup) -> bool:
    return setup.log.awaits_some


async def test_a_commit_and_the_end_of_a_session_end_the_wait(setup: PartitionSetup) -> None:
    link = await early(setup, Consistency.LEADER)
    setup.partition.append(link, [append(10)])
    setup.log.commit()
    assert not waits(setup)
    take(link)
    setup.partition.append(link, [append(11)])
    assert waits(setup)
    setup.log.end_session()
    assert not waits(setup)
    setup.partition.stored_by_some([5000, 5000, 5000])
    assert acks(link) == []


async def test_nobody_is_told_who_has_gone_or_has_another_level(setup: PartitionSetup) -> None:
    gone = await early(setup, Consistency.LEADER)
    setup.partition.append(gone, [append(10)])
    setup.partition.forget(gone)
    assert not waits(setup)
    link = mounted(setup, client_id=2)
    setup.partition.append(link, [append(10, client_id=2)])
    assert not waits(setup)
    setup.partition.stored_by_some([5000, 5000, 5000])
    assert acks(gone) == acks(link) == []
