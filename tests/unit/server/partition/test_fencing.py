"""Fences and heartbeats at one partition: what waits for what, and who is told what."""

import asyncio
import json
import logging
from collections.abc import Sequence

import pytest

from tests.unit.server.fakes import PartitionSetup, append, flush, new_link, req_id, take
from waltz.common.metrics.exposition import http_document, prometheus_text, to_json
from waltz.common.metrics.registry import Registry
from waltz.common.quiet_log import BURST
from waltz.common.wire.client_server import FlushResponse, Message
from waltz.common.wire.write_sessions import (
    NO_WRITE_SESSION,
    FenceOption,
    HeartbeatOption,
    HeartbeatRequest,
    HeartbeatResponse,
    HeartbeatState,
    LastTransactionIdRequest,
    LastTransactionIdResponse,
    LastTransactionStatus,
    SessionFenced,
    SessionFlag,
)
from waltz.server.partition.partition import PartitionOptions
from waltz.server.requests.link import ClientLink

FENCE = FenceOption.FENCE
NOTHING = FenceOption(0)


def question(number: int, fence: FenceOption = NOTHING, expected: int = NO_WRITE_SESSION) -> LastTransactionIdRequest:
    return LastTransactionIdRequest(req_id(number), fence, expected)


def heartbeat(number: int, options: HeartbeatOption = HeartbeatOption.GET_SESSION) -> HeartbeatRequest:
    return HeartbeatRequest(req_id(number), options)


def last(number: int, mark: int, session: int) -> LastTransactionIdResponse:
    return LastTransactionIdResponse(req_id(number), LastTransactionStatus.OK, mark, session)


class Setup(PartitionSetup):
    """A partition with an open session, number 2, and mounted links of clients 1 and 2."""

    def __init__(self, records: int = 0, options: PartitionOptions | None = None) -> None:
        self.now_s = 0.0
        super().__init__(records, options, registry=Registry(lambda: self.now_s))
        self.log.open_session()
        self.one = self.mounted(new_link(version=5, client_id=1))
        self.two = self.mounted(new_link(version=5, client_id=2, number=2))

    def begin(self) -> None:
        """The store session that a fence waits for."""
        self.log.begin_session(unbroken=True)

    def write(self, link: ClientLink, number: int, session: int = NO_WRITE_SESSION) -> None:
        self.partition.append(link, [append(number, client_id=link.client_id or 0)], session)

    def told(self, link: ClientLink) -> Sequence[Message]:
        return [message for message in take(link) if type(message).__name__ != "FeedData"]


async def test_the_number_is_one_more_than_the_store_session() -> None:
    setup = Setup(records=3)
    setup.partition.heartbeat(setup.one, heartbeat(1))
    assert setup.told(setup.one) == [HeartbeatResponse(req_id(1), HeartbeatState.OK, 2, 2, SessionFlag(0))]
    setup.partition.heartbeat(setup.one, heartbeat(2, HeartbeatOption.MARK_FOR_READERS))
    assert setup.told(setup.one) == [HeartbeatResponse(req_id(2), HeartbeatState.OK, 2, -1, SessionFlag(0))]


async def test_a_store_session_of_the_owners_own_leaves_the_number() -> None:
    setup = Setup()
    setup.log.begin_session(unbroken=True)
    setup.partition.heartbeat(setup.one, heartbeat(1))
    assert setup.told(setup.one) == [HeartbeatResponse(req_id(1), HeartbeatState.OK, -1, 2, SessionFlag(0))]
    setup.log.begin_session(unbroken=False)
    setup.partition.heartbeat(setup.one, heartbeat(2))
    assert setup.told(setup.one) == [HeartbeatResponse(req_id(2), HeartbeatState.OK, -1, 4, SessionFlag(0))]


async def test_a_question_raises_nothing_and_waits_for_what_came_before() -> None:
    setup = Setup(records=3)
    setup.write(setup.one, 1)
    setup.partition.last_transaction_id(setup.two, question(2))
    assert setup.told(setup.two) == []
    setup.log.commit()
    assert setup.told(setup.two) == [last(2, 3, 2)]
    assert setup.log.renewals == 0


