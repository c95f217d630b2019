"""The pool of links: one for each server, for as long as the cluster knows it."""

import asyncio
import random
from dataclasses import replace
from typing import cast
from unittest import mock

import pytest

from tests.unit.client.application import QUICK
from tests.unit.client.fake_server import until
from waltz.client.engine.links.assignments import Owner
from waltz.client.engine.links.links import Links, ServerLink
from waltz.common.errors import ConnectFailedError, ConnectionClosedError, ProtocolError
from waltz.common.ids import Endpoint
from waltz.common.net.channel import Channel, ChannelHandler
from waltz.common.wire.frames import Bounds
from waltz.common.zk.znodes import PartitionGeneration

A, B = Endpoint("a", 1), Endpoint("b", 1)


class User:
    """Is told nothing here, as no connection comes about."""

    def link_ready(self, link: ServerLink) -> None:
        raise AssertionError

    def link_received(self, link: ServerLink, buffer: bytes, bounds: Bounds) -> None:
        raise AssertionError

    def link_writable(self, link: ServerLink) -> None:
        raise AssertionError

    def link_lost(self, link: ServerLink, error: Exception) -> None:
        raise AssertionError

    def link_refused(self, link: ServerLink) -> None:
        raise AssertionError


def links() -> Links:
    async def refuse(endpoint: Endpoint, *_: object, **__: object) -> Channel:
        raise ConnectFailedError(f"no connection to {endpoint}")

    return Links(User(), tls=None, options=QUICK, random_source=random.Random(1), watched=True, connector=refuse)


async def test_there_is_one_link_to_each_server() -> None:
    pool = links()
    first = pool.to(A)
    assert pool.to(A) is first
    assert pool.to(B) is not first
    assert list(pool) == [first, pool.to(B)]
    await pool.close()
    assert first.closed
    assert not list(pool)


async def test_a_server_that_comes_back_gets_another_link_and_higher_numbers() -> None:
    pool = links()
    pool.assign({A: [PartitionGeneration(0, 1)]})
    first = pool.to(A)
    await until(lambda: first.seq_num >= 0)
    assert pool.remove(A) is first
    assert first not in pool
    assert pool.owner(0) is None
    assert pool.remove(A) is None
    last = first.seq_num
    second = pool.to(A)
    assert second in pool
    await until(lambda: second.seq_num >= 0 and first.closed)
    assert second.seq_num > last
    await pool.close()


async def test_closed_it_takes_no_news() -> None:
    pool = links()
    assert pool.assign({A: [PartitionGeneration(0, 1)]}) == {0: Owner(A, 1)}
    await pool.close()
    assert pool.assign({B: [PartitionGeneration(0, 2)]}) == {}
    assert pool.owner(0) == Owner(A, 1)


async def test_closing_awaits_the_links_that_were_removed_before() -> None:
    pool = links()
    removed = pool.remove(pool.to(A).endpoint)
    assert removed is not None
    await pool.close()
    assert removed.closed


class Passing:
    """A connection that brings something, and ends."""

    version = 5
    taken_bytes = received_bytes = 0

    async def wait_closed(self) -> None:
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("error", "delays"),
    [(ProtocolError("no such message"), 2), (ConnectionClosedError("gone"), 0)],
    ids=["bad", "gone"],
)
async def test_a_connection_that_brought_what_is_no_message_is_not_replaced_at_once(
    error: Exception, delays: int
) -> None:
    attempts = 0

    async def pass_by(
        endpoint: Endpoint, family: object, hello_text: str, handler: ChannelHandler, **_: object
    ) -> Channel:
        nonlocal attempts
        attempts += 1
        if attempts > 2:
            await asyncio.Event().wait()
        channel = cast("Channel", Passing())
        handler.channel_ready(channel)
        handler.frames_received(channel, b"", [])
        handler.channel_closed(channel, error)
        return channel

    class Quiet(User):
        def link_ready(self, link: ServerLink) -> None:
            pass

        def link_received(self, link: ServerLink, buffer: bytes, bounds: Bounds) -> None:
            pass

        def link_lost(self, link: ServerLink, error: Exception) -> None:
            pass

    options = replace(QUICK, reconnect_initial_s=1000.0, reconnect_maximum_s=1000.0)
    given: list[float] = []

    async def sleep(delay_s: float) -> None:
        if delay_s:
            given.append(delay_s)
        await real_sleep(0)

    real_sleep = asyncio.sleep
    pool = Links(Quiet(), tls=None, options=options, random_source=random.Random(1), watched=True, connector=pass_by)
    with mock.patch("waltz.client.engine.links.links.asyncio.sleep", sleep):
        pool.to(A)
        while attempts < 3:
            await real_sleep(0)
    assert len(given) == delays
    await pool.close()
