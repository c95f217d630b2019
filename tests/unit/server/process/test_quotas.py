"""What a server does with appends that exceed a quota: over the partitions of two servers, and by version."""

import asyncio
from collections.abc import AsyncIterator
from itertools import count

import pytest

from tests.unit.server.fakes import GENERATION, append, channel_of, req_id, take
from tests.unit.server.process.test_service import Setup
from waltz.common.access import Right
from waltz.common.acl.document import Document, Mode, Quota, Rule
from waltz.common.acl.enforcement import Applied, RuleAccess
from waltz.common.acl.rules import compile_rules
from waltz.common.ids import ReqId
from waltz.common.pieces import at_once
from waltz.common.wire.append_delays import AppendsDelayed
from waltz.common.wire.client_server import FlushRequest, FlushResponse, MountRequest, TransactionDataRequest
from waltz.common.wire.version5 import AppendFailed, AppendFailure
from waltz.server.requests.appends import AppendCall
from waltz.server.requests.link import MAX_UNREAD_S, ClientLink

pytestmark = pytest.mark.virtual_time

COUNT = 8
RULES = (Rule(True, "*", (Right.APPEND, Right.READ), "*"),)


class Limited(Setup):
    """A server whose anonymous clients have a quota."""

    def __init__(self, quota: Quota, *partition_ids: int, mode: Mode = Mode.ENFORCE) -> None:
        self.rules = RuleAccess(COUNT, lambda subject: subject, [])
        super().__init__(access=self.rules)
        document = Document(mode, rules=RULES, quotas=(quota,))
        at_once(self.rules.apply(Applied(1, at_once(compile_rules(document, {}, COUNT)))))
        self.own(*partition_ids)

    def own(self, *partition_ids: int) -> None:
        self.service.set_partitions(dict.fromkeys(partition_ids, GENERATION))
        for made in self.made:
            if not made.log.open and not made.partition.closed:
                made.log.open_session()

    def mounted(self, *partition_ids: int, version: int = 6) -> ClientLink:
        link = self.link(version)
        for partition_id in partition_ids:
            self.service.received(link, MountRequest(id_of(partition_id, 0), -1, 0))
        take(link)
        return link

    def accepted(self, partition_id: int) -> list[int]:
        """The numbers of the appends that are in the order of a partition."""
        log = next(made.log for made in self.made if made.partition.partition_id == partition_id)
        return [ReqId(each.req_id).seq_num for each in log.undecided]


def id_of(partition_id: int, seq_num: int) -> bytes:
    return ReqId.of(1, GENERATION, partition_id, seq_num)


_numbers = count(100)


def calls(partition_id: int, size: int) -> list[AppendCall]:
    made = [append(next(_numbers)) for _ in range(size)]
    for call in made:
        call.req_id = id_of(partition_id, ReqId(call.req_id).seq_num)
    return made


@pytest.fixture
async def server() -> AsyncIterator[Limited]:
    made = Limited(Quota("*", "0", 100), 0)
    yield made
    await made.service.close()


async def test_a_flood_is_delayed_then_refused_and_the_first_appends_are_in_order(server: Limited) -> None:
    link = server.mounted(0)
    sent = calls(0, 130)
    numbers = [ReqId(each.req_id).seq_num for each in sent]
    for first in range(0, 130, 10):
        server.service.append(link, sent[first : first + 10])
    accepted = server.accepted(0)
    assert accepted == numbers[: len(accepted)]
    assert 100 <= len(accepted) < 110
    told = take(link)
    delays = [message for message in told if isinstance(message, AppendsDelayed)]
    failures = [message for message in told if isinstance(message, AppendFailed)]
    assert [ReqId(message.req_id).seq_num for message in failures] == numbers[len(accepted) :]
    assert {message.reason for message in failures} == {AppendFailure.MOVED}
    assert all("principal 'anonymous' appends more than it may: quota * at 0: 100" in str(f.text) for f in failures)
    assert told.index(delays[0]) < told.index(failures[0])
    assert 0 < delays[0].delay_ms <= 100
    assert 400 < delays[-1].delay_ms <= 510
    assert channel_of(link).reading, "a client that is told is read: its other partitions have no quota"