async def test_the_last_transaction_of_an_empty_log() -> None:
    setup = Setup()
    setup.partition.last_transaction_id(setup.one, question(1, FENCE))
    setup.begin()
    assert setup.told(setup.one) == [last(1, -1, 3)]
    setup.write(setup.one, 2, 3)
    setup.log.commit()
    assert setup.partition.high_water_mark == 0


async def test_a_fence_waits_for_what_came_before_and_stands_before_what_comes_later() -> None:
    setup = Setup()
    setup.write(setup.one, 1)
    setup.write(setup.one, 2, 2)
    setup.partition.last_transaction_id(setup.two, question(3, FENCE))
    setup.write(setup.one, 4, 2)
    setup.write(setup.one, 5)
    setup.partition.flush(setup.one, flush(6))
    assert setup.log.batches == [1, 1]
    assert setup.log.renewals == 0
    setup.log.commit()
    assert setup.log.renewals == 1
    assert setup.told(setup.two) == []
    assert setup.log.batches == [1, 1]
    setup.begin()
    assert setup.told(setup.two) == [last(3, 1, 3)]
    assert setup.told(setup.one) == [SessionFenced(req_id(4), 1, 3)]
    assert setup.log.batches == [1, 1, 1]
    setup.log.commit()
    assert setup.told(setup.one) == [FlushResponse(req_id(6), 2)]
    assert setup.meter("session-fenced") == 1
    assert setup.meter("fences") == 1


async def test_a_refused_append_takes_no_lock_and_no_id() -> None:
    setup = Setup()
    refused = append(1, write=[5])
    setup.partition.append(setup.one, [refused], 1)
    assert setup.told(setup.one) == [SessionFenced(req_id(1), -1, 2)]
    setup.partition.append(setup.two, [append(2, write=[5], client_id=2)], 2)
    setup.log.commit()
    assert setup.partition.high_water_mark == 0


async def test_an_unexpected_session_raises_nothing() -> None:
    setup = Setup()
    setup.partition.last_transaction_id(setup.one, question(1, FENCE, 1))
    assert setup.told(setup.one) == [
        LastTransactionIdResponse(req_id(1), LastTransactionStatus.UNEXPECTED_SESSION, -1, 2)
    ]
    setup.partition.last_transaction_id(setup.one, question(2, FENCE, 2))
    setup.begin()
    assert setup.told(setup.one) == [last(2, -1, 3)]


async def test_two_fences_get_two_numbers() -> None:
    setup = Setup()
    setup.partition.last_transaction_id(setup.one, question(1, FENCE))
    setup.partition.last_transaction_id(setup.two, question(2, FENCE))
    setup.begin()
    assert setup.told(setup.one) == [last(1, -1, 3)]
    assert setup.told(setup.two) == []
    setup.begin()
    assert setup.told(setup.two) == [last(2, -1, 4)]


async def test_a_fence_whose_session_ends_first_is_done_by_the_next_one() -> None:
    setup = Setup()
    setup.partition.last_transaction_id(setup.one, question(1, FENCE))
    setup.log.end_session()
    assert setup.told(setup.one) == []
    setup.log.reopen(0)
    assert setup.told(setup.one) == [last(1, -1, 3)]


@pytest.mark.parametrize("found", [0, 1])
async def test_a_fence_that_waits_for_commits_goes_on_in_the_next_session(found: int) -> None:
    """Whether that has found the append or not: if not, the fence is looked at again, and has to have another one."""
    setup = Setup()
    setup.write(setup.one, 1)
    setup.partition.last_transaction_id(setup.two, question(2, FENCE))
    setup.write(setup.one, 3, 2)
    setup.log.end_session()
    setup.log.reopen(found)
    if not found:
        assert setup.told(setup.two) == []
        setup.begin()
    number = 3 if found else 4
    assert setup.told(setup.two) == [last(2, found - 1, number)]
    assert setup.told(setup.one)[-1] == SessionFenced(req_id(3), found - 1, number)
    assert setup.log.batches == [1]


