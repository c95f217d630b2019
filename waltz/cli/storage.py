"""``waltz storage``: administration of storage nodes through their ports."""

import argparse
import asyncio
import functools
import ssl
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from waltz.cli import disk_balancing, labels, loss
from waltz.cli.output import confirm, counted, logger_option, show, tell, yes_option
from waltz.cli.replica_moving import move_replicas
from waltz.cli.session import Nouns, Session, cluster_command, endpoint, failed, noun, number, partition_ranges, port
from waltz.common.cluster.marks import read_committed_marks
from waltz.common.config.schemas import TlsConfig, load
from waltz.common.errors import WaltzError
from waltz.common.ids import Endpoint
from waltz.common.metrics.registry import Json
from waltz.common.net.tls import client_context
from waltz.common.partition_ids import check_partition, named_partitions
from waltz.common.zk.store_admin import read_connections, read_store_params
from waltz.operations.repair import Repair
from waltz.operations.storages import (
    PartitionCopy,
    admin_endpoint,
    connection,
    listed_replicas,
    max_transaction_id,
    sync_partitions,
    validate,
)
from waltz.storage.remote.admin_client import StorageAdminClient
from waltz.storage.remote.client import StorageClient

MARK_TIMEOUT_S = 10.0
"""Time limit for the answer of a partition's owner with its high-water mark, before a repair."""


def register(nouns: Nouns) -> None:
    """Add the noun and its verbs."""
    verbs = noun(nouns, "storage")
    parser = cluster_command(verbs, "list", "print the partitions of one storage node or of all", _list, prints=True)
    parser.add_argument("-s", "--storage", type=endpoint, metavar="HOST:ADMIN_PORT", help="default: all")
    logger_option(parser)
    parser = cluster_command(verbs, "add-partition", "assign partitions to a storage node", _add)
    _node_and_partitions(parser)
    parser = cluster_command(verbs, "remove-partition", "remove partitions from a storage node", _remove)
    _node_and_partitions(parser)
    parser.add_argument("-d", "--delete-storage-files", action="store_true", help="delete their files too")
    parser.add_argument(
        "--unless-listed",
        action="store_true",
        help="refuse to delete the files of a replica that the cluster still lists",
    )
    yes_option(parser)
    parser = cluster_command(verbs, "availability", "switch partitions on or off for servers", _availability)
    _node_and_partitions(parser)
    parser.add_argument("-o", "--online", choices=("true", "false"), required=True)
    cluster_command(verbs, "sync-partitions", "give every node the partitions of the cluster's assignment", _sync)
    cluster_command(verbs, "validate", "open both ports of every storage node", _validate, prints=True)
    parser = cluster_command(
        verbs, "max-transaction-id", "print the highest transaction id on a node", _max_id, prints=True
    )
    _node_and_partition(parser)
    parser.add_argument("-sp", "--storage-port", type=port, required=True, metavar="PORT")
    parser.add_argument("-o", "--offline", action="store_true", help="the partition is switched off")
    _register_recovery(verbs)
    _register_move(verbs)
    disk_balancing.register(verbs)
    loss.register(verbs)
    labels.register(verbs)
    help_text = "restore damaged records of a node from the other replicas of the partition"
    parser = cluster_command(verbs, "repair", help_text, _repair, prints=True)
    _node_and_partition(parser)


def _register_recovery(verbs: Nouns) -> None:
    help_text = "copy a partition from one storage node to another one, where it is switched off"
    parser = cluster_command(verbs, "recover-partition", help_text, _recover, prints=True)
    parser.add_argument("-s", "--source-storage", type=endpoint, required=True, metavar="HOST:ADMIN_PORT")
    parser.add_argument("-d", "--destination-storage", type=endpoint, required=True, metavar="HOST:ADMIN_PORT")
    parser.add_argument("-dp", "--destination-storage-port", type=port, required=True, metavar="PORT")
    parser.add_argument("-p", "--partition", type=number(minimum=0), required=True)
    parser.add_argument("-b", "--batch-size", type=number(), default=20, help="records copied at once (default: 20)")
    parser.add_argument(
        "--truncate", action="store_true", help="first remove the destination's records above its low-water mark"
    )
    yes_option(parser)
    for name, letter in (("source", "s"), ("destination", "d")):
        parser.add_argument(
            f"-{letter}ssl",
            f"--{name}-ssl-config-path",
            type=Path,
            metavar="FILE",
            help=f"YAML file with server.ssl.* keys for the {name} (default: nothing is verified)",
        )


