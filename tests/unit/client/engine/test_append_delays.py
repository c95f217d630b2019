"""What a client does when a server wants no appends for a while."""

import asyncio

import pytest

import waltz
from tests.unit.client.application import QUICK
from waltz.client.engine.partition import appends
from waltz.client.mock import MockDriver
from waltz.client.mock.connection import MockConnection
from waltz.common.wire.append_delays import AppendsDelayed
from waltz.common.wire.append_request import AppendRequest
from waltz.common.wire.client_server import Message
from waltz.common.wire.version5 import AppendFailed, AppendFailure

DELAY_S = 0.3
TEXT = "principal 'svc-a' appends more than it may"


class Quota:
    """A server that answers each append with these delays, and refuses appends while it has refusals left."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.delays_ms: list[int] = []
        self.refusals = 0
        self.arrivals_s: list[float] = []
        handle = MockConnection._handle

        def limited(connection: MockConnection, message: Message) -> None:
            if not isinstance(message, AppendRequest):
                handle(connection, message)
                return
            self.arrivals_s.append(asyncio.get_running_loop().time())
            for delay_ms in self.delays_ms:
                connection._send(AppendsDelayed(message.req_id, delay_ms))
            if self.refusals:
                self.refusals -= 1
                connection._send(AppendFailed(message.req_id, AppendFailure.MOVED, -1, TEXT))
            else:
                handle(connection, message)

        monkeypatch.setattr(MockConnection, "_handle", limited)


@pytest.fixture
def quota(monkeypatch: pytest.MonkeyPatch) -> Quota:
    return Quota(monkeypatch)


async def test_no_append_leaves_before_the_delay_has_passed(quota: Quota) -> None:
    quota.delays_ms = [int(1000 * DELAY_S)]
    async with waltz.connect(MockDriver(1), options=QUICK) as client:
        for number in range(3):
            assert await client.append(0, b"x") == number
    first, second, third = quota.arrivals_s
    assert second - first >= DELAY_S - 0.01
    assert third - second >= DELAY_S - 0.01


async def test_other_partitions_go_on(quota: Quota) -> None:
    async with waltz.connect(MockDriver(2), options=QUICK) as client:
        await client.append(1, b"x")
        quota.delays_ms = [60_000]
        await client.append(0, b"x")
        quota.delays_ms = []
        async with asyncio.timeout(30):
            await client.append(1, b"x")


async def test_the_longest_of_several_delays_counts_and_none_is_no_delay(quota: Quota) -> None:
    quota.delays_ms = [0, int(1000 * DELAY_S), 10, -5]
    async with waltz.connect(MockDriver(1), options=QUICK) as client:
        await client.append(0, b"x")
        await client.append(0, b"x")
    first, second = quota.arrivals_s
    assert second - first >= DELAY_S - 0.01


async def test_a_refused_append_is_sent_again_after_the_delay(quota: Quota) -> None:
    """A commit of an earlier append does not end the delay."""
    quota.delays_ms, quota.refusals = [int(1000 * DELAY_S)], 2
    async with waltz.connect(MockDriver(1), options=QUICK) as client:
        await client.append(0, b"x")
    assert len(quota.arrivals_s) == 3
    gaps = [later - earlier for earlier, later in zip(quota.arrivals_s, quota.arrivals_s[1:], strict=False)]
    assert all(gap >= DELAY_S - 0.01 for gap in gaps)


async def test_a_call_that_runs_out_of_time_names_the_quota(quota: Quota) -> None:
    quota.delays_ms = [60_000]
    async with waltz.connect(MockDriver(1), options=QUICK) as client:
        await client.append(0, b"x")
        with pytest.raises(waltz.NotAppendedError, match="a quota is used up") as refused:
            await client.append(0, b"x", timeout_s=0.2)
        late = refused.value.__cause__
        assert late is not None
        assert isinstance(late.__cause__, waltz.ServerError)
        assert late.__cause__.retry_after_s == pytest.approx(60, abs=30)


async def test_no_server_is_believed_for_ever(quota: Quota, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appends, "MAX_DELAY_S", DELAY_S)
    quota.delays_ms = [2**31 - 1]
    async with waltz.connect(MockDriver(1), options=QUICK) as client:
        await client.append(0, b"x")
        async with asyncio.timeout(30):
            await client.append(0, b"x")


async def test_a_client_closes_during_a_delay(quota: Quota) -> None:
    quota.delays_ms = [60_000]
    async with asyncio.timeout(30):
        async with waltz.connect(MockDriver(1), options=QUICK) as client:
            await client.append(0, b"x")
            waiting = asyncio.ensure_future(client.append(0, b"x"))
            await asyncio.sleep(0)
        with pytest.raises(waltz.WaltzError):
            await waiting