@pytest.mark.parametrize("ends", ["undecided", "unwritten"])
async def test_an_append_that_has_its_turn_again_has_it_in_its_own_session(ends: str) -> None:
    """One that waited for what it conflicts with is no append without a session when that is found to be void."""
    setup = Setup()
    setup.partition.append(setup.one, [append(1, write=[5])], 2)
    setup.partition.append(setup.two, [append(2, write=[5], client_id=2)], 2)
    if ends == "unwritten":
        setup.log.written = 0
    setup.log.end_session()
    assert setup.told(setup.two) == []
    setup.log.reopen(0)
    assert setup.told(setup.two) == [SessionFenced(req_id(2, 2), -1, 3)]
    assert setup.log.batches == [1]


async def test_a_fence_that_takes_too_long_has_failed_and_lets_the_others_by() -> None:
    setup = Setup(options=PartitionOptions(answer_timeout_s=0.01))
    setup.partition.last_transaction_id(setup.one, question(1, FENCE))
    setup.write(setup.one, 2, 2)
    assert setup.log.batches == []
    while not (told := setup.told(setup.one)):
        await asyncio.sleep(0.005)
    assert told == [LastTransactionIdResponse(req_id(1), LastTransactionStatus.FENCE_FAILED, -1, 2)]
    assert setup.log.batches == [1]
    setup.log.begin_session(unbroken=True)
    setup.write(setup.one, 3, 2)
    assert setup.log.batches == [1, 1]


async def test_a_fence_whose_client_has_gone_stands_in_nobodys_way() -> None:
    setup = Setup()
    setup.write(setup.one, 1)
    setup.partition.last_transaction_id(setup.two, question(2, FENCE))
    setup.write(setup.one, 3)
    setup.two.channel.abort()
    setup.log.commit()
    assert setup.log.renewals == 0
    assert setup.log.batches == [1, 1]


async def renewed(setup: Setup, times: int) -> None:
    while setup.log.renewals < times:
        await asyncio.sleep(0.001)


async def test_a_fence_soon_after_another_waits_and_stands_in_nobodys_way() -> None:
    setup = Setup(options=PartitionOptions(min_fence_interval_s=0.01))
    setup.partition.last_transaction_id(setup.one, question(1, FENCE))
    setup.begin()
    assert setup.told(setup.one) == [last(1, -1, 3)]
    setup.partition.last_transaction_id(setup.one, question(2, FENCE))
    setup.partition.heartbeat(setup.two, heartbeat(3, HeartbeatOption.EXCLUSIVE))
    setup.write(setup.two, 4, 3)
    setup.log.commit()
    await asyncio.sleep(0.03)
    assert setup.log.renewals == 1
    assert setup.told(setup.one) == setup.told(setup.two) == []
    setup.now_s = 1.0
    await renewed(setup, 2)
    setup.begin()
    assert setup.told(setup.one) == [last(2, 0, 4)]
    assert setup.told(setup.two) == []
    setup.now_s = 2.0
    await renewed(setup, 3)
    setup.begin()
    held = SessionFlag.EXCLUSIVE | SessionFlag.HELD_BY_YOU
    assert setup.told(setup.two) == [HeartbeatResponse(req_id(3), HeartbeatState.OK, 0, 5, held)]


async def test_what_raises_nothing_is_answered_soon_after_a_fence() -> None:
    setup = Setup(options=PartitionOptions(min_fence_interval_s=0.01))
    exclusive = HeartbeatOption.GET_SESSION | HeartbeatOption.EXCLUSIVE
    setup.partition.heartbeat(setup.one, heartbeat(1, exclusive))
    setup.begin()
    assert len(setup.told(setup.one)) == 1
    setup.partition.heartbeat(setup.one, heartbeat(2, exclusive))
    setup.partition.last_transaction_id(setup.one, question(3))
    setup.partition.last_transaction_id(setup.one, question(4, FENCE, 2))
    assert [type(message).__name__ for message in setup.told(setup.one)] == [
        "HeartbeatResponse",
        "LastTransactionIdResponse",
        "LastTransactionIdResponse",
    ]


