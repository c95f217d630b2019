"""What is shown of ports: connections, bytes, handshakes that fail."""

import asyncio
import re

import pytest

from tests.unit.common.net.peers import Recorder, frame
from tests.unit.common.net.test_listener import connect_to, listen
from waltz.common.config.schemas import TlsConfig
from waltz.common.errors import ConnectFailedError
from waltz.common.metrics.exposition import prometheus_text
from waltz.common.metrics.registry import Registry
from waltz.common.net.listener import Listener
from waltz.common.net.port_metrics import DESCRIPTIONS, watch_ports


def shown(listener: Listener) -> dict[str, int]:
    """Values by what the names have in the middle."""
    registry = Registry()
    watch_ports(registry, {"client": listener})
    found = dict[str, int]()
    for line in prometheus_text(registry).splitlines():
        if not line.startswith("#"):
            name, labels, value = re.fullmatch(r'waltz_(\w+?)(?:_total)?{port="client"(.*)} (\d+)', line).groups()  # type: ignore[union-attr]  # it matches
            found[name] = found.get(name, 0) + int(value)
            assert bool(labels) == (name == "tokens_refused")
    assert len(found) == len(DESCRIPTIONS)
    return found


async def test_connections_and_bytes() -> None:
    handlers: list[Recorder] = []
    listener = await listen(handlers, max_channels=1)
    client = Recorder()
    channel = await connect_to(listener, client)
    channel.send(frame(b"question"))
    await handlers[0].until(lambda recorder: bool(recorder.payloads))
    assert handlers[0].channel is not None
    handlers[0].channel.send(frame(b"answer"))
    await client.until(lambda recorder: bool(recorder.payloads))
    with pytest.raises(ConnectFailedError):
        await connect_to(listener, Recorder())
    open_ = shown(listener)
    assert open_ == {
        "connections": 1,
        "connections_accepted": 1,
        "connections_refused": 1,
        "received_bytes": handlers[0].channel.received_bytes,
        "sent_bytes": len(frame(b"answer")),
        "tls_handshake_failures": 0,
        "tls_stores_unusable": 0,
        "tokens_refused": 0,
    }
    assert open_["received_bytes"] > len(b"question")
    channel.close()
    await handlers[0].until_closed()
    assert shown(listener) == {**open_, "connections": 0}, "what has passed stays counted"
    await connect_to(listener, Recorder())
    assert shown(listener)["received_bytes"] > open_["received_bytes"]
    await listener.close()


async def test_handshakes_that_fail() -> None:
    listener = await listen([], tls=TlsConfig())
    for number in (1, 2):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"no TLS at all, but long enough to be taken for the beginning of it\r\n\r\n")
        async with asyncio.timeout(60):
            await reader.read()
        writer.transport.abort()
        while shown(listener)["tls_handshake_failures"] < number:
            await asyncio.sleep(0)
    assert shown(listener)["connections"] == 0
    _, probe = await asyncio.open_connection("127.0.0.1", listener.port)
    probe.transport.abort()
    while shown(listener)["connections_accepted"] < 3 or shown(listener)["connections"]:
        await asyncio.sleep(0)
    await connect_to(listener, Recorder(), TlsConfig())
    assert shown(listener)["tls_handshake_failures"] == 2, "a probe is none"
    await listener.close()
