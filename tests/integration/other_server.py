"""A server as a process that speaks older versions only, or reaches the storages over other ports.

``python -m tests.integration.other_server CONFIG.yml WHAT``, where WHAT are the :class:`Differences` in JSON.
"""

import json
import sys
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from waltz.common.ids import Endpoint
from waltz.common.wire.frames import CLIENT_SERVER
from waltz.server.process import node
from waltz.server.store.connections import ConnectFunction, StorageRpc, storage_connector
from waltz.serving.__main__ import main


class Differences(NamedTuple):
    """The differences from an ordinary server."""

    newest: int = max(CLIENT_SERVER.versions)
    """The last version of the protocol with clients that it offers."""
    ports: tuple[tuple[int, int], ...] = ()
    """Ports of storages, each with the port to connect to in its place."""


def command(config: Path, differences: Differences) -> list[str]:
    """The command that starts such a server."""
    return [sys.executable, "-m", "tests.integration.other_server", str(config), json.dumps(differences)]


def run(differences: Differences) -> int:
    """The life of the process."""
    ports = dict(differences.ports)

    def connector(**options: object) -> ConnectFunction:
        connect = storage_connector(**options)  # type: ignore[arg-type]  # they are handed on

        async def connect_elsewhere(storage: str) -> StorageRpc:
            endpoint = Endpoint.parse(storage)
            return await connect(f"{endpoint.host}:{ports.get(endpoint.port, endpoint.port)}")

        return connect_elsewhere

    versions = tuple(version for version in CLIENT_SERVER.versions if version <= differences.newest)
    with (
        patch.object(node, "CLIENT_SERVER", CLIENT_SERVER._replace(versions=versions)),
        patch.object(node, "storage_connector", connector),
    ):
        return main()


if __name__ == "__main__":
    newest, pairs = json.loads(sys.argv.pop())
    sys.exit(run(Differences(newest, tuple((port, other) for port, other in pairs))))