async def test_no_more_fences_wait_than_can_have_their_turn_in_time() -> None:
    setup = Setup(options=PartitionOptions(min_fence_interval_s=4.0, answer_timeout_s=10.0))
    setup.partition.last_transaction_id(setup.one, question(1, FENCE))
    setup.begin()
    setup.told(setup.one)
    gone = setup.mounted(new_link(version=5, client_id=3, number=3))
    setup.partition.last_transaction_id(gone, question(2, FENCE))
    gone.channel.abort()
    for number in (3, 4, 5):
        setup.partition.last_transaction_id(setup.one, question(number, FENCE))
    assert setup.told(setup.one) == [LastTransactionIdResponse(req_id(5), LastTransactionStatus.FENCE_FAILED, -1, 3)]
    setup.write(setup.one, 6, 3)
    assert setup.log.batches == [1]
    await setup.partition.close()


async def test_a_fence_that_waits_for_the_interval_is_answered_once() -> None:
    """In time, whatever becomes of it, and when the partition is given up."""
    setup = Setup(options=PartitionOptions(min_fence_interval_s=0.01, answer_timeout_s=0.03))
    setup.partition.last_transaction_id(setup.one, question(1, FENCE))
    setup.begin()
    setup.told(setup.one)
    setup.partition.last_transaction_id(setup.one, question(2, FENCE))
    while not (told := setup.told(setup.one)):
        await asyncio.sleep(0.001)
    assert told == [LastTransactionIdResponse(req_id(2), LastTransactionStatus.FENCE_FAILED, -1, 3)]
    setup.partition.last_transaction_id(setup.one, question(3, FENCE))
    await setup.partition.close()
    assert LastTransactionIdResponse(req_id(3), LastTransactionStatus.FENCE_FAILED, -1, 3) in setup.told(setup.one)
    setup.now_s = 1.0
    await asyncio.sleep(0.03)
    assert setup.told(setup.one) == []
    assert setup.log.renewals == 1


async def test_a_fence_whose_turn_comes_after_its_answer_is_not_answered_again() -> None:
    setup = Setup(options=PartitionOptions(min_fence_interval_s=0.01, answer_timeout_s=0.03))
    setup.partition.last_transaction_id(setup.one, question(1, FENCE))
    setup.begin()
    setup.told(setup.one)
    setup.log.end_session()
    setup.partition.last_transaction_id(setup.one, question(2, FENCE))
    while not (told := setup.told(setup.one)):
        await asyncio.sleep(0.001)
    assert len(told) == 1
    setup.log.reopen(0)
    setup.now_s = 1.0
    await asyncio.sleep(0.03)
    assert setup.told(setup.one) == []
    assert setup.log.renewals == 1


async def test_an_exclusive_session_has_one_writer() -> None:
    setup = Setup()
    setup.partition.heartbeat(setup.one, heartbeat(1, HeartbeatOption.GET_SESSION | HeartbeatOption.EXCLUSIVE))
    setup.begin()
    assert setup.told(setup.one) == [
        HeartbeatResponse(req_id(1), HeartbeatState.OK, -1, 3, SessionFlag.EXCLUSIVE | SessionFlag.HELD_BY_YOU)
    ]
    setup.partition.heartbeat(setup.two, heartbeat(2))
    assert setup.told(setup.two) == [
        HeartbeatResponse(req_id(2), HeartbeatState.HELD_BY_ANOTHER, -1, -1, SessionFlag.EXCLUSIVE)
    ]
    setup.write(setup.two, 3, 3)
    setup.write(setup.two, 4)
    setup.write(setup.one, 5, 3)
    assert setup.told(setup.two) == [SessionFenced(req_id(number, 2), -1, 3) for number in (3, 4)]
    assert setup.log.batches == [1]


