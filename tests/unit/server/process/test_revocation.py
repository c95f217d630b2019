"""What a server does to its connections when rights become fewer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.unit.server.fakes import GENERATION, FakeChannel, append, feed, flush, mount, req_id, take
from tests.unit.server.process.test_service import Setup, settle
from waltz.common.access import Right
from waltz.common.acl.document import Document, Mode, Rule
from waltz.common.acl.enforcement import Applied, RuleAccess
from waltz.common.acl.rules import compile_rules
from waltz.common.ids import LONG_MIN
from waltz.common.pieces import at_once, in_turns
from waltz.common.wire.client_server import (
    HighWaterMarkRequest,
    HighWaterMarkResponse,
    MountResponse,
    PartitionState,
    TransactionDataRequest,
    encode,
)
from waltz.common.wire.frames import FRAME_HEADER
from waltz.common.wire.refused import NotAuthorized
from waltz.common.wire.version5 import AppendFailed, AppendFailure
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
    SessionFlag,
)
from waltz.server.requests.link import ClientLink

PARTITION_COUNT = 8
EXCLUSIVE = HeartbeatOption.GET_SESSION | HeartbeatOption.EXCLUSIVE
FENCE_EXCLUSIVE = LastTransactionIdRequest(req_id(2), FenceOption.FENCE | FenceOption.EXCLUSIVE, NO_WRITE_SESSION)
TEXT = (
    "principal 'anonymous' (no certificate) may not {} partition 0: no rule (rules version {});"
    " waltz acl grant anonymous {} 0"
)


class Ruled(Setup):
    """A server with rules, whose clients are anonymous; it owns partition 0, with an open session."""

    def __init__(self) -> None:
        self.rules = RuleAccess(PARTITION_COUNT, lambda subject: subject, [])
        super().__init__(access=self.rules)
        self.version = 0

    async def allow(self, *rights: Right, mode: Mode = Mode.ENFORCE) -> None:
        """From now on these rights hold at partition 0."""
        rules = (Rule(True, "anonymous", rights, "0"),) if rights else ()
        compiled = at_once(compile_rules(Document(mode, rules=rules), {}, PARTITION_COUNT))
        self.version += 1
        self.service.rights_lost(await in_turns(self.rules.apply(Applied(self.version, compiled))))
        await settle()


@pytest.fixture
async def setup() -> AsyncIterator[Ruled]:
    made = Ruled()
    await made.allow(Right.APPEND, Right.READ, Right.FENCE)
    made.service.set_partitions({0: GENERATION})
    made.made[0].log.open_session()
    yield made
    await made.service.close()


def mounted(setup: Ruled, version: int = 6) -> ClientLink:
    link = setup.link(version)
    setup.service.received(link, mount(1, -1))
    assert take(link) == [MountResponse(req_id(1), PartitionState.READY)]
    return link


def committed(setup: Ruled) -> int:
    return sum(setup.made[0].log.batches)


async def test_a_feed_ends_and_its_client_hears_why(setup: Ruled) -> None:
    link = mounted(setup)
    setup.service.received(link, feed(1, -1))
    await setup.allow()
    text = TEXT.format("follow the ids and headers of", 2, "metadata")
    assert take(link) == [NotAuthorized(req_id(1), text)]
    assert link.mounts == {}
    assert not link.channel.closed
    setup.service.received(link, feed(1, -1))
    assert take(link) == [NotAuthorized(req_id(1), text)]
    await setup.allow(Right.APPEND)
    setup.service.received(link, mount(2, -1))
    assert take(link) == [MountResponse(req_id(2), PartitionState.READY)]


@pytest.mark.parametrize("version", range(6))
async def test_an_older_client_is_disconnected(setup: Ruled, version: int) -> None:
    link = mounted(setup, version)
    setup.service.received(link, feed(1, -1))
    await setup.allow(Right.DESCRIBE)
    assert take(link) == []
    assert link.channel.closed


async def test_a_connection_that_loses_nothing_is_left_alone(setup: Ruled) -> None:
    link = mounted(setup)
    await setup.allow(*(set(Right) - {Right.CLUSTER}))
    assert take(link) == []
    assert (list(link.mounts), link.rights.reduced) == ([setup.made[0].partition], False)


async def test_appends_in_order_go_on_and_later_ones_are_refused(setup: Ruled) -> None:
    link = mounted(setup)
    setup.service.append(link, [append(2)])
    assert committed(setup) == 1
    await setup.allow(Right.METADATA)
    setup.service.append(link, [append(3)])
    assert take(link) == [NotAuthorized(req_id(3), TEXT.format("append to", 2, "append"))]
    assert committed(setup) == 1
    assert list(link.mounts) == [setup.made[0].partition]  # the feed of the first one goes on


async def test_an_append_without_a_place_in_the_order_is_judged_when_it_gets_one(setup: Ruled) -> None:
    link = mounted(setup)
    log = setup.made[0].log
    log.end_session()
    setup.service.append(link, [append(2), append(3)])
    assert take(link) == []
    await setup.allow(Right.METADATA)
    log.open_session()
    await settle()
    text = TEXT.format("append to", 2, "append")
    assert take(link) == [NotAuthorized(req_id(each), text) for each in (2, 3)]
    assert committed(setup) == 0


async def test_an_append_without_a_place_is_judged_when_its_connection_has_closed(setup: Ruled) -> None:
    """It is still executed: the client may have gone to another connection."""
    link = mounted(setup)
    log = setup.made[0].log
    log.end_session()
    setup.service.append(link, [append(2)])
    setup.service.link_closed(link)
    await setup.allow(Right.METADATA)
    log.open_session()
    await settle()
    assert committed(setup) == 0


async def test_a_client_of_version_5_hears_that_its_append_has_failed(setup: Ruled) -> None:
    link = mounted(setup, 5)
    log = setup.made[0].log
    log.end_session()
    setup.service.append(link, [append(2)])
    await setup.allow(Right.METADATA)
    log.open_session()
    await settle()
    (failed,) = take(link)
    assert isinstance(failed, AppendFailed)
    assert (failed.req_id, failed.reason) == (req_id(2), AppendFailure.MOVED)
    assert failed.text == TEXT.format("append to", 2, "append")
    assert committed(setup) == 0


async def test_a_refused_flush_is_not_taken_for_the_refusal_of_an_append(setup: Ruled) -> None:
    """It has the id of the append, which is in order, and will be in the log."""
    link = mounted(setup)
    setup.service.append(link, [append(2)])
    setup.service.received(link, flush(2))
    await setup.allow(Right.DESCRIBE)
    setup.service.received(link, flush(2))
    setup.made[0].log.commit()
    text = TEXT.format("follow the ids and headers of", 2, "metadata")
    assert take(link) == [NotAuthorized(req_id(1), text)]  # the feed, by the id of its mount
    assert committed(setup) == 1


async def test_a_mount_that_waits_is_judged_when_it_is_answered(setup: Ruled) -> None:
    log = setup.made[0].log
    log.end_session()
    link = setup.link(6)
    setup.service.received(link, mount(1, -1))
    await setup.allow(Right.DESCRIBE)
    log.open_session()
    await settle()
    text = TEXT.format("follow the ids and headers of", 2, "metadata")
    assert take(link) == [NotAuthorized(req_id(1), text)]
    assert link.mounts == {}


async def test_a_fence_that_waits_is_judged_before_it_begins(setup: Ruled) -> None:
    link = mounted(setup)
    log = setup.made[0].log
    log.end_session()
    setup.service.received(link, HeartbeatRequest(req_id(2), HeartbeatOption.EXCLUSIVE))
    await setup.allow(Right.APPEND)
    log.open_session()
    await settle()
    assert take(link) == [NotAuthorized(req_id(2), TEXT.format("fence", 2, "fence"))]
    assert setup.made[0].partition._fencing.session.holder is None
    setup.service.append(link, [append(3)])
    assert committed(setup) == 1


def exclusive(setup: Ruled) -> ClientLink:
    """A client holds an exclusive session."""
    link = mounted(setup)
    setup.service.received(link, HeartbeatRequest(req_id(9), EXCLUSIVE))
    setup.made[0].log.begin_session(unbroken=True)
    (begun,) = take(link)
    assert isinstance(begun, HeartbeatResponse)
    assert begun.session_flags == SessionFlag.EXCLUSIVE | SessionFlag.HELD_BY_YOU
    assert holder(setup) == link.client_id
    return link


def holder(setup: Ruled) -> int | None:
    return setup.made[0].partition._fencing.session.holder


async def test_an_exclusive_session_ends_with_the_right_to_append(setup: Ruled) -> None:
    exclusive(setup)
    await setup.allow(Right.METADATA, Right.FENCE)
    assert holder(setup) is None


async def test_an_exclusive_session_ends_while_its_holder_is_away(setup: Ruled) -> None:
    """Otherwise nobody could append until somebody fences."""
    setup.service.link_closed(exclusive(setup))
    await setup.allow(Right.METADATA, Right.FENCE)
    assert holder(setup) is None


async def test_nobody_holds_an_exclusive_session_without_the_right_to_append(setup: Ruled) -> None:
    link = mounted(setup)
    await setup.allow(Right.METADATA, Right.FENCE)
    setup.service.received(link, FENCE_EXCLUSIVE)
    setup.made[0].log.begin_session(unbroken=True)
    assert holder(setup) is None
    (answer,) = take(link)
    assert isinstance(answer, LastTransactionIdResponse)
    assert answer.last_transaction_status is LastTransactionStatus.OK


@pytest.mark.parametrize("request_of_it", [HeartbeatRequest(req_id(2), EXCLUSIVE), FENCE_EXCLUSIVE])
async def test_an_exclusive_session_that_begins_while_its_right_goes_has_no_holder(
    setup: Ruled, request_of_it: HeartbeatRequest | LastTransactionIdRequest
) -> None:
    """The fence had its place in the order, so that it is carried out."""
    link = mounted(setup)
    log = setup.made[0].log
    setup.service.received(link, request_of_it)
    assert log.renewals == 1
    await setup.allow(Right.METADATA, Right.FENCE)
    log.begin_session(unbroken=True)
    assert holder(setup) is None
    (answer,) = take(link)
    number = setup.made[0].partition._fencing.session.number
    if isinstance(answer, HeartbeatResponse):
        assert (answer.heartbeat_state, answer.session_flags) == (HeartbeatState.OK, SessionFlag(0))
    else:
        assert isinstance(answer, LastTransactionIdResponse)
        assert answer.last_transaction_status is LastTransactionStatus.OK
    assert answer.write_session == number


async def test_rules_that_are_enforced_after_an_audit_end_what_it_has_let_pass(setup: Ruled) -> None:
    """The client has lost no right: it never had any."""
    await setup.allow(mode=Mode.AUDIT)
    link = exclusive(setup)
    setup.service.received(link, feed(1, -1))
    await setup.allow(Right.DESCRIBE, mode=Mode.AUDIT)
    assert holder(setup) == link.client_id
    assert list(link.mounts) == [setup.made[0].partition]
    await setup.allow(Right.DESCRIBE)
    assert holder(setup) is None
    assert take(link) == [NotAuthorized(req_id(1), TEXT.format("follow the ids and headers of", 4, "metadata"))]
    assert link.mounts == {}


async def test_appends_that_an_audit_has_let_wait_are_refused_when_the_rules_are_enforced(setup: Ruled) -> None:
    await setup.allow(Right.METADATA, mode=Mode.AUDIT)
    link = mounted(setup)
    log = setup.made[0].log
    log.end_session()
    setup.service.append(link, [append(2)])
    await setup.allow(Right.METADATA)
    log.open_session()
    await settle()
    assert take(link) == [NotAuthorized(req_id(2), TEXT.format("append to", 3, "append"))]
    assert committed(setup) == 0


async def test_an_older_client_is_told_that_its_fence_has_failed(setup: Ruled) -> None:
    link = mounted(setup, 5)
    log = setup.made[0].log
    log.end_session()
    setup.service.received(link, HeartbeatRequest(req_id(2), EXCLUSIVE))
    setup.service.received(link, LastTransactionIdRequest(req_id(3), FenceOption.FENCE, NO_WRITE_SESSION))
    await setup.allow(Right.APPEND)
    log.open_session()
    await settle()
    heartbeat, last = take(link)
    assert isinstance(heartbeat, HeartbeatResponse)
    assert heartbeat.heartbeat_state is HeartbeatState.NOT_READY
    assert isinstance(last, LastTransactionIdResponse)
    assert last.last_transaction_status is LastTransactionStatus.FENCE_FAILED
    assert log.renewals == 0


async def test_an_older_client_is_told_that_a_mark_is_unknown_whose_right_went_while_it_waited(setup: Ruled) -> None:
    link = setup.link(4)
    log = setup.made[0].log
    log.end_session()
    setup.service.received(link, HighWaterMarkRequest(req_id(2)))
    await setup.allow()
    log.open_session()
    await settle()
    assert take(link) == [HighWaterMarkResponse(req_id(2), LONG_MIN)]


async def test_the_audit_ends_nothing(setup: Ruled) -> None:
    link = mounted(setup)
    await setup.allow(mode=Mode.AUDIT)
    setup.service.append(link, [append(2)])
    assert committed(setup) == 1
    assert take(link) == []
    assert list(link.mounts) == [setup.made[0].partition]
    assert dict(setup.rules.refusals.counts())["append", "audit"] == 1


async def test_feeds_of_many_connections_end_with_other_turns_in_between(setup: Ruled) -> None:
    links = [setup.link(6) for _ in range(20)]
    for number, link in enumerate(links):
        link.client_id = number
        setup.service.received(link, mount(1, -1, number))
    lost = [link.rights for link in links]
    await setup.allow()
    for _ in range(100):
        await asyncio.sleep(0)
    assert all(link.rights.reduced and not link.mounts for link in links)
    assert len(set(map(id, lost))) == 1  # one row for all of them


async def _two_appends_wait(setup: Ruled, mode: Mode, *rights: Right) -> dict[str, int]:
    """While they wait all rights go but one that lets nobody append."""
    await setup.allow(*rights, mode=mode)
    link = mounted(setup)
    setup.made[0].log.end_session()
    setup.service.append(link, [append(2), append(3)])
    await setup.allow(Right.METADATA, mode=mode)
    setup.made[0].log.open_session()
    return {"append": 2}


async def appends_wait(setup: Ruled, mode: Mode) -> dict[str, int]:
    """The right goes while they wait."""
    return await _two_appends_wait(setup, mode, Right.APPEND)


async def appends_wait_without_the_right(setup: Ruled, mode: Mode) -> dict[str, int]:
    """Another right goes while they wait."""
    return await _two_appends_wait(setup, mode, Right.METADATA, Right.FENCE)


async def some_appends_wait_with_the_right(setup: Ruled, mode: Mode) -> dict[str, int]:
    """One comes before the right goes, and one after that."""
    await setup.allow(Right.APPEND, Right.FENCE, mode=mode)
    link = mounted(setup)
    setup.made[0].log.end_session()
    setup.service.append(link, [append(2)])
    await setup.allow(Right.METADATA, Right.FENCE, mode=mode)
    setup.service.append(link, [append(3)])
    await setup.allow(Right.METADATA, mode=mode)
    setup.made[0].log.open_session()
    return {"append": 2}


async def a_mount_waits(setup: Ruled, mode: Mode) -> dict[str, int]:
    await setup.allow(Right.METADATA, Right.DESCRIBE, mode=mode)
    setup.made[0].log.end_session()
    setup.service.received(setup.link(6), mount(1, -1))
    await setup.allow(Right.DESCRIBE, mode=mode)
    await setup.allow(mode=mode)
    setup.made[0].log.open_session()
    return {"metadata": 1}


async def a_feed_is_open(setup: Ruled, mode: Mode) -> dict[str, int]:
    """Further rights go when it has ended, or would have."""
    await setup.allow(Right.METADATA, Right.DESCRIBE, mode=mode)
    setup.service.received(mounted(setup), feed(1, -1))
    await setup.allow(Right.DESCRIBE, mode=mode)
    await setup.allow(mode=mode)
    return {"metadata": 1}


async def an_exclusive_session_is_held(setup: Ruled, mode: Mode) -> dict[str, int]:
    await setup.allow(Right.APPEND, Right.FENCE, Right.DESCRIBE, mode=mode)
    exclusive(setup)
    for rights in ((Right.METADATA, Right.FENCE, Right.DESCRIBE), (Right.METADATA, Right.FENCE), (Right.METADATA,)):
        await setup.allow(*rights, mode=mode)
    return {"append": 1}


async def a_fence_waits(setup: Ruled, mode: Mode) -> dict[str, int]:
    await setup.allow(Right.APPEND, Right.FENCE, mode=mode)
    link = mounted(setup)
    setup.made[0].log.end_session()
    setup.service.received(link, HeartbeatRequest(req_id(2), HeartbeatOption.EXCLUSIVE))
    await setup.allow(Right.APPEND, mode=mode)
    setup.made[0].log.open_session()
    return {"fence": 1}


async def a_read_waits_for_the_client(setup: Ruled, mode: Mode) -> dict[str, int]:
    """One lacks the right when it comes, the other when it is looked at again."""
    for rights in ((Right.METADATA,), (Right.READ,)):
        await setup.allow(*rights, mode=mode)
        channel, connection = FakeChannel(6), setup.service.connection()
        connection.channel_ready(channel)  # type: ignore[arg-type]  # what a handler needs of a channel is there
        channel.writable = False
        frame = encode(TransactionDataRequest(req_id(4), 0), 6)
        connection.frames_received(channel, frame, [(FRAME_HEADER.size, len(frame))])  # type: ignore[arg-type]  # same
        await setup.allow(mode=mode)
        channel.writable = True
        connection.channel_writable(channel)  # type: ignore[arg-type]  # same
    return {"read": 2}


@pytest.mark.parametrize(
    "requests",
    [
        appends_wait,
        appends_wait_without_the_right,
        some_appends_wait_with_the_right,
        a_mount_waits,
        a_feed_is_open,
        an_exclusive_session_is_held,
        a_fence_waits,
        a_read_waits_for_the_client,
    ],
)
@pytest.mark.parametrize("mode", [Mode.AUDIT, Mode.ENFORCE])
async def test_the_audit_notes_what_is_refused(
    setup: Ruled, requests: Callable[[Ruled, Mode], Awaitable[dict[str, int]]], mode: Mode
) -> None:
    """Each request once, however often it is looked at while it waits."""
    expected = await requests(setup, mode)
    await settle()
    counted = {labels: count for labels, count in setup.rules.refusals.counts() if count}
    assert counted == {(right, mode.value): count for right, count in expected.items()}
