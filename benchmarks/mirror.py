"""How fast a mirror is over a long line.

    python -m benchmarks.mirror [--transactions 200000] [--size 128] [--line target] [--runs 3] [--directory DIR]

Two clusters of real processes, and a mirror: the source, with one storage, holds the transactions before the mirror
starts; the target has three. The server of the target, or of the source, is behind a line of 200 ms there and back and
1 Gbit/s. Printed is the rate between the first and the last commit that the target tells, and the same without a line.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

import uvloop
import yaml

from tests.smoke.line import Shape
from tests.smoke.lines import BEHIND
from tests.smoke.proxy import Proxy
from waltz import Append, ClientConfig, connect
from waltz.common.config.schemas import load
from waltz.local.cluster import LocalCluster
from waltz.local.ports import HOST

APPENDED_TOGETHER = 500
POLL_INTERVAL_S = 0.05
TIMEOUT_S = 600.0
NO_LINE = Shape()
LINE = Shape.of(megabits=1000, round_trip_s=0.2)


async def fill(cluster: LocalCluster, count: int, size_bytes: int) -> None:
    """Append to the source."""
    data = bytes(size_bytes)
    async with connect(load(cluster.layout.client_config_path, ClientConfig)) as client:
        for _ in range(0, count, APPENDED_TOGETHER):
            await client.append_many(0, [Append(data)] * APPENDED_TOGETHER, timeout_s=TIMEOUT_S)


async def rate(cluster: LocalCluster, count: int) -> float:
    """Transactions per second, from the first one that the target has to the last."""
    async with connect(load(cluster.layout.client_config_path, ClientConfig)) as client, asyncio.timeout(TIMEOUT_S):
        while (first := await client.high_water_mark(0)) < 0:
            await asyncio.sleep(POLL_INTERVAL_S)
        began_s = time.monotonic()
        while (last := await client.high_water_mark(0)) < count - 1:
            await asyncio.sleep(POLL_INTERVAL_S)
        return (last - first) / (time.monotonic() - began_s)


async def measured(options: argparse.Namespace, directory: Path, shape: Shape) -> float:
    """One run, with clusters of its own."""
    behind = {"server.bindAddress": BEHIND}
    source = LocalCluster(directory / "source", plaintext=True, storages=1, servers=1, server_overrides=behind)
    target = LocalCluster(directory / "target", plaintext=True, storages=3, servers=1, server_overrides=behind)
    proxies = {
        name: Proxy(HOST, cluster.layout.servers[0].port, BEHIND)
        for name, cluster in (("source", source), ("target", target))
    }
    opening = [asyncio.create_task(proxy.open()) for proxy in proxies.values()]
    async with source, target:
        await asyncio.gather(*opening)
        await fill(source, options.transactions, options.size)
        proxies[options.line].shape(shape)
        config = {
            "mirror.source": str(source.layout.client_config_path),
            "mirror.target": str(target.layout.client_config_path),
        }
        path = directory / "mirror.yml"
        path.write_text(yaml.safe_dump(config))
        command = (sys.executable, "-m", "waltz.mirror", "--log-level", "ERROR", path)
        mirror = await asyncio.create_subprocess_exec(*command)
        try:
            return await rate(target, options.transactions)
        finally:
            mirror.terminate()
            await mirror.wait()
            for proxy in proxies.values():
                proxy.shape(NO_LINE)
                await proxy.close()


async def run(options: argparse.Namespace) -> None:
    """All runs; with and without the line in turn."""
    print("| | 200 ms, 1 Gbit/s | no line |\n|---|---:|---:|", flush=True)
    found: list[list[float]] = []
    for number in range(1, options.runs + 1):
        rates: list[float] = []
        for shape in (LINE, NO_LINE):
            with tempfile.TemporaryDirectory(dir=options.directory) as directory:
                rates.append(await measured(options, Path(directory), shape))
        found.append(rates)
        print(row(str(number), rates), flush=True)
    print(row("median", [statistics.median(rates) for rates in zip(*found, strict=True)]), flush=True)


def row(name: str, rates: list[float]) -> str:
    """A line of the table."""
    return f"| {name} | {' | '.join(f'{each:,.0f}/s' for each in rates)} |"


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--transactions", type=int, default=200_000, help="that are mirrored in each run")
    parser.add_argument("--size", type=int, default=128, help="bytes of each")
    parser.add_argument("--line", choices=("source", "target"), default="target", help="whose server is far away")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="where nodes write (default: a temporary directory)")
    uvloop.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