async def test_the_holder_keeps_its_session_over_a_new_connection() -> None:
    setup = Setup()
    exclusive = HeartbeatOption.GET_SESSION | HeartbeatOption.EXCLUSIVE
    setup.partition.heartbeat(setup.one, heartbeat(1, exclusive))
    setup.begin()
    take(setup.one)
    again = setup.mounted(new_link(version=5, client_id=1, number=9))
    setup.partition.heartbeat(again, heartbeat(2, exclusive))
    assert setup.told(again) == [
        HeartbeatResponse(req_id(2), HeartbeatState.OK, -1, 3, SessionFlag.EXCLUSIVE | SessionFlag.HELD_BY_YOU)
    ]
    assert setup.log.renewals == 1


async def test_the_last_one_to_ask_for_an_exclusive_session_has_it() -> None:
    setup = Setup()
    for link in (setup.one, setup.two):
        setup.partition.heartbeat(link, heartbeat(1, HeartbeatOption.GET_SESSION | HeartbeatOption.EXCLUSIVE))
        setup.begin()
    setup.told(setup.one)
    setup.write(setup.one, 2, 3)
    setup.write(setup.two, 3, 4)
    assert setup.told(setup.one) == [SessionFenced(req_id(2), -1, 4)]
    assert setup.log.batches == [1]


async def test_a_fence_ends_exclusivity() -> None:
    setup = Setup()
    setup.partition.last_transaction_id(setup.one, question(1, FENCE | FenceOption.EXCLUSIVE))
    setup.begin()
    setup.write(setup.two, 2)
    assert [type(message) for message in setup.told(setup.two)] == [SessionFenced]
    setup.partition.last_transaction_id(setup.two, question(3, FENCE))
    setup.begin()
    setup.write(setup.two, 4)
    assert setup.log.batches == [1]


@pytest.mark.parametrize("version", range(5))
async def test_older_clients_are_dropped_in_an_exclusive_session_and_find_out_by_a_flush(version: int) -> None:
    setup = Setup()
    old = setup.mounted(new_link(version=version, client_id=3, number=3))
    setup.partition.heartbeat(setup.one, heartbeat(1, HeartbeatOption.GET_SESSION | HeartbeatOption.EXCLUSIVE))
    setup.begin()
    setup.write(old, 2)
    setup.partition.flush(old, flush(3))
    assert setup.told(old) == [FlushResponse(req_id(3), -1)]
    assert setup.meter("dropped-exclusive") == 1


async def test_a_connection_without_a_mount_hears_that_the_partition_is_not_ready() -> None:
    setup = Setup()
    stranger = new_link(version=5, client_id=4, number=4)
    setup.partition.heartbeat(stranger, heartbeat(1))
    assert setup.told(stranger) == [
        HeartbeatResponse(req_id(1), HeartbeatState.NOT_READY, -1, NO_WRITE_SESSION, SessionFlag(0))
    ]


async def test_before_the_first_session_everything_waits() -> None:
    setup = PartitionSetup(records=2, options=PartitionOptions(answer_timeout_s=0.01))
    link = new_link(version=5)
    setup.partition.last_transaction_id(link, question(1, FENCE))
    while not (told := take(link)):
        await asyncio.sleep(0.005)
    assert told == [LastTransactionIdResponse(req_id(1), LastTransactionStatus.NOT_READY, -1, NO_WRITE_SESSION)]
    setup.partition.last_transaction_id(link, question(2, FENCE))
    setup.log.open_session()
    assert take(link) == []
    setup.log.begin_session(unbroken=True)
    assert take(link) == [last(2, 1, 3)]


async def test_closing_answers_a_fence() -> None:
    setup = Setup()
    setup.partition.start()
    setup.partition.last_transaction_id(setup.one, question(1, FENCE))
    await setup.partition.close()
    assert LastTransactionIdResponse(req_id(1), LastTransactionStatus.FENCE_FAILED, -1, 2) in setup.told(setup.one)


def waltz_lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage().partition(", in ")[0]) for record in caplog.records]


