"""The schedule of faults, and cuts between two processes."""

import asyncio
import itertools
import os
import socket
from pathlib import Path

from tests.histories.faults import (
    CALM_S,
    DECK,
    LONG_PAUSE_S,
    LONGEST_S,
    RESTART_S,
    ZOOKEEPER,
    Fault,
    Kind,
    schedule,
)
from tests.histories.pairs import Pairs, owner_of
from tests.smoke.proxy import Proxy
from waltz.common.net.listener import close_server

HOST = "127.0.0.1"
SERVERS, STORAGES, CLIENTS, VIEWS = ["server-1", "server-2"], ["storage-1", "storage-2"], ["client-1"], ["view-1"]
NAMES = {"server": SERVERS, "storage": STORAGES, "client": CLIENTS, "view": VIEWS}


def some(seed: int) -> list[Fault]:
    return list(itertools.islice(schedule(seed, NAMES), 25 * len(DECK)))


def test_a_seed_is_a_schedule_in_which_everything_happens() -> None:
    faults = some(1)
    assert faults == some(1) != some(2)
    assert {fault.kind for fault in faults} == set(Kind)
    alone = {fault.targets[0] for fault in faults if fault.kind in (Kind.KILL, Kind.PAUSE)}
    assert alone == {*SERVERS, *STORAGES, *CLIENTS, *VIEWS, ZOOKEEPER}
    assert {fault.targets for fault in faults if fault.kind is Kind.CUT} == {
        *itertools.product(SERVERS, STORAGES),
        *itertools.product(CLIENTS, (*SERVERS, *VIEWS)),
        *itertools.product(VIEWS, SERVERS),
        *itertools.product((*SERVERS, *STORAGES, *CLIENTS, *VIEWS), [ZOOKEEPER]),
    }
    assert all(fault.at_s >= CALM_S and fault.lasting_s <= LONGEST_S for fault in faults)
    assert str(Fault(1.0, Kind.CUT, ("a", "b"), 2.0)) == "   1.0 s  cut     a - b                    for  2.0 s"


def test_each_deck_has_everything() -> None:
    """A campaign that is as long as one deck meets each kind of fault at each role."""
    faults = some(2)
    for first in range(0, len(faults), len(DECK)):
        dealt = [
            (fault.kind, tuple(target.split("-")[0] for target in fault.targets))
            for fault in faults[first : first + len(DECK)]
        ]
        assert sorted(dealt, key=str) == sorted(DECK, key=str)
    pauses = [fault.lasting_s for fault in faults if (fault.kind, fault.targets) == (Kind.PAUSE, (ZOOKEEPER,))]
    assert all(lasting_s >= LONG_PAUSE_S for lasting_s in pauses[::2])
    assert min(pauses) < LONG_PAUSE_S


def test_a_target_gets_well_between_two_faults() -> None:
    by_targets: dict[tuple[str, ...], list[Fault]] = {}
    for fault in some(3):
        by_targets.setdefault(fault.targets, []).append(fault)
    for faults in by_targets.values():
        for earlier, later in itertools.pairwise(faults):
            assert earlier.at_s + earlier.lasting_s + RESTART_S <= later.at_s


async def test_a_cut_is_between_two_processes_only() -> None:
    """This process connects twice: under its own name, and as one that is not known."""
    accepted: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    server = await asyncio.start_server(lambda *streams: accepted.put_nowait(streams), HOST, 0)
    relay = Proxy(HOST, 0, HOST, server.sockets[0].getsockname()[1])
    processes = {"init": 1, "client-1": os.getpid()}
    pairs = Pairs(lambda: processes)
    relay.whole_from = pairs.of("server-1")
    await relay.open()
    (await accepted.get())[1].transport.abort()  # the relay has looked whether the server is there
    writers = []
    try:
        reader, writer = await asyncio.open_connection(HOST, relay.port)
        writers.append(writer)
        far_reader, far_writer = await accepted.get()
        writers.append(far_writer)
        port = writer.get_extra_info("sockname")[1]
        assert owner_of(port, processes) == "client-1"
        assert owner_of(port, {"init": 1}) == ""
        assert owner_of(port, {"client-1": os.getpid()}, Path(os.devnull)) == ""
        pairs.line("client-1", "server-1").clear()
        writer.write(b"held")
        far_writer.write(b"held, too")
        processes.clear()
        _, other = await asyncio.open_connection(HOST, relay.port)
        writers.append(other)
        other_reader, other_far = await accepted.get()
        writers.append(other_far)
        other.write(b"through")
        assert await other_reader.read(100) == b"through"
        assert relay.connections[0].passed_bytes == 0
        pairs.line("client-1", "server-1").set()
        assert await far_reader.read(100) == b"held"
        assert await reader.read(100) == b"held, too"
    finally:
        await relay.close()
        await close_server(server)
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0)  # transports free their sockets in the turn after


def test_a_port_may_be_that_of_several_sockets(tmp_path: Path) -> None:
    table = tmp_path / "tcp"
    with socket.socket() as own:
        inode = os.readlink(f"/proc/self/fd/{own.fileno()}").strip("socket:[]")
        lines = [f"{number}: 0100007F:1F90 0100007F:0050 01 0 0 0 0 0 {each}" for number, each in enumerate((1, inode))]
        table.write_text("\n".join(["heading", *lines]))
        assert owner_of(0x1F90, {"client-1": os.getpid()}, table) == "client-1"
        assert owner_of(0x1F91, {"client-1": os.getpid()}, table) == ""


async def test_who_connects_while_its_line_is_cut_waits() -> None:
    accepted: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    server = await asyncio.start_server(lambda *streams: accepted.put_nowait(streams), HOST, 0)
    relay = Proxy(HOST, 0, HOST, server.sockets[0].getsockname()[1])
    pairs = Pairs(lambda: {"client-1": os.getpid()})
    asked = asyncio.Event()

    def whole_from(port: int) -> asyncio.Event:
        asked.set()
        return pairs.of("server-1")(port)

    relay.whole_from = whole_from
    await relay.open()
    (await accepted.get())[1].transport.abort()
    pairs.line("client-1", "server-1").clear()
    _, writer = await asyncio.open_connection(HOST, relay.port)
    await asked.wait()
    assert accepted.empty()
    pairs.line("client-1", "server-1").set()
    _, far_writer = await accepted.get()
    await relay.close()
    await close_server(server)
    for each in (writer, far_writer):
        each.transport.abort()
    await asyncio.sleep(0)