def _register_move(verbs: Nouns) -> None:
    help_text = "move replicas of partitions from one storage node to another, while servers use them"
    parser = cluster_command(verbs, "move", help_text, move_replicas, prints=True)
    for name, letter in (("source", "s"), ("destination", "d")):
        parser.add_argument(
            f"-{letter}",
            f"--{name}-storage",
            type=endpoint,
            required=True,
            metavar="HOST:PORT",
            help="data port, or admin port",
        )
    parser.add_argument(
        "-p", "--partition", type=partition_ranges, help="e.g. 0-6,7,10-16 (default: all that the source has)"
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--plan", action="store_true", help="only print the plan")
    what.add_argument(
        "--apply",
        action="store_true",
        help="carry out the plan, one partition after the other, or continue an interrupted move",
    )
    what.add_argument("--cancel", action="store_true", help="undo an interrupted move")
    parser.add_argument(
        "--rate", type=number(minimum=1), default=20, metavar="MB/S", help="limit of the copying (default: 20)"
    )
    parser.add_argument(
        "-t",
        "--timeout",
        type=number(minimum=1),
        default=60,
        metavar="SECONDS",
        help="time limit of each change (default: 60)",
    )
    yes_option(parser)


def _node_and_partitions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-s", "--storage", type=endpoint, required=True, metavar="HOST:ADMIN_PORT")
    parser.add_argument("-p", "--partition", type=partition_ranges, required=True, help="e.g. 0-6,7,10-16")


def _node_and_partition(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-s", "--storage", type=endpoint, required=True, metavar="HOST:ADMIN_PORT")
    parser.add_argument("-p", "--partition", type=number(minimum=0), required=True)


def _admin(session: Session, node: Endpoint) -> AbstractAsyncContextManager[StorageAdminClient]:
    return connection(StorageAdminClient, session.cluster, node)


async def _add(options: argparse.Namespace, session: Session) -> None:
    try:
        async with _admin(session, options.storage) as client:
            await client.set_assigned(options.partition, True)
    except WaltzError as error:
        raise failed(f"Failed to add partition {options.partition} to {options.storage}", error) from error


async def _remove(options: argparse.Namespace, session: Session) -> None:
    if options.delete_storage_files:
        await _check_listed(options, session)
        confirm(options, f"delete the files of partition {options.partition} on {options.storage}?")
    try:
        async with _admin(session, options.storage) as client:
            await client.set_assigned(options.partition, False, delete_files=options.delete_storage_files)
    except WaltzError as error:
        raise failed(f"Failed to remove partition {options.partition} from {options.storage}", error) from error


async def _check_listed(options: argparse.Namespace, session: Session) -> None:
    """Warn, or refuse if the operator wants that, where the cluster still counts on the files to be deleted."""
    listed = await listed_replicas(session.cluster, options.storage, options.partition)
    if listed == {}:
        return
    if listed is None:
        text = f"the cluster knows no storage with the admin port {options.storage}, and perhaps lists its replicas"
    else:
        text = f"the cluster lists {options.storage} among the replicas of {named_partitions(listed)}"
        last = [partition_id for partition_id, others in listed.items() if not others]
        if last:
            text += f", and no other one of {named_partitions(last)}: without these files its transactions are lost"
    if options.unless_listed:
        raise WaltzError(f"{text}: nothing was deleted. To take them away first: waltz zookeeper unassign-partition")
    print(f"Warning: {text}", file=sys.stderr)


async def _availability(options: argparse.Namespace, session: Session) -> None:
    try:
        async with _admin(session, options.storage) as client:
            await client.set_available(options.partition, options.online == "true")
    except WaltzError as error:
        what = f"Failed to set availability of partition {options.partition} on {options.storage}"
        raise failed(what, error) from error


async def _sync(_options: argparse.Namespace, session: Session) -> None:
    try:
        await sync_partitions(session.cluster)
    except WaltzError as error:
        raise failed("Partition assignment cannot be fully synced", error) from error


async def _validate(options: argparse.Namespace, session: Session) -> None:
    await validate(session.cluster)
    show(options, {"valid": True}, ["all storage nodes answer on both ports"])


async def _max_id(options: argparse.Namespace, session: Session) -> None:
    try:
        found = await max_transaction_id(
            session.cluster,
            options.storage,
            options.storage_port,
            options.partition,
            offline=options.offline,
        )
    except WaltzError as error:
        raise failed(f"Failed to read max transaction ID for storage {options.storage}", error) from error
    show(options, {"max_transaction_id": found}, [f"Max Transaction ID: {found}"])


async def _recover(options: argparse.Namespace, session: Session) -> None:
    cluster, partition_id = session.cluster, options.partition
    destination = options.destination_storage
    data_port = Endpoint(destination.host, options.destination_storage_port)
    if options.truncate:
        confirm(
            options, f"remove records of partition {partition_id} on {destination} above its low-water mark, if any?"
        )
    try:
        from_cluster = cluster._replace(tls=_tls_of(options.source_ssl_config_path, session))
        to_cluster = cluster._replace(tls=_tls_of(options.destination_ssl_config_path, session))
        async with (
            connection(StorageAdminClient, from_cluster, options.source_storage) as source,
            connection(StorageAdminClient, to_cluster, destination) as destination_admin,
            connection(StorageClient, to_cluster, data_port) as data,
        ):
            copy = PartitionCopy(
                cluster, source, destination_admin, data, partition_id, functools.partial(tell, options)
            )
            reached = await copy.run(options.batch_size, truncate=options.truncate)
    except WaltzError as error:
        raise failed(f"Partition {partition_id} failed to recover.", error) from error
    line = f"partition {partition_id} on {destination} reaches up to transaction {reached}"
    show(options, {"max_transaction_id": reached}, [line])


def _tls_of(path: Path | None, session: Session) -> ssl.SSLContext | None:
    """The TLS context from a file with ``server.ssl.*`` keys; without a file, from the command's configuration."""
    return session.tls if path is None else client_context(load(path, TlsConfig, prefix="server.ssl."))


async def _repair(options: argparse.Namespace, session: Session) -> None:
    node, partition_id = options.storage, options.partition
    try:
        count = (await read_store_params(session.zookeeper, session.root)).partition_count
        check_partition(partition_id, count)
        mark = await _committed_mark(options, session, partition_id)  # first the mark, then the metadata (rule S6)
        repair = Repair(session.cluster, node, partition_id, functools.partial(tell, options))
        done = await repair.run(mark)
    except WaltzError as error:
        raise failed(f"Partition {partition_id} on {node} was not repaired", error) from error
    if done.missing:
        lines = [f"partition {partition_id} on {node}: {counted(done.restored, 'transaction')} restored"]
    else:
        lines = [f"partition {partition_id} on {node}: no transaction is known to be damaged"]
    lines += [
        f"transactions {first} to {last} were never committed: the log was cut before them"
        for first, last in done.uncommitted
    ]
    uncommitted: Json = [list(each) for each in done.uncommitted]
    show(options, {"restored": done.restored, "uncommitted": uncommitted}, lines)


async def _committed_mark(options: argparse.Namespace, session: Session, partition_id: int) -> int | None:
    """The mark of the server that owns the partition; ``None`` when there is none to be asked."""
    deadline_s = asyncio.get_running_loop().time() + MARK_TIMEOUT_S
    try:
        marks = await read_committed_marks(session.cluster, [partition_id], deadline_s=deadline_s)
    except WaltzError as error:
        tell(options, f"continuing with the mark at the start of the present session: {error}")
        return None
    return marks[partition_id]


async def _list(options: argparse.Namespace, session: Session) -> None:
    await read_store_params(session.zookeeper, session.root)
    if options.storage is not None:
        nodes = [options.storage]
    else:
        known = (await read_connections(session.zookeeper, session.root)).admin_ports
        nodes = [await admin_endpoint(session.cluster, storage) for storage in sorted(known)]
    document: dict[str, Json] = {}
    lines: list[str] = []
    failures = 0
    for node in nodes:
        try:
            document[str(node)] = await _list_node(session, node, lines)
        except WaltzError as error:
            failures += 1
            document[str(node)] = None
            lines.append(f"Cannot fetch partition ownership for {node}: {error}")
    show(options, document, lines)
    if failures:
        raise WaltzError(f"{failures} of {len(nodes)} storage nodes did not answer")


async def _list_node(session: Session, node: Endpoint, lines: list[str]) -> Json:
    document: dict[str, Json] = {}
    async with _admin(session, node) as client:
        for partition_id, online in sorted((await client.assigned_partition_status()).items()):
            info = await client.last_session_info(partition_id)
            lines += [
                f"Partition Info for id: {partition_id} at {node}",
                f"\tsessionId: {info.session_id}",
                f"\tlowWaterMark: {info.low_water_mark}",
                f"\tlocalLowWaterMark: {info.local_low_water_mark}",
                "\tisAssigned: true",
                f"\tisAvailable: {'true' if online else 'false'}",
            ]
            document[str(partition_id)] = {
                "session": info.session_id,
                "low_water_mark": info.low_water_mark,
                "local_low_water_mark": info.local_low_water_mark,
                "online": online,
            }
    return document
