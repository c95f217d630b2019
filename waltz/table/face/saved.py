"""Saved snapshots of the view of a table: a new view begins with one, and saves others."""

import asyncio
import logging
import secrets
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from uuid import UUID

from waltz.archive.errors import ArchiveError, StoreUnavailableError
from waltz.archive.store import check_address, open_store
from waltz.client.errors import ClientAheadError, OtherLogError
from waltz.client.plain.client import Client
from waltz.common.errors import ConfigError
from waltz.common.version import with_extra
from waltz.common.zk.archive_address import read_archive_url
from waltz.table.properties import read_properties
from waltz.table.snapshots.loading import progress_of, saved_pages
from waltz.table.snapshots.manifest import Manifest, misfit
from waltz.table.snapshots.place import SnapshotPlace
from waltz.table.snapshots.writing import Facts, save
from waltz.table.stores.interface import Snapshot, Store

logger = logging.getLogger(__name__)

OF_CLUSTER = "cluster"
"""In place of an address: beside the archive of which the cluster knows the address."""


def check_saved(url: str) -> None:
    """Check an address, and that the packages for snapshots are installed. Raises ``ConfigError``."""
    if url != OF_CLUSTER:
        check_address(url)
    try:
        import obstore  # noqa: F401
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise ConfigError(f"snapshots of tables need obstore and pyarrow: {with_extra('parquet')}") from None


async def place_of(client: Client, partition_id: int, url: str) -> SnapshotPlace | None:
    """Where the snapshots of a partition are; ``None`` if the cluster knows no address.

    Raises ``ConfigError``, ``ArchiveAddressError``, ``ZooKeeperError``.
    """
    await asyncio.to_thread(check_saved, url)  # the first import of pyarrow takes long
    address: str | None = url
    if url == OF_CLUSTER:
        nodes, root = client.directory
        address = await read_archive_url(nodes, root)
    if address is None:
        return None
    store = await asyncio.to_thread(open_store, address)
    return SnapshotPlace(store, UUID(str(await client.cluster_key())), partition_id)


async def place_to_save(client: Client, partition_id: int, url: str) -> SnapshotPlace:
    """Where snapshots of a partition are saved. Raises ``ConfigError`` without a place, and like :func:`place_of`."""
    place = await place_of(client, partition_id, url)
    if place is None:
        raise ConfigError("the cluster has no address of an archive; set it (waltz archive set-url), or name a store")
    return place


async def save_view(
    client: Client,
    partition_id: int,
    url: str,
    rows: Snapshot,
    max_body_bytes: int,
    now_ms: int,
    *,
    is_configured: bool,
) -> None:
    """Save the rows of a view. With ``is_configured`` the view has the properties of the cluster.

    Raises ``ConfigError``, ``ArchiveError``, ``StoreError``, and the errors of ZooKeeper.
    """
    place = await place_to_save(client, partition_id, url)
    nodes, root = client.directory
    change = (await read_properties(nodes, root, partition_id)).change if is_configured else None
    await save(place, rows, Facts(change, max_body_bytes, now_ms), secrets.token_hex(8))


async def begin_with_saved(
    client: Client, partition_id: int, url: str, max_body_bytes: int, store: Store, emptied: Callable[[], Store]
) -> None:
    """Have an empty store begin with the newest saved snapshot that fits, if there is one.

    A snapshot that is damaged, or is of another log, is passed over with a warning, and so are all of them when the
    object store does not answer: everything is in the log as well. ``emptied`` opens the store anew, without what was
    loaded. Raises ``ConfigError``, and the errors of the store, of ZooKeeper and of a feed.
    """
    place = await place_of(client, partition_id, url)
    if place is None:
        logger.warning("partition %d: the cluster has no address of snapshots; the whole log is read", partition_id)
        return

    def refused(applied: int, reason: object) -> None:
        logger.warning("partition %d: the snapshot of transaction %d is not used: %s", partition_id, applied, reason)

    bound: int | None = None
    try:
        while (manifest := await place.newest(bound, partial(misfit, max_body_bytes), refused)) is not None:
            bound = manifest.applied - 1
            try:
                await _check_log(client, manifest)
                await _load(place, manifest, store)
            except StoreUnavailableError:
                raise
            except (ArchiveError, ClientAheadError, OtherLogError) as error:
                refused(manifest.applied, error)
                store = emptied()
            else:
                logger.info(
                    "partition %d: the view begins with the snapshot of transaction %d", partition_id, manifest.applied
                )
                return
    except StoreUnavailableError as error:
        logger.warning("partition %d: no snapshot is used, and the whole log is read: %s", partition_id, error)
        emptied()


async def _check_log(client: Client, manifest: Manifest) -> None:
    """Raise ``ClientAheadError`` or ``OtherLogError`` unless the log has the last transaction of the snapshot."""
    async with client.library_feed(manifest.partition_id, after=manifest.applied) as feed:
        await feed.expect(manifest.request_id).begin()


async def _load(place: SnapshotPlace, manifest: Manifest, store: Store) -> None:
    store.begin_load()
    async with aclosing(saved_pages(place, manifest)) as pages:
        async for page in pages:
            store.load(page)
            await asyncio.sleep(0)
    store.end_load(progress_of(manifest))
