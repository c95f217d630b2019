"""``waltz archive``: lists, checks, exports and restores an archive; sets the address of a cluster's archive."""

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import UUID

from waltz.archive.chain import Place, read_ranges
from waltz.archive.errors import ArchiveDamagedError
from waltz.archive.manifest import ArchivedRange
from waltz.archive.process.comparing import compare_replicas
from waltz.archive.process.restoring import restore_partition
from waltz.archive.store import ObjectStore, check_address, open_store
from waltz.archive.verification import Verified, archived_clusters, archived_partitions, only_cluster, verify_partition
from waltz.cli.output import counted, json_option, show, table, tell, terminal_width
from waltz.cli.progress import progress
from waltz.cli.session import Nouns, Session, cluster_command, moment, noun, number, partition_ranges
from waltz.common.errors import WaltzError
from waltz.common.iso_time import from_milliseconds, to_milliseconds
from waltz.common.metrics.registry import Json
from waltz.common.partition_ids import check_partition
from waltz.common.version import with_extra
from waltz.common.zk.archive_address import read_archive_url, write_archive_url
from waltz.common.zk.store_admin import read_store_params
from waltz.spark.parquet_pieces import committed_between

Command = Callable[[argparse.Namespace, ObjectStore], Awaitable[None]]


def register(nouns: Nouns) -> None:
    """Add the noun and its verbs."""
    verbs = noun(nouns, "archive")
    _archive_verb(verbs, "list", "print the archived partitions and transactions", _list)
    parser = _archive_verb(verbs, "verify", "read and check every object; needs no cluster", _verify)
    _add_choice(parser)
    help_text = "write archived transactions as Parquet files into a directory; continues where it stopped before"
    parser = verbs.add_parser("parquet", help=help_text, description=help_text)
    _add_url(parser)
    parser.add_argument("directory", type=Path, metavar="DIRECTORY", help="gets partition=P/FIRST-LAST.parquet")
    _add_choice(parser)
    parser.add_argument("--from", type=number(0), default=0, dest="start", metavar="ID", help="first transaction")
    parser.add_argument("--before", type=number(0), dest="end", metavar="ID", help="only transactions before this one")
    parser.add_argument(
        "--since",
        type=moment,
        metavar="TIME",
        help="only objects with later transactions, e.g. 2026-03-01T00:00:00Z",
    )
    parser.add_argument("--until", type=moment, metavar="TIME", help="only objects without later transactions")
    parser.add_argument(
        "--row-group-bytes",
        type=number(1),
        default=64 << 20,
        metavar="N",
        help="size of the payloads in a row group; a row group is held in memory (default: 64 MiB)",
    )
    json_option(parser)
    parser.set_defaults(run=_parquet)

    help_text = "compare every replica of the cluster with the archive"
    parser = cluster_command(verbs, "compare", help_text, _compare, prints=True)
    _add_url(parser)
    _add_partitions(parser)

    help_text = "set the address of the cluster's archive, for readers that ask the cluster"
    parser = cluster_command(verbs, "set-url", help_text, _set_url)
    _add_url(parser)
    parser.add_argument(
        "--unasked", action="store_true", help="do not contact the store, for a machine without access to it"
    )
    cluster_command(verbs, "show-url", "print the address of the cluster's archive", _show_url, prints=True)
    cluster_command(verbs, "remove-url", "remove the address of the cluster's archive; the archive stays", _remove_url)

    help_text = "fill partitions of a fresh cluster from the archive, before any server of the cluster is started"
    parser = cluster_command(verbs, "restore", help_text, _restore)
    _add_url(parser)
    _add_choice(parser)
    json_option(parser)


def _archive_verb(verbs: Nouns, name: str, help_text: str, command: Command) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=help_text, description=help_text)
    _add_url(parser)
    json_option(parser)

    def run(options: argparse.Namespace) -> int:
        async def work() -> None:
            await command(options, open_store(options.url))

        asyncio.run(work())
        return 0

    parser.set_defaults(run=run)
    return parser


