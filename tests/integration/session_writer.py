"""A client process that appends in a write session until that is over.

``python -m tests.integration.session_writer CONFIG.yml PARTITION PORTS``, where PORTS says in JSON what to connect to
in place of the ports of servers. It prints ``appended`` when it has appended something, and ``fenced`` at its end.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import waltz
from tests.integration.session_clients import LIVELY
from waltz.client.engine.environment import Environment, ZooKeeperCluster
from waltz.common.config.schemas import ClientConfig, load
from waltz.common.ids import Endpoint
from waltz.common.net.channel import Channel, connect

IN_FLIGHT = 50


def command(config: Path, partition: int, ports: dict[int, int]) -> list[str]:
    """The command that starts it."""
    module = "tests.integration.session_writer"
    return [sys.executable, "-m", module, str(config), str(partition), json.dumps(list(ports.items()))]


async def run(path: Path, partition: int, ports: dict[int, int]) -> None:
    """The life of the process."""

    async def connect_elsewhere(endpoint: Endpoint, *arguments: Any, **options: Any) -> Channel:
        return await connect(Endpoint(endpoint.host, ports[endpoint.port]), *arguments, **options)

    config = load(path, ClientConfig).model_copy(
        update={"enable_session_write": True, "max_concurrent_transactions": 2 * IN_FLIGHT}
    )
    environment = Environment(config, ZooKeeperCluster(config), connect_elsewhere, LIVELY)
    async with waltz.Client(environment) as client:

        async def write(writer: int) -> None:
            number = 0
            while True:
                try:
                    await client.append(partition, f"{writer} {number}".encode())
                except waltz.SessionFencedError:
                    return
                except waltz.NotAppendedError:
                    await asyncio.sleep(0.01)
                number += 1
                if (writer, number) == (0, 10):
                    print("appended", flush=True)

        await asyncio.gather(*(write(writer) for writer in range(IN_FLIGHT)))
    print("fenced", flush=True)


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1]), int(sys.argv[2]), dict(json.loads(sys.argv[3]))))
