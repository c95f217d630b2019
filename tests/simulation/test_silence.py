"""A client's link over a line that is slow, or dead, and a server that cannot answer what it is asked."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from operator import attrgetter
from typing import Any
from unittest import mock

import pytest

from tests.simulation.lines import Line
from tests.simulation.loop import current_process
from tests.simulation.worlds import SmallWorld, run
from waltz.client.engine.links.links import LOOKS_PER_SILENCE, Links, ServerLink
from waltz.client.options import ClientOptions
from waltz.common.checksum import checksum
from waltz.common.ids import Endpoint, ReqId
from waltz.common.net import channel as channel_module
from waltz.common.net.channel import Channel, connect
from waltz.common.net.listener import Listener
from waltz.common.wire.append_request import AppendRequest
from waltz.common.wire.client_server import (
    FlushRequest,
    ServerPartitionsAssignmentRequest,
    ServerPartitionsAssignmentResponse,
    decode_batch,
    encode,
)
from waltz.common.wire.frames import CLIENT_SERVER, Bounds

ASK_S = 5.0
"""How often a client asks again for what is undecided."""
LIMIT_S = ClientOptions().silence_limit_s
LOOK_S = LIMIT_S / LOOKS_PER_SILENCE

REQ_ID = ReqId.of(1, 1, 0, 1)


class WithoutQuorum:
    """A server that answers nothing but what needs no quorum."""

    def __init__(self) -> None:
        self.appended = 0
        self.mute = False

    def channel_ready(self, channel: Channel) -> None: ...

    def channel_writable(self, channel: Channel) -> None: ...

    def channel_closed(self, channel: Channel, error: Exception | None) -> None: ...

    def frames_received(self, channel: Channel, buffer: bytes, bounds: Bounds) -> None:
        for message in decode_batch(buffer, bounds, channel.version):
            self.appended += isinstance(message, AppendRequest)
            if isinstance(message, ServerPartitionsAssignmentRequest) and not self.mute:
                channel.send(encode(ServerPartitionsAssignmentResponse(message.req_id, ()), channel.version))


class User:
    """Counts what happens to its link."""

    def __init__(self) -> None:
        self.connections = 0

    def link_ready(self, link: ServerLink) -> None:
        self.connections += 1

    def link_received(self, link: ServerLink, buffer: bytes, bounds: Bounds) -> None:
        assert link.channel is not None
        for message in decode_batch(buffer, bounds, link.channel.version):
            assert link.answers_ping(message)

    def link_writable(self, link: ServerLink) -> None: ...

    def link_lost(self, link: ServerLink, error: Exception) -> None: ...

    def link_refused(self, link: ServerLink) -> None: ...


def ask(link: ServerLink) -> None:
    """Ask for the decision of appends, as clients do again and again."""
    if link.channel is not None:
        link.channel.send(encode(FlushRequest(REQ_ID), link.channel.version))
        link.expect_answer()


def append(link: ServerLink, size_bytes: int) -> None:
    assert link.channel is not None
    data = bytes(size_bytes)
    request = AppendRequest(REQ_ID, -1, (), (), (), 0, data, checksum(data))
    link.channel.send(encode(request, link.channel.version))


def linked(
    test: Callable[[SmallWorld, ServerLink, WithoutQuorum, User], Coroutine[Any, Any, None]], *, watched: bool = True
) -> None:
    """Run a test inside of a client that has a link."""

    async def main(world: SmallWorld) -> None:
        server, user = WithoutQuorum(), User()
        listening = Listener.open("server", 1000, CLIENT_SERVER, "Waltz Server", lambda: server, tls=None)
        await world.process("server").run(listening)

        async def client() -> None:
            links = Links(
                user,
                tls=None,
                options=ClientOptions(),
                random_source=random.Random(1),
                watched=watched,
                connector=connect,
            )
            link = links.to(Endpoint("server", 1000))
            await link.ready_channel(10.0)
            await test(world, link, server, user)
            await links.close()

        await world.process("client").run(client())

    with mock.patch.object(channel_module, "unacknowledged_bytes", attrgetter("unacknowledged_bytes")):
        run(1, main)


async def ask_for(link: ServerLink, duration_s: float) -> None:
    """Ask again and again, and look in between, as clients do."""
    for look in range(round(duration_s / LOOK_S)):
        if look % round(ASK_S / LOOK_S) == 0:
            ask(link)
        link.check_silence()
        await asyncio.sleep(LOOK_S)


def go_dead(world: SmallWorld) -> None:
    """Nothing more passes on the connection, and nobody is told."""
    for one, other in (("client", "server"), ("server", "client")):
        for transport in world.network.transports_between(one, other):
            transport.blackhole()


def test_a_slow_line_is_kept_for_as_long_as_something_leaves() -> None:
    async def test(world: SmallWorld, link: ServerLink, server: WithoutQuorum, user: User) -> None:
        world.network.set_line("client", "server", Line(bytes_per_s=100e3))
        ask(link)
        for _ in range(10):
            append(link, 1_000_000)
        await ask_for(link, 200)
        assert server.appended == 10
        assert user.connections == 1

    linked(test)


def test_a_server_that_cannot_decide_is_alive() -> None:
    async def test(world: SmallWorld, link: ServerLink, server: WithoutQuorum, user: User) -> None:
        await ask_for(link, 1000)
        assert user.connections == 1

    linked(test)


@pytest.mark.parametrize("size_bytes", [0, 1_000, 1_000_000])
def test_a_dead_line_is_replaced_however_often_is_asked(size_bytes: int) -> None:
    async def test(world: SmallWorld, link: ServerLink, server: WithoutQuorum, user: User) -> None:
        world.network.set_line("client", "server", Line(bytes_per_s=100e3))
        ask(link)
        append(link, size_bytes)
        await asyncio.sleep(3.0)
        go_dead(world)
        await ask_for(link, 60)
        assert user.connections == 2
        await ask_for(link, 60)
        assert user.connections == 2

    linked(test)


def test_a_server_that_takes_everything_and_answers_nothing_is_replaced() -> None:
    async def test(world: SmallWorld, link: ServerLink, server: WithoutQuorum, user: User) -> None:
        server.mute = True
        ask(link)
        append(link, 1_000_000)
        await ask_for(link, 60)
        assert user.connections == 2

    linked(test)


@pytest.mark.parametrize("asked_before_s", [0.0, 3.0, 7.0, 14.0, 16.0, 29.0, 100.0])
@pytest.mark.parametrize("watched", [True, False])
def test_questions_that_are_repeated_do_not_put_off_the_end_of_a_dead_line(
    asked_before_s: float, watched: bool
) -> None:
    async def test(world: SmallWorld, link: ServerLink, server: WithoutQuorum, user: User) -> None:
        await ask_for(link, asked_before_s)
        go_dead(world)
        await ask_for(link, LIMIT_S + 3 * LOOK_S)
        await asyncio.sleep(1.0)
        assert user.connections == 2

    linked(test, watched=watched)


def test_a_process_that_was_held_up_reads_before_it_judges() -> None:
    async def test(world: SmallWorld, link: ServerLink, server: WithoutQuorum, user: User) -> None:
        world.network.set_line("client", "server", Line(delay_s=2 * LOOK_S))
        process, outside = current_process(), world.network.context
        asked_s = LIMIT_S / 2 + LOOK_S  # a sign of life is on its way
        world.loop.call_later(asked_s, process.pause, context=outside)
        world.loop.call_later(asked_s + LIMIT_S, process.resume, context=outside)

        def look() -> None:  # before anything is read, as a loop may call timers
            link.check_silence()
            asyncio.get_running_loop().call_later(LOOK_S, look)

        look()
        await asyncio.sleep(10 * LIMIT_S)
        assert user.connections == 1

    linked(test)


def test_a_server_that_owes_a_sign_of_life_is_not_waited_for_at_the_end() -> None:
    async def test(world: SmallWorld, link: ServerLink, server: WithoutQuorum, user: User) -> None:
        go_dead(world)
        await ask_for(link, LIMIT_S / 2 + 3 * LOOK_S)
        append(link, 1_000_000)
        began_s = world.loop.time()
        await link.close()
        assert world.loop.time() == began_s

    linked(test)
