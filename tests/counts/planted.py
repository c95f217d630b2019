"""What makes appends more expensive, planted: the counts have to tell. It is counted as if it were Waltz's own."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from tests.simulation.disk import SimulatedFile, SimulatedFiles
from tests.simulation.network import SimulatedTransport
from waltz.client.callbacks import WaltzClient
from waltz.common import checksum as checksum_module
from waltz.common.net.channel import Channel
from waltz.common.wire.catalogue import Catalogue
from waltz.common.wire.frames import FrameSplitter

Extra = Callable[[Callable[..., Any]], Callable[..., Any]]
"""What a method is replaced with, given that method."""


def _send_each_frame(send: Callable[..., Any]) -> Callable[..., Any]:
    def planted(channel: Channel, frame: bytes) -> None:
        send(channel, frame)
        channel.flush()

    return planted


def _send_in_halves(write: Callable[..., Any]) -> Callable[..., Any]:
    def planted(transport: SimulatedTransport, data: bytes) -> None:
        half = len(data) // 2
        write(transport, data[:half])
        write(transport, data[half:])

    return planted


def _another_task(submit: Callable[..., Any]) -> Callable[..., Any]:
    async def planted(*args: Any) -> None:
        await asyncio.create_task(submit(*args))

    return planted


def _another_future(submit: Callable[..., Any]) -> Callable[..., Any]:
    async def planted(*args: Any) -> None:
        asyncio.get_running_loop().create_future()
        await submit(*args)

    return planted


def _another_call(submit: Callable[..., Any]) -> Callable[..., Any]:
    async def planted(*args: Any) -> None:
        await submit(*args)

    return planted


def _another_timer(data_received: Callable[..., Any]) -> Callable[..., Any]:
    def planted(channel: Channel, data: bytes) -> None:
        asyncio.get_running_loop().call_later(10.0, print).cancel()
        data_received(channel, data)

    return planted


def _another_turn(data_received: Callable[..., Any]) -> Callable[..., Any]:
    def planted(channel: Channel, data: bytes) -> None:
        asyncio.get_running_loop().call_soon(data_received, channel, data)

    return planted


def _another_job(run: Callable[..., Any]) -> Callable[..., Any]:
    async def planted(files: SimulatedFiles, function: Callable[[], Any]) -> Any:
        await run(files, lambda: None)
        return await run(files, function)

    return planted


def _twice(function: Callable[..., Any]) -> Callable[..., Any]:
    def planted(*args: Any, **kwargs: Any) -> Any:
        function(*args, **kwargs)
        return function(*args, **kwargs)

    return planted


def _half_at_a_time(write: Callable[..., Any]) -> Callable[..., Any]:
    def planted(file: SimulatedFile, offset: int, chunks: list[bytes]) -> None:
        data = b"".join(chunks)
        half = len(data) // 2
        write(file, offset, [data[:half]])
        write(file, offset + half, [data[half:]])

    return planted


def _byte_by_byte(feed: Callable[..., Any]) -> Callable[..., Any]:
    def planted(splitter: FrameSplitter, data: bytes) -> Any:
        sum(1 for _ in data)
        return feed(splitter, data)

    return planted


PLANTED: dict[str, tuple[str, object, str, Extra, tuple[str, ...]]] = {
    "each frame in a write of its own": (
        "256 in flight",
        Channel,
        "send",
        _send_each_frame,
        ("client: sends", "server: sends", "storage: sends"),
    ),
    "each frame in two writes": (
        "1 in flight",
        SimulatedTransport,
        "write",
        _send_in_halves,
        ("client: sends", "server: sends", "storage: sends"),
    ),
    "a task for each append": ("16 in flight", WaltzClient, "submit", _another_task, ("client: tasks",)),
    "a future for each append": ("16 in flight", WaltzClient, "submit", _another_future, ("client: futures",)),
    "a call for each append": ("256 in flight", WaltzClient, "submit", _another_call, ("client: calls",)),
    "a timer for each read": (
        "16 in flight",
        Channel,
        "data_received",
        _another_timer,
        ("client: timers", "server: timers", "storage: timers"),
    ),
    "a turn of the loop for each read": (
        "1 in flight",
        Channel,
        "data_received",
        _another_turn,
        ("client: turns", "server: turns", "storage: turns", "client: handles", "server: handles", "storage: handles"),
    ),
    "a thread more for each write": ("1 in flight", SimulatedFiles, "run", _another_job, ("storage: jobs",)),
    "each sync twice": ("16 in flight", SimulatedFile, "datasync", _twice, ("storage: syncs",)),
    "each write in two": ("16 in flight", SimulatedFile, "write", _half_at_a_time, ("storage: writes",)),
    "each answer encoded twice": ("1 in flight", Catalogue, "encode", _twice, ("storage: packs",)),
    "each checksum computed twice": ("16 in flight", checksum_module, "crc32", _twice, ("client: checksums",)),
    "each byte looked at": (
        "256 in flight",
        FrameSplitter,
        "feed",
        _byte_by_byte,
        ("client: calls", "server: calls", "storage: calls"),
    ),
}
"""The load that shows it, the owner and the name of the method that is replaced, with what, and which counts grow."""


@contextlib.contextmanager
def planted(name: str) -> Iterator[None]:
    """While this lasts, it costs more."""
    _, owner, method, extra, _ = PLANTED[name]
    with mock.patch.object(owner, method, extra(getattr(owner, method))):
        yield
