"""What makes appends more expensive, planted: the counts have to tell. It is counted as if it were Waltz's own."""

import asyncio
import contextlib
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from tests.simulation.disk import SimulatedFile, SimulatedFiles
from tests.simulation.network import SimulatedTransport
from waltz.client.callbacks import WaltzClient

Extra = Callable[[Callable[..., Any]], Callable[..., Any]]
"""What a method is replaced with, given that method."""


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


def _another_timer(take: Callable[..., Any]) -> Callable[..., Any]:
    def planted(transport: SimulatedTransport) -> Any:
        asyncio.get_running_loop().call_later(10.0, print).cancel()
        return take(transport)

    return planted


def _another_turn(write: Callable[..., Any]) -> Callable[..., Any]:
    def planted(transport: SimulatedTransport, data: bytes) -> None:
        asyncio.get_running_loop().call_soon(write, transport, data)

    return planted


def _another_encoding(write: Callable[..., Any]) -> Callable[..., Any]:
    def planted(transport: SimulatedTransport, data: bytes) -> None:
        write(transport, struct.pack(f"{len(data)}s", data))

    return planted


def _another_decoding(write: Callable[..., Any]) -> Callable[..., Any]:
    def planted(transport: SimulatedTransport, data: bytes) -> None:
        write(transport, struct.unpack(f"{len(data)}s", data)[0])

    return planted


def _another_checksum(write: Callable[..., Any]) -> Callable[..., Any]:
    def planted(transport: SimulatedTransport, data: bytes) -> None:
        zlib.crc32(data)
        write(transport, data)

    return planted


def _byte_by_byte(write: Callable[..., Any]) -> Callable[..., Any]:
    def planted(transport: SimulatedTransport, data: bytes) -> None:
        write(transport, bytes(byte for byte in data))

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


PLANTED: dict[str, tuple[str, object, str, Extra, tuple[str, ...]]] = {
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
        SimulatedTransport,
        "_take_arrived",
        _another_timer,
        ("client: timers", "server: timers", "storage: timers"),
    ),
    "each write a turn later": (
        "1 in flight",
        SimulatedTransport,
        "write",
        _another_turn,
        ("client: turns", "server: turns", "storage: turns", "client: handles", "server: handles", "storage: handles"),
    ),
    "a thread more for each write": (
        "16 in flight, slow disks",
        SimulatedFiles,
        "run",
        _another_job,
        ("storage: jobs",),
    ),
    "each sync twice": ("16 in flight", SimulatedFile, "datasync", _twice, ("storage: syncs",)),
    "each write twice": ("16 in flight", SimulatedFile, "write", _twice, ("storage: writes",)),
    "what is sent encoded twice": (
        "1 in flight",
        SimulatedTransport,
        "write",
        _another_encoding,
        ("client: packs", "server: packs", "storage: packs"),
    ),
    "what is sent decoded again": (
        "1 in flight",
        SimulatedTransport,
        "write",
        _another_decoding,
        ("client: unpacks", "server: unpacks", "storage: unpacks"),
    ),
    "a checksum of what is sent": (
        "1 in flight",
        SimulatedTransport,
        "write",
        _another_checksum,
        ("client: checksums", "server: checksums", "storage: checksums"),
    ),
    "each byte looked at": (
        "256 in flight",
        SimulatedTransport,
        "write",
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
