"""``make demo-archive``: transactions are archived, all nodes are stopped, and Spark still reads the history."""

import argparse
import asyncio
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import yaml

from waltz.archive.chain import Place, newest_page
from waltz.archive.store import ObjectStore, open_store
from waltz.archive.verification import verify_partition
from waltz.asynchronous import connect
from waltz.client.builder import Append
from waltz.common.errors import WaltzError
from waltz.common.zk.store_admin import read_store_params
from waltz.demo.analysis import spark_session
from waltz.local.cluster import LocalCluster
from waltz.local.layout import ROOT

PARTITIONS = 2
PORTION = 500
ARCHIVE_TIMEOUT_S = 120.0


def main() -> int:
    """Run the demo; the exit code is 1 if anything is not as it was appended."""
    parser = argparse.ArgumentParser(prog="waltz.demo.history", description=__doc__)
    parser.add_argument("--transactions", type=int, default=100_000, help="how many (default: %(default)s)")
    parser.add_argument("--archive", metavar="URL", help="default: a directory, removed at the end")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="waltz-demo-") as directory:
        (Path(directory) / "archive").mkdir()
        url = options.archive or f"file://{directory}/archive"
        try:
            return run(Path(directory), url, options.transactions)
        except WaltzError as error:
            print(f"Error: {error}", file=sys.stderr)
            return 1


def run(directory: Path, url: str, transactions: int) -> int:
    """Append, archive, stop everything, and read. Raises ``WaltzError``."""
    store = open_store(url)
    print("starting ZooKeeper, three storages and two servers ...", flush=True)
    cluster = LocalCluster(directory / "cluster", partitions=PARTITIONS)
    with cluster:
        count = -(-transactions // (PARTITIONS * PORTION)) * PORTION
        print(f"appending {count * PARTITIONS} transactions ...", flush=True)
        asyncio.run(_append(cluster, count))
        print(f"archiving them into {store.url} ...", flush=True)
        with _archiver(cluster, directory, url):
            began_s = time.monotonic()
            places = asyncio.run(_wait_until_archived(cluster, store, count))
            print(f"  archived within {time.monotonic() - began_s:.1f} s")
    print("all storages, servers and ZooKeeper are stopped")
    for place in places:
        verified = asyncio.run(verify_partition(place))
        size = sum(each.size_bytes for each in verified.ranges)
        state = "whole" if not verified.problems else "damaged"
        print(f"  partition {place.partition_id}: {len(verified.ranges)} objects, {size} bytes, {state}")
    return 0 if _spark_agrees(url, places, count) else 1


async def _append(cluster: LocalCluster, count: int) -> None:
    async with connect(cluster.layout.client_config_path) as client:
        for first in range(0, count, PORTION):
            for partition_id in range(PARTITIONS):
                items = [Append(b"%d" % each, partition_id) for each in range(first, first + PORTION)]
                await client.append_many(partition_id, items)


@contextlib.contextmanager
def _archiver(cluster: LocalCluster, directory: Path, url: str) -> Iterator[None]:
    """An archiver that waits for nothing."""
    config = yaml.safe_load(cluster.layout.cli_config_path.read_text())
    path = directory / "archive.yml"
    path.write_text(yaml.safe_dump({**config, "archive.url": url, "archive.maxAge": 1000, "archive.interval": 200}))
    command = [sys.executable, "-m", "waltz.archive.process", "--log-level", "WARNING", str(path)]
    with subprocess.Popen(command) as process:  # noqa: S603 - a module of this package
        try:
            yield
        finally:
            process.terminate()


async def _wait_until_archived(cluster: LocalCluster, store: ObjectStore, count: int) -> list[Place]:
    zookeeper = await cluster.zookeeper()
    try:
        key = (await read_store_params(zookeeper, ROOT)).key
    finally:
        await zookeeper.close()
    places = [Place(store, key, partition_id) for partition_id in range(PARTITIONS)]
    deadline_s = time.monotonic() + ARCHIVE_TIMEOUT_S
    for place in places:
        while (await newest_page(place)).end < count:
            if time.monotonic() > deadline_s:
                raise WaltzError(f"partition {place.partition_id} was not archived within {ARCHIVE_TIMEOUT_S:g} s")
            await asyncio.sleep(0.2)
    return places


def _spark_agrees(url: str, places: list[Place], count: int) -> bool:
    """Whether Spark finds every transaction in the archive, once and at its place."""
    spark = spark_session()
    try:
        log = (
            spark.read.format("waltz")
            .option("archive", url)
            .option("archiveOnly", "true")
            .option("archiveCluster", str(places[0].cluster_key))
            .option("payloadFormat", "utf8")
            .load()
        )
        found = log.where("cast(data as bigint) = transaction_id and header = partition")
        per_partition = {
            row["partition"]: row["count"] for row in found.distinct().groupBy("partition").count().collect()
        }
        total = log.count()
    finally:
        spark.stop()
    agrees = per_partition == {place.partition_id: count for place in places} and total == count * len(places)
    print(f"  Spark reads {total} transactions from the archive; all as appended: {'yes' if agrees else 'no'}")
    return agrees


if __name__ == "__main__":
    sys.exit(main())