async def test_after_the_delay_more_is_taken(server: Limited) -> None:
    link = server.mounted(0)
    server.service.append(link, calls(0, 100))
    (told,) = take(link)
    assert isinstance(told, AppendsDelayed)
    await asyncio.sleep(told.delay_ms / 1000)
    server.service.append(link, calls(0, 50))
    assert len(server.accepted(0)) == 150


@pytest.mark.parametrize("version", [2, 4, 5])
async def test_an_older_client_is_not_read_for_a_while(server: Limited, version: int) -> None:
    link = server.mounted(0, version=version)
    server.service.append(link, calls(0, 60))
    assert not channel_of(link).reading
    assert take(link) == []
    server.service.append(link, calls(0, 60))  # what was read already
    assert 100 <= len(server.accepted(0)) < 110
    failures = take(link)
    assert all(isinstance(message, AppendFailed) for message in failures)
    assert (len(failures) == 120 - len(server.accepted(0))) if version == 5 else (not failures)
    await asyncio.sleep(MAX_UNREAD_S / 2)
    async with asyncio.timeout(60):
        while not channel_of(link).reading:
            await asyncio.sleep(0.01)


async def test_a_client_of_the_original_finds_out_by_a_flush(server: Limited) -> None:
    link = server.mounted(0, version=4)
    sent = calls(0, 150)
    server.service.append(link, sent)
    server.made[0].log.commit(len(server.accepted(0)))
    take(link)
    last = sent[-1].req_id
    server.service.received(link, FlushRequest(last))
    (answer,) = (message for message in take(link) if isinstance(message, FlushResponse))
    assert answer == FlushResponse(last, 99)


async def test_a_closed_connection_leaves_no_timer(server: Limited) -> None:
    link = server.mounted(0, version=4)
    server.service.append(link, calls(0, 500))
    assert link._delay is not None
    server.service.link_closed(link)
    assert link._delay is None


async def test_other_partitions_and_requests_go_on() -> None:
    server = Limited(Quota("*", "0", 10), 0, 1)
    try:
        link = server.mounted(0, 1)
        server.service.append(link, calls(0, 50))
        take(link)
        server.service.append(link, calls(1, 50))
        assert len(server.accepted(1)) == 50
        server.service.received(link, TransactionDataRequest(req_id(1), 0))
        assert len(take(link)) == 1
    finally:
        await server.service.close()


async def test_two_servers_keep_one_quota_also_when_a_partition_moves() -> None:
    quota = Quota("*", "0-3", 400)
    first, second = Limited(quota, 0, 1, 2), Limited(quota, 3)
    try:
        first.service.append(first.mounted(0), calls(0, 999))
        second.service.append(second.mounted(3), calls(3, 999))
        assert (len(first.accepted(0)), len(second.accepted(3))) == (300, 100)
        first.own(0, 1)
        second.own(2, 3)
        await asyncio.sleep(0.2)
        first.service.append(first.mounted(1), calls(1, 999))
        second.service.append(second.mounted(2), calls(2, 999))
        assert len(first.accepted(1)) == pytest.approx(len(second.accepted(2)), abs=20)
        assert 35 <= len(second.accepted(2)) < 200
    finally:
        await first.service.close()
        await second.service.close()


async def test_an_audit_refuses_and_delays_nothing() -> None:
    server = Limited(Quota("*", "0", 100), 0, mode=Mode.AUDIT)
    try:
        link = server.mounted(0)
        server.service.append(link, calls(0, 300))
        assert len(server.accepted(0)) == 300
        assert take(link) == []
        counts = dict(server.rules.throttles.counts())
        assert (counts["delayed", "audit"], counts["refused", "audit"]) == (100, 200)
    finally:
        await server.service.close()


async def test_appends_to_a_partition_elsewhere_use_nothing(server: Limited) -> None:
    link = server.mounted(0)
    server.service.append(link, calls(5, 500))
    take(link)
    server.service.append(link, calls(0, 50))
    assert len(server.accepted(0)) == 50
    assert take(link) == [], "half of the limit is free of delays"
