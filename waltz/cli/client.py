"""``waltz client``: appends and reads like an application, and checks that the cluster keeps all appends."""

import argparse
import asyncio
import contextlib
import random

from waltz.cli.output import counted, show
from waltz.cli.progress import progress
from waltz.cli.session import Nouns, Session, check_partition_ids, client_of, cluster_command, noun, number
from waltz.common.errors import WaltzError
from waltz.common.zk.store_admin import read_store_params


def register(nouns: Nouns) -> None:
    """Add the noun and its verbs."""
    verbs = noun(nouns, "client")
    help_text = "append from several clients, then read all from the beginning and check every transaction"
    parser = cluster_command(verbs, "validate", help_text, _validate, prints=True)
    _count_option(parser, "transactions that each client appends")
    parser.add_argument("-nc", "--num-clients", type=number(minimum=1), required=True, metavar="N")
    _interval_option(parser)
    _partitions_option(parser)
    parser = cluster_command(
        verbs, "high-water-mark", "print the id of the last committed transaction", _mark, prints=True
    )
    parser.add_argument("-p", "--partition", type=number(minimum=0), required=True)
    help_text = "append transactions that create-consumer can check, here or in the original"
    parser = cluster_command(verbs, "create-producer", help_text, _create_producer, prints=True)
    _count_option(parser, "transactions to append")
    _interval_option(parser)
    _partitions_option(parser)
    help_text = "read transactions of create-producer from the beginning, waiting for them, and check each"
    parser = cluster_command(verbs, "create-consumer", help_text, _create_consumer, prints=True)
    _count_option(parser, "transactions to read")
    _partitions_option(parser)


def _count_option(parser: argparse.ArgumentParser, help_text: str) -> None:
    parser.add_argument("-tpc", "--txn-per-client", type=number(minimum=1), required=True, metavar="N", help=help_text)


def _interval_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-i",
        "--interval",
        type=number(minimum=0),
        required=True,
        metavar="MS",
        help="mean of the pauses between two transactions of a client, in milliseconds",
    )


def _partitions_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-ap",
        "--num-active-partitions",
        type=number(minimum=1),
        default=1,
        metavar="N",
        help="partitions 0 to N-1 take part; nobody else may write to them (default: 1)",
    )


async def check_partitions(session: Session, wanted: int) -> None:
    """Check the number of partitions.

    Raises:
        WaltzError: The cluster has fewer partitions than ``wanted``.
    """
    count = (await read_store_params(session.zookeeper, session.root)).partition_count
    if wanted > count:
        raise WaltzError(f"the command needs {wanted} partitions, but the cluster has {count}")


async def _validate(options: argparse.Namespace, session: Session) -> None:
    from waltz.cli import validation

    partitions, each = options.num_active_partitions, options.txn_per_client
    await check_partitions(session, partitions)
    total = each * options.num_clients
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(client_of(session)) for _ in range(options.num_clients)]
        before = await asyncio.gather(*(clients[0].high_water_mark(one) for one in range(partitions)))
        with progress("appending", total, "transactions") as done:
            retries = await asyncio.gather(
                *(
                    validation.produce(client, partitions, each, options.interval / 1000, random.Random(), done)
                    for client in clients
                )
            )
        total += sum(mark + 1 for mark in before)
        async with client_of(session) as reader:
            with progress("reading", total, "transactions") as done:
                await validation.consume(reader, partitions, total, done)
            after = await asyncio.gather(*(reader.high_water_mark(one) for one in range(partitions)))
    if (there := sum(mark + 1 for mark in after)) != total:
        raise WaltzError(f"there are {there} transactions where {total} were appended")
    line = f"{total} transactions in {partitions} partitions are as they were appended; {sum(retries)} retries"
    show(options, {"transactions": total, "partitions": partitions, "retries": sum(retries)}, [line])


async def _mark(options: argparse.Namespace, session: Session) -> None:
    await check_partition_ids(session, options.partition)
    async with client_of(session) as client:
        mark = await client.high_water_mark(options.partition)
    line = f"Partition {options.partition} current high-water mark: {mark}"
    show(options, {"partition": options.partition, "high_water_mark": mark}, [line])


async def _create_producer(options: argparse.Namespace, session: Session) -> None:
    from waltz.cli import validation

    partitions, count = options.num_active_partitions, options.txn_per_client
    await check_partitions(session, partitions)
    async with client_of(session) as client:
        with progress("appending", count, "transactions") as done:
            retries = await validation.produce(
                client, partitions, count, options.interval / 1000, random.Random(), done
            )
    line = f"{counted(count, 'transaction')} appended; {retries} were tried again"
    show(options, {"transactions": count, "retries": retries}, [line])


async def _create_consumer(options: argparse.Namespace, session: Session) -> None:
    from waltz.cli import validation

    partitions, count = options.num_active_partitions, options.txn_per_client
    await check_partitions(session, partitions)
    async with client_of(session) as client:
        with progress("reading", count, "transactions") as done:
            await validation.consume(client, partitions, count, done)
    show(options, {"transactions": count}, [f"{count} transactions are as they were appended"])