def _add_url(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", metavar="URL", help="the archive, e.g. file:///var/archive or s3://bucket/prefix")


def _add_partitions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-p", "--partition", type=partition_ranges, help="e.g. 0-6,7,10-16 (default: all)")


def _add_choice(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-k", "--cluster-key", type=_key, metavar="KEY", help="key of the cluster, if the archive has several"
    )
    _add_partitions(parser)


def _key(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"not the key of a cluster: {text!r}") from None


async def _list(options: argparse.Namespace, store: ObjectStore) -> None:
    rows: list[tuple[object, ...]] = []
    document: list[Json] = []
    for key in await archived_clusters(store):
        for partition_id in await archived_partitions(store, key):
            ranges = await read_ranges(Place(store, key, partition_id))
            last_ms = ranges[-1].last_time_ms if ranges else None
            by = None if last_ms is None else from_milliseconds(last_ms).isoformat(timespec="seconds")
            end = ranges[-1].end if ranges else 0
            size = sum(each.size_bytes for each in ranges)
            rows.append((key, partition_id, end, len(ranges), size, by or "-"))
            document.append(
                {
                    "cluster": str(key),
                    "partition": partition_id,
                    "transactions": end,
                    "objects": len(ranges),
                    "bytes": size,
                    "committed_by": by,
                }
            )
    names = ("cluster", "partition", "transactions", "objects", "bytes", "committed by")
    show(options, document, table(names, rows, terminal_width()) if rows else ["the archive is empty"])


async def _chosen(options: argparse.Namespace, store: ObjectStore, key: UUID) -> list[Place]:
    there = await archived_partitions(store, key)
    wanted = there if options.partition is None else options.partition
    missing = sorted(set(wanted) - set(there))
    if missing:
        raise WaltzError(f"the archive {store.url} has no transactions of partition {missing[0]} of cluster {key}")
    return [Place(store, key, partition_id) for partition_id in wanted]


async def _verify(options: argparse.Namespace, store: ObjectStore) -> None:
    key = await only_cluster(store, options.cluster_key)
    lines: list[str] = []
    document: list[Json] = []
    failures = 0
    for place in await _chosen(options, store, key):
        try:
            ranges, problems, uncounted = await verify_partition(place)
        except ArchiveDamagedError as error:
            ranges, problems, uncounted = Verified([], [str(error)], [])
        failures += len(problems)
        state = "whole" if not problems else f"{counted(len(problems), 'problem')}"
        lines.append(
            f"partition {place.partition_id}: {state}, {counted(len(ranges), 'object')}, "
            f"{counted(ranges[-1].end if ranges else 0, 'transaction')}"
        )
        lines += [f"  {problem}" for problem in problems]
        lines += [f"  {name} does not count: an archiver was stopped before its entry" for name in uncounted]
        document.append(
            {
                "partition": place.partition_id,
                "objects": len(ranges),
                "problems": problems,
                "uncounted": uncounted,
            }
        )
    show(options, document, lines)
    if failures:
        raise WaltzError(f"the archive has {counted(failures, 'problem')}: docs/archive.md says what to do about each")


async def _restore(options: argparse.Namespace, session: Session) -> None:
    store = open_store(options.url)
    params = await read_store_params(session.zookeeper, session.root)
    for partition_id in options.partition or ():
        check_partition(partition_id, params.partition_count)
    key = await only_cluster(store, options.cluster_key)
    document: list[Json] = []
    for place in await _chosen(options, store, key):
        check_partition(place.partition_id, params.partition_count)
        ids = await restore_partition(session.cluster, place, lambda line: tell(options, line))
        document.append({"partition": place.partition_id, "transactions": ids})
    show(options, document, ["all replicas have all archived transactions; now start the servers"])


async def _compare(options: argparse.Namespace, session: Session) -> None:
    store = open_store(options.url)
    params = await read_store_params(session.zookeeper, session.root)
    for partition_id in options.partition or ():
        check_partition(partition_id, params.partition_count)
    lines: list[str] = []
    document: list[Json] = []
    differing = 0
    for place in await _chosen(options, store, await only_cluster(store, params.key)):
        async for storage, objects, problem in compare_replicas(session.cluster, place):
            differing += problem is not None
            state = f"equal in {counted(objects, 'object')}" if problem is None else problem
            lines.append(f"partition {place.partition_id}, {storage}: {state}")
            document.append(
                {"partition": place.partition_id, "storage": storage, "objects": objects, "problem": problem}
            )
    show(options, document, lines)
    if differing:
        raise WaltzError(f"{counted(differing, 'replica')} could not be read, or differ from the archive")


async def _set_url(options: argparse.Namespace, session: Session) -> None:
    params = await read_store_params(session.zookeeper, session.root)
    check_address(options.url)
    if not options.unasked:
        store = open_store(options.url)
        if not await archived_partitions(store, params.key):
            print(f"{store.url} has no transactions of this cluster yet")
    await write_archive_url(session.zookeeper, session.root, options.url)


async def _show_url(options: argparse.Namespace, session: Session) -> None:
    await read_store_params(session.zookeeper, session.root)
    url = await read_archive_url(session.zookeeper, session.root)
    show(options, {"url": url}, [url or "no archive is set"])


async def _remove_url(_: argparse.Namespace, session: Session) -> None:
    await read_store_params(session.zookeeper, session.root)
    await write_archive_url(session.zookeeper, session.root, None)


def _parquet(options: argparse.Namespace) -> int:
    """Runs outside an event loop: reading ahead runs loops of its own."""
    store = open_store(options.url)
    try:
        from waltz.spark.parquet_export import export_directory, export_partition
    except ImportError:
        raise WaltzError(f"Parquet files need pyarrow: {with_extra('parquet')}") from None

    async def plan() -> list[tuple[Place, list[ArchivedRange]]]:
        key = await only_cluster(store, options.cluster_key)
        return [(place, await read_ranges(place)) for place in await _chosen(options, store, key)]

    chosen = [(place, _of_time(options, place, ranges)) for place, ranges in asyncio.run(plan())]
    document: list[Json] = []
    if not chosen:
        raise WaltzError(f"the archive {store.url} is empty")
    with (
        export_directory(options.directory, chosen[0][0].cluster_key),
        progress("exporting", None, " transactions") as written,
    ):
        for place, ranges in chosen:
            end = ranges[-1].end if ranges else 0
            done = export_partition(
                place,
                ranges,
                options.directory,
                options.start,
                end if options.end is None else min(options.end, end),
                url=options.url,
                row_group_bytes=options.row_group_bytes,
                written=written,
            )
            tell(
                options,
                f"partition {place.partition_id}: {counted(done.transactions, 'transaction')} in "
                f"{counted(done.files, 'file')}, {counted(done.present_files, 'file')} before",
            )
            document.append({"partition": place.partition_id, **done._asdict()})
    show(options, document, [])
    return 0


def _of_time(options: argparse.Namespace, place: Place, ranges: list[ArchivedRange]) -> list[ArchivedRange]:
    if options.since is None and options.until is None:
        return ranges
    bounds = [None if each is None else to_milliseconds(each) for each in (options.since, options.until)]
    try:
        return committed_between(ranges, *bounds)
    except LookupError as error:
        raise WaltzError(
            f"partition {place.partition_id}: the archive has no time of commit of {error}; give ids (--from, "
            "--before) instead of times"
        ) from None
