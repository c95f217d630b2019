"""The pool of links: one for each server, for as long as the cluster knows it."""

import random

from tests.unit.client.application import QUICK
from tests.unit.client.fake_server import until
from waltz.client.engine.assignments import Owner
from waltz.client.engine.links import Links, ServerLink
from waltz.common.errors import ConnectFailedError
from waltz.common.ids import Endpoint
from waltz.common.net.channel import Channel
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
