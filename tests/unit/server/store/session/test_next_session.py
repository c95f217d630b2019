"""The number of the next session is taken ahead without disturbing the present one, and used once."""

import asyncio
from typing import cast

from waltz.common.zk.client import ZooKeeperError
from waltz.common.zk.znodes import PartitionMetadata
from waltz.server.store.interface import SessionEndedError, SupersededError
from waltz.server.store.metadata_node import MetadataNode
from waltz.server.store.session.next_session import NextSession
from waltz.server.store.session.session import StoreSession

TIMEOUT_S = 10.0


class Node:
    """Gives out numbers; what it raises is next, and it may take its time."""

    def __init__(self) -> None:
        self.session_id = 0
        self.error: Exception | None = None
        self.delay_s = 0.0

    async def begin_session(self, generation: int) -> tuple[PartitionMetadata, int]:
        await asyncio.sleep(self.delay_s)
        if self.error is not None:
            raise self.error
        self.session_id += 1
        return PartitionMetadata(generation, self.session_id, {}), self.session_id


class Session:
    """The present one."""

    partition_id = 0
    session_id = 0
    generation = 3

    def __init__(self) -> None:
        self.ended: Exception | None = None

    def end(self, error: SessionEndedError) -> None:
        self.ended = error


class Setup:
    def __init__(self) -> None:
        self.node = Node()
        self.wake = asyncio.Event()
        self.next = NextSession(cast("MetadataNode", self.node), self.wake, TIMEOUT_S)
        self.present = Session()

    async def take_ahead(self) -> bool:
        present = self.present
        return await self.next.take_ahead(cast("StoreSession", present), lambda: present.ended is not None)


async def test_a_number_that_was_taken_ahead_is_used_once() -> None:
    setup = Setup()
    assert await setup.take_ahead()
    assert (await setup.next.take(3)).metadata.session_id == 1
    assert (await setup.next.take(3)).metadata.session_id == 2


async def test_it_is_of_no_use_to_an_owner_of_another_generation() -> None:
    setup = Setup()
    assert await setup.take_ahead()
    begun = await setup.next.take(4)
    assert (begun.metadata.generation, begun.metadata.session_id) == (4, 2)


async def test_the_present_session_goes_on_while_zookeeper_fails_or_is_silent() -> None:
    setup = Setup()
    setup.node.error = ZooKeeperError("away")
    assert not await setup.take_ahead()
    setup.node.error, setup.node.delay_s = None, 2 * TIMEOUT_S
    assert not await setup.take_ahead()
    assert setup.present.ended is None


async def test_a_session_that_another_owner_has_superseded_ends() -> None:
    setup = Setup()
    setup.node.error = SupersededError("generation 9")
    assert await setup.take_ahead()
    assert setup.present.ended is setup.node.error


async def test_nothing_is_waited_for_once_the_present_session_has_ended() -> None:
    setup = Setup()
    setup.node.delay_s = TIMEOUT_S / 2
    loop = asyncio.get_running_loop()
    loop.call_later(1.0, setup.wake.set)  # of no consequence
    loop.call_later(2.0, setup.present.end, SessionEndedError("fenced"))
    loop.call_later(2.0, setup.wake.set)
    assert not await setup.take_ahead()
    assert loop.time() == 2.0
    assert setup.node.session_id == 0
