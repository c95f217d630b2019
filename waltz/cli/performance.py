"""``waltz performance``: measures the capacity of a cluster and the latency of appends."""

import argparse
import asyncio
import contextlib
import random
from pathlib import Path
from typing import TYPE_CHECKING

from waltz.cli.client import check_partitions
from waltz.cli.output import counted, show
from waltz.cli.progress import progress
from waltz.cli.session import Nouns, Session, client_of, cluster_command, noun, number
from waltz.common.metrics.registry import Json

if TYPE_CHECKING:
    from waltz.client.plain.client import Client

IN_FLIGHT = 64
CONSUMER_PRODUCERS = 4


def register(nouns: Nouns) -> None:
    """Add the noun and its verbs."""
    verbs = noun(nouns, "performance")
    help_text = "append from several producers; print throughput and latencies"
    parser = cluster_command(verbs, "test-producers", help_text, _test_producers, prints=True)
    _common_options(parser)
    parser.add_argument(
        "-p",
        "--txn-per-thread",
        type=number(minimum=1),
        required=True,
        metavar="N",
        help="transactions of each producer",
    )
    parser.add_argument(
        "-t",
        "--num-thread",
        type=number(minimum=1),
        required=True,
        metavar="N",
        help="number of producers; each is a client",
    )
    parser.add_argument(
        "-i",
        "--interval",
        type=number(minimum=0),
        required=True,
        metavar="MS",
        help="open loop: mean interval between the transactions of a producer, in ms; 0: closed loop",
    )
    parser.add_argument(
        "--in-flight",
        type=number(minimum=1),
        default=IN_FLIGHT,
        metavar="N",
        help="closed loop: transactions of a producer under way (default: %(default)s)",
    )
    parser.add_argument(
        "-l",
        "--lock-pool-size",
        type=number(minimum=0),
        default=0,
        metavar="N",
        help="number of locks to write (default: none)",
    )
    parser.add_argument("--report", type=Path, metavar="DIRECTORY", help="directory for the numbers and a plot")
    help_text = "write transactions, then read them with one consumer; print throughput"
    parser = cluster_command(verbs, "test-consumers", help_text, _test_consumers, prints=True)
    _common_options(parser)
    parser.add_argument(
        "-t", "--num-txn", type=number(minimum=1), required=True, metavar="N", help="transactions to write and read"
    )


def _common_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-s", "--txn-size", type=number(minimum=0), required=True, metavar="BYTES")
    parser.add_argument(
        "-ap",
        "--num-active-partitions",
        type=number(minimum=1),
        default=1,
        metavar="N",
        help="partitions 0 to N-1 take part (default: 1)",
    )
    parser.add_argument(
        "-ml",
        "--mount-from-latest",
        "--mount_from_latest",
        action="store_true",
        help="begin at the end of the log; without this option, the whole log is read, too",
    )


async def _marks(client: "Client", partitions: int) -> list[int]:
    return list(await asyncio.gather(*(client.high_water_mark(each) for each in range(partitions))))


async def _test_producers(options: argparse.Namespace, session: Session) -> None:
    from waltz.cli.load import Load, consume, produce
    from waltz.cli.load_report import check_report, lines_of, numbers, write_report

    partitions = options.num_active_partitions
    await check_partitions(session, partitions)
    check_report(options.report)
    load = Load(
        options.txn_per_thread,
        options.txn_size,
        partitions,
        options.in_flight,
        options.interval / 1000,
        options.lock_pool_size,
    )
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(client_of(session)) for _ in range(options.num_thread)]
        for client in clients:  # join every partition before the measurement
            for partition_id in range(partitions):
                await client.append(partition_id, b"")
        if not options.mount_from_latest:
            ends = await _marks(clients[0], partitions)
            with progress("reading the log", sum(end + 1 for end in ends) * len(clients), "transactions") as done:
                await asyncio.gather(*(consume(client, [-1] * partitions, ends, done) for client in clients))
        with progress("appending", load.transactions * len(clients), "transactions") as done:
            measured = await produce(clients, load, random.Random(), done)
    found = numbers(load, len(clients), measured)
    lines = lines_of(found)
    if options.report is not None:
        lines += [f"written: {path}" for path in write_report(options.report, found, measured)]
    show(options, found, lines)


async def _test_consumers(options: argparse.Namespace, session: Session) -> None:
    from waltz.cli.load import Load, consume, produce

    partitions, count = options.num_active_partitions, options.num_txn
    await check_partitions(session, partitions)
    producers = min(CONSUMER_PRODUCERS, count)
    shares = [count // producers + (each < count % producers) for each in range(producers)]
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(client_of(session)) for _ in range(producers)]
        begins = await _marks(clients[0], partitions) if options.mount_from_latest else [-1] * partitions
        with progress("appending", count, "transactions") as done:
            await asyncio.gather(
                *(
                    produce(
                        [client], Load(share, options.txn_size, partitions, IN_FLIGHT, 0.0, 0), random.Random(), done
                    )
                    for client, share in zip(clients, shares, strict=True)
                )
            )
        ends = await _marks(clients[0], partitions)
    async with client_of(session) as client:
        with progress(
            "reading", sum(end - begin for begin, end in zip(begins, ends, strict=True)), "transactions"
        ) as done:
            read = await consume(client, begins, ends, done)
    duration_s = max(read.duration_s, 1e-9)
    document: dict[str, Json] = {
        "transactions": read.transactions,
        "megabytes": read.data_bytes / 1e6,
        "duration_s": read.duration_s,
        "transactions_per_s": read.transactions / duration_s,
        "megabytes_per_s": read.data_bytes / 1e6 / duration_s,
    }
    lines = [
        f"Read {counted(read.transactions, 'transaction')}, {read.data_bytes / 1e6:.2f} MB, in {read.duration_s:.2f} s",
        f"  {document['transactions_per_s']:.1f} transactions/s, {document['megabytes_per_s']:.2f} MB/s",
    ]
    show(options, document, lines)
