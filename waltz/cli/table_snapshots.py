"""``waltz table snapshot`` and ``snapshots``: the rows of tables in an object store."""

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from uuid import UUID

from waltz.archive.errors import ArchiveError, StoreUnavailableError
from waltz.archive.store import ObstoreStore, open_store
from waltz.cli.output import counted, show, table, terminal_width
from waltz.cli.session import number, partition_ranges
from waltz.common.errors import WaltzError
from waltz.common.iso_time import from_milliseconds
from waltz.common.metrics.registry import Json
from waltz.table.snapshots.loading import verify
from waltz.table.snapshots.manifest import Manifest
from waltz.table.snapshots.place import (
    SnapshotPlace,
    clusters_with_snapshots,
    partitions_with_snapshots,
    remove_leftovers,
    remove_old,
)

if TYPE_CHECKING:
    from waltz.asynchronous import Client
    from waltz.table.face.table import Table


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``waltz table snapshot``."""
    parser.add_argument("-p", "--partition", type=partition_ranges, help="e.g. 0-6,7,10-16 (default: all tables)")
    parser.add_argument(
        "--to",
        required=True,
        metavar="URL",
        help="the object store, e.g. file:///var/snapshots or s3://bucket/prefix; cluster: that of its archive",
    )
    parser.add_argument(
        "--keep", type=number(minimum=1), metavar="N", help="then remove all snapshots of the table but the newest N"
    )


async def save_snapshot(
    options: argparse.Namespace, client: "Client", partition_id: int, opened: "Table"
) -> tuple[str, dict[str, Json]]:
    """Save one table, whose view has caught up; returns what was done, as a line and as JSON."""
    from waltz.table.face.saved import place_to_save  # imports the engine of clients

    place = await place_to_save(client, partition_id, options.to)
    before = set(await place.ids())
    applied = await opened.save_snapshot(options.to)
    if applied < 0:
        return "the log is empty: there is nothing to save", {"transaction": None}
    manifest = await place.read(applied)
    state = "there was one" if applied in before else "saved"
    text = (
        f"transaction {applied}: {state}, {counted(manifest.rows, 'row')} in {counted(len(manifest.files), 'file')}, "
        f"{manifest.size_bytes:,} bytes"
    )
    document: dict[str, Json] = {**_document(manifest), "saved": applied not in before}
    if options.keep is not None:
        removed = await remove_old(place, options.keep)
        text += f"; removed: {counted(len(removed.snapshots), 'older snapshot')}"
        document["removed"] = list[Json](removed.snapshots)
    return text, document


def add_upkeep_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``waltz table snapshots``."""
    parser.add_argument("url", metavar="URL", help="the object store, e.g. file:///var/snapshots or s3://bucket/prefix")
    parser.add_argument("-k", "--cluster-key", type=_key, metavar="KEY", help="of several clusters in the store")
    parser.add_argument("-p", "--partition", type=partition_ranges, help="e.g. 0-6,7,10-16 (default: all)")
    verb = parser.add_mutually_exclusive_group(required=True)
    verb.add_argument("--list", action="store_true", help="print which snapshots there are")
    verb.add_argument("--verify", action="store_true", help="read every file, and check it")
    verb.add_argument(
        "--keep", type=number(minimum=1), metavar="N", help="remove all snapshots of each table but the newest N"
    )
    verb.add_argument(
        "--remove-leftovers",
        action="store_true",
        help="remove files of attempts that were stopped; only while no snapshot is being saved",
    )


def run_upkeep(options: argparse.Namespace) -> int:
    """``waltz table snapshots``, which needs no cluster."""
    from waltz.table.face.saved import check_saved  # imports the engine of clients

    check_saved(options.url)
    asyncio.run(_upkeep(options, open_store(options.url)))
    return 0