async def test_fences_and_refusals_are_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "waltz.server")
    setup = Setup(records=3)
    old = setup.mounted(new_link(version=4, client_id=3, number=3))
    setup.partition.last_transaction_id(setup.one, question(1, FENCE))
    setup.begin()
    setup.write(setup.two, 2, 2)
    setup.partition.heartbeat(setup.one, heartbeat(3, HeartbeatOption.EXCLUSIVE))
    setup.begin()
    setup.write(setup.two, 4)
    setup.write(old, 5)
    assert waltz_lines(caplog) == [
        ("INFO", "partition 0: client 1 at client:1 has begun write session 3 behind transaction 2"),
        ("WARNING", "partition 0: refused 1 appends of client 2 at client:1: the write session is 3"),
        ("INFO", "partition 0: client 1 at client:1 has begun the exclusive write session 4 behind transaction 2"),
        (
            "WARNING",
            "partition 0: refused 1 appends of client 2 at client:1: client 1 holds write session 4 exclusively",
        ),
        (
            "WARNING",
            "partition 0: dropped 1 appends of client 3 at client:1: client 1 holds write session 4 exclusively",
        ),
    ]


async def test_a_fence_is_in_the_log_however_many_appends_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "waltz.server")
    setup = Setup()
    for number in range(1000):
        setup.write(setup.one, number, 1)
    assert len(caplog.records) == BURST
    setup.partition.last_transaction_id(setup.one, question(1000, FENCE))
    setup.begin()
    assert len(caplog.records) == BURST + 1


async def test_fences_that_fail_are_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    setup = Setup(options=PartitionOptions(min_fence_interval_s=1000.0))
    setup.partition.last_transaction_id(setup.one, question(1, FENCE))
    setup.begin()
    setup.partition.last_transaction_id(setup.two, question(2, FENCE))
    start = "partition 0: no write session was begun for client"
    too_soon = "too many have come within server.minFenceInterval of each other"
    assert waltz_lines(caplog) == [("WARNING", f"{start} 2 at client:1: {too_soon}")]
    caplog.clear()
    setup = Setup()
    setup.partition.start()
    setup.partition.last_transaction_id(setup.one, question(1, FENCE))
    await setup.partition.close()
    assert waltz_lines(caplog) == [("WARNING", f"{start} 1 at client:1: no store session began")]


async def test_appends_are_counted_that_a_session_let_in() -> None:
    setup = Setup()
    setup.write(setup.one, 1, 2)
    setup.write(setup.one, 2)
    setup.write(setup.one, 3, 1)
    assert setup.meter("session-append") == 1


async def test_everything_about_write_sessions_is_in_both_expositions() -> None:
    setup = Setup()
    setup.partition.start()
    setup.partition.heartbeat(setup.two, heartbeat(1, HeartbeatOption.EXCLUSIVE))
    setup.begin()
    setup.write(setup.two, 2, 3)
    setup.write(setup.one, 3)
    setup.write(setup.one, 4, 2)
    group = "waltz-server.partition-0"
    document = json.loads(to_json(http_document(setup.registry)))
    assert {name: document["gauges"][f"{group}.{name}"]["value"] for name in ("write-session", "exclusive-holder")} == {
        "write-session": 3,
        "exclusive-holder": 2,
    }
    counts = {"session-append": 1, "session-fenced": 2, "dropped-exclusive": 0, "fences": 1}
    assert {name: document["meters"][f"{group}.{name}"]["count"] for name in counts} == counts
    timer = document["timers"][f"{group}.fence-latency"]
    assert (timer["count"], timer["duration_units"]) == (1, "seconds")
    lines = prometheus_text(setup.registry).splitlines()
    assert {
        'waltz_server_partition_write_session{partition="0"} 3',
        'waltz_server_partition_exclusive_holder{partition="0"} 2',
        'waltz_server_partition_session_append_total{partition="0"} 1',
        'waltz_server_partition_session_fenced_total{partition="0"} 2',
        'waltz_server_partition_dropped_exclusive_total{partition="0"} 0',
        'waltz_server_partition_fences_total{partition="0"} 1',
        'waltz_server_partition_fence_latency_seconds_count{partition="0"} 1',
        "# TYPE waltz_server_partition_write_session gauge",
        "# TYPE waltz_server_partition_fences_total counter",
        "# TYPE waltz_server_partition_fence_latency_seconds summary",
    } <= set(lines)
    await setup.partition.close()
