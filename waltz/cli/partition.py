"""``waltz partition``: the properties of partitions, and their logs by time."""

import argparse
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import NamedTuple

from waltz.cli.session import (
    Nouns,
    Session,
    check_partition_ids,
    client_of,
    cluster_command,
    endpoint,
    moment,
    noun,
    partition_ranges,
)
from waltz.cli.trimming import register_trim
from waltz.client.engine.rpc import RpcClient
from waltz.common.errors import WaltzError
from waltz.common.ids import Endpoint
from waltz.common.partition_ids import check_partition
from waltz.common.wire.partition_properties import SetPropertiesStatus
from waltz.common.zk.store_admin import read_store_params, sync_cluster
from waltz.table.errors import PropertiesError
from waltz.table.properties import (
    CHANGE,
    PartitionProperties,
    Replaced,
    StoredProperties,
    change_properties,
    change_properties_by,
    read_properties,
)

Change = Callable[[int, Mapping[str, object]], Awaitable[StoredProperties]]
"""Changes properties of a partition."""


class Assignment(NamedTuple):
    """A property and its new value; ``None`` resets it to its default."""

    key: str
    value: object


def register(nouns: Nouns) -> None:
    """Add the noun and its verbs."""
    verbs = noun(nouns, "partition")
    parser = cluster_command(verbs, "show", "print the properties of partitions", _show)
    _add_partitions(parser, required=False)
    parser.add_argument("--all", action="store_true", help="also properties with default values")
    _add_json(parser)
    help_text = "change properties of partitions"
    parser = cluster_command(verbs, "configure", help_text, _configure)
    _add_partitions(parser, required=True)
    parser.add_argument(
        "changes",
        nargs="+",
        type=assignment,
        metavar="PROPERTY=VALUE",
        help="e.g. format=table; PROPERTY= resets a property to its default",
    )
    parser.add_argument(
        "-s",
        "--server",
        type=endpoint,
        metavar="HOST:PORT",
        help="server.port of a server that changes them, for users who may not write them in ZooKeeper",
    )
    _add_json(parser)
    help_text = "print the last transaction committed by a time; -1 if there is none"
    parser = cluster_command(verbs, "at", help_text, _at)
    _add_partitions(parser, required=True)
    parser.add_argument("time", type=moment, metavar="TIME", help="e.g. 2026-03-01T12:00:00Z")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each partition")
    register_trim(verbs)


def _add_partitions(parser: argparse.ArgumentParser, *, required: bool) -> None:
    default = "" if required else " (default: all)"
    parser.add_argument(
        "-p", "--partition", type=partition_ranges, required=required, help=f"e.g. 0-6,7,10-16{default}"
    )


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="a line of JSON for each partition, with all properties")


def assignment(text: str) -> Assignment:
    """Parse ``PROPERTY=VALUE`` for argparse. The value is JSON, or else text."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"not of the form PROPERTY=VALUE: {text!r}")
    try:
        return Assignment(key, json.loads(value) if value else None)
    except (ValueError, RecursionError):
        return Assignment(key, value)


async def _partitions(options: argparse.Namespace, session: Session) -> list[int]:
    count = (await read_store_params(session.zookeeper, session.root)).partition_count
    wanted = list(range(count)) if options.partition is None else options.partition
    for partition_id in wanted:
        check_partition(partition_id, count)
    return wanted


async def _show(options: argparse.Namespace, session: Session) -> None:
    await sync_cluster(session.zookeeper, session.root)
    unread = 0
    for partition_id in await _partitions(options, session):
        try:
            stored = await read_properties(session.zookeeper, session.root, partition_id)
        except PropertiesError as error:
            unread += 1
            print(json.dumps({"partition": partition_id, "error": str(error)}) if options.json else f"Error: {error}")
        else:
            print(as_json(partition_id, stored) if options.json else describe(partition_id, stored, options.all))
    if unread:
        raise WaltzError(f"the properties of {unread} partitions cannot be read")


async def _configure(options: argparse.Namespace, session: Session) -> None:
    changes = dict(options.changes)
    if len(changes) < len(options.changes):
        raise WaltzError("a property is given more than once")
    if options.server is None:
        await _configure_by(options, session, partial(change_properties, session.zookeeper, session.root))
        return
    async with RpcClient(tls=session.tls) as rpc:
        replace = partial(_replace, rpc, options.server)

        async def change(partition_id: int, changes: Mapping[str, object]) -> StoredProperties:
            return await change_properties_by(session.zookeeper, session.root, partition_id, changes, replace)

        await _configure_by(options, session, change)


async def _replace(rpc: RpcClient, server: Endpoint, partition_id: int, change: int, properties: str) -> Replaced:
    answer = await rpc.set_partition_properties(server, partition_id, change, properties)
    if answer.properties_status is SetPropertiesStatus.FAILED:
        raise PropertiesError(f"{server} answers: {answer.text}")
    return Replaced(answer.properties_status is SetPropertiesStatus.DONE, answer.change)


async def _configure_by(options: argparse.Namespace, session: Session, change: Change) -> None:
    changes = dict(options.changes)
    for partition_id in await _partitions(options, session):
        try:
            stored = await change(partition_id, changes)
        except PropertiesError as error:
            raise WaltzError(f"partition {partition_id} was not configured: {error}") from None
        print(as_json(partition_id, stored) if options.json else describe(partition_id, stored, everything=False))


async def _at(options: argparse.Namespace, session: Session) -> None:
    await check_partition_ids(session, *options.partition)
    async with client_of(session) as client:
        for partition_id in options.partition:
            found = await client.offset_at(partition_id, options.time)
            if options.json:
                print(json.dumps({"partition": partition_id, "transaction": found}))
            else:
                print(f"partition {partition_id}: transaction {found}")


def describe(partition_id: int, stored: StoredProperties, everything: bool) -> str:
    """The properties of a partition in one line: without ``everything``, only those that differ from their defaults."""
    fields = stored.properties.model_dump(by_alias=True, exclude_defaults=not everything)
    fields = {"format": stored.properties.format} | fields
    texts = [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in fields.items()]
    return f"partition {partition_id}: {' '.join(texts)}"


def as_json(partition_id: int, stored: StoredProperties) -> str:
    """All properties of a partition, and the number of their changes, as JSON."""
    properties: PartitionProperties = stored.properties
    return json.dumps({"partition": partition_id, CHANGE: stored.change, **properties.model_dump(by_alias=True)})