async def _upkeep(options: argparse.Namespace, store: ObstoreStore) -> None:
    places = await _chosen(options, store)
    if options.list:
        await _list(options, places)
    elif options.verify:
        await _verify(options, places)
    elif options.keep is not None:

        async def remove(place: SnapshotPlace) -> tuple[str, dict[str, Json]]:
            ids, files = await remove_old(place, options.keep)
            text = f"removed: {counted(len(ids), 'snapshot')}, {counted(files, 'file')}"
            return text, {"removed": list[Json](ids), "files": files}

        await _each(options, places, remove)
    else:

        async def remove_rest(place: SnapshotPlace) -> tuple[str, dict[str, Json]]:
            names = await remove_leftovers(place)
            return f"removed: {counted(len(names), 'file')}", {"removed": list[Json](names)}

        await _each(options, places, remove_rest)


async def _chosen(options: argparse.Namespace, store: ObstoreStore) -> list[SnapshotPlace]:
    keys = await clusters_with_snapshots(store)
    if options.cluster_key is not None:
        keys = [key for key in keys if key == options.cluster_key]
    elif len(keys) > 1 and not options.list:
        raise WaltzError(f"{store.url} has snapshots of several clusters; name one: {', '.join(map(str, keys))}")
    found = [
        SnapshotPlace(store, key, partition_id)
        for key in keys
        for partition_id in await partitions_with_snapshots(store, key)
        if options.partition is None or partition_id in options.partition
    ]
    missing = sorted(set(options.partition or ()) - {place.partition_id for place in found})
    if missing:
        raise WaltzError(f"there is no snapshot of partition {missing[0]} in {store.url}")
    return found


async def _list(options: argparse.Namespace, places: list[SnapshotPlace]) -> None:
    rows: list[tuple[object, ...]] = []
    document: list[Json] = []
    problems: list[str] = []
    for place in places:
        for applied in await place.ids():
            try:
                manifest = await place.read(applied)
            except StoreUnavailableError:
                raise
            except ArchiveError as error:
                problems.append(str(error))
                continue
            at = from_milliseconds(manifest.saved_at_ms).isoformat(timespec="seconds")
            rows.append((place.cluster_key, place.partition_id, applied, manifest.rows, manifest.size_bytes, at))
            document.append({"cluster": str(place.cluster_key), **_document(manifest)})
    names = ("cluster", "partition", "transaction", "rows", "bytes", "saved at")
    lines = table(names, rows, terminal_width()) if rows else ["there are no snapshots"]
    show(options, document, [*lines, *problems])


async def _verify(options: argparse.Namespace, places: list[SnapshotPlace]) -> None:
    document: list[Json] = []
    lines: list[str] = []
    failures = 0
    for place in places:
        for applied in await place.ids():
            problems = await verify(place, applied)
            failures += bool(problems)
            state = "whole" if not problems else "damaged"
            lines.append(f"partition {place.partition_id}, transaction {applied}: {state}")
            lines += [f"  {problem}" for problem in problems]
            document.append({"partition": place.partition_id, "transaction": applied, "problems": list[Json](problems)})
    show(options, document, lines or ["there are no snapshots"])
    if failures:
        raise WaltzError(f"{counted(failures, 'snapshot')} cannot be used; views and Spark pass over damaged manifests")


async def _each(
    options: argparse.Namespace,
    places: list[SnapshotPlace],
    work: Callable[[SnapshotPlace], Awaitable[tuple[str, dict[str, Json]]]],
) -> None:
    document: list[Json] = []
    lines: list[str] = []
    for place in places:
        text, fields = await work(place)
        lines.append(f"partition {place.partition_id}: {text}")
        document.append({"partition": place.partition_id, **fields})
    show(options, document, lines or ["there are no snapshots"])


def _document(manifest: Manifest) -> dict[str, Json]:
    return {
        "partition": manifest.partition_id,
        "transaction": manifest.applied,
        "rows": manifest.rows,
        "files": len(manifest.files),
        "bytes": manifest.size_bytes,
        "saved_at_ms": manifest.saved_at_ms,
    }


def _key(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"not the key of a cluster: {text!r}") from None
