"""Where the snapshots of a partition are: ``snapshots/CLUSTER/PARTITION``, beside the archive of a log or elsewhere.

A listing of the store may be old. Then the newest snapshots are not seen yet, and an older one is used: no answer
becomes wrong by that.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol
from uuid import UUID

from waltz.archive.errors import ArchiveError, NewerFormError, StoreUnavailableError
from waltz.archive.store import ObjectStore
from waltz.common.checksum import crc32
from waltz.table.snapshots.manifest import Manifest, decode_manifest, encode_manifest, manifest_name

TOP = "snapshots"
"""The folder of all snapshots in a store: no key of a cluster, so that no archive is looked for in it."""

_MANIFESTS = "manifest"


class RemovingStore(ObjectStore, Protocol):
    """A store from which objects may be removed, which an archive never does."""

    async def remove(self, path: str) -> None:
        """Remove an object, whether it is there or not. Raises ``StoreUnavailableError``."""


class SnapshotPlace(NamedTuple):
    """The snapshots of a partition of one cluster."""

    store: RemovingStore
    cluster_key: UUID
    partition_id: int

    @property
    def folder(self) -> str:
        """Where they are."""
        return f"{TOP}/{self.cluster_key}/{self.partition_id}"

    def manifest_path(self, applied: int) -> str:
        """The path of a manifest."""
        return f"{self.folder}/{_MANIFESTS}/{manifest_name(applied)}"

    def path(self, name: str) -> str:
        """The path of a file."""
        return f"{self.folder}/{name}"

    async def ids(self) -> list[int]:
        """The last transactions of the snapshots, in ascending order. Raises ``StoreUnavailableError``."""
        return [int(name) async for name in self.store.names(f"{self.folder}/{_MANIFESTS}") if name.isdecimal()]

    async def read(self, applied: int) -> Manifest:
        """The snapshot of a transaction. Raises ``ArchiveError``."""
        path = self.manifest_path(applied)
        data = await self.store.get(path)
        return decode_manifest(data, self.cluster_key, self.partition_id, applied, f"{self.store.url}/{path}")

    async def create(self, manifest: Manifest) -> bool:
        """Have a snapshot count, all files of which are there; whether there was none of this transaction.

        Raises ``StoreUnavailableError``: the manifest may have been created. The call may be repeated; it then returns
        ``True`` for the same snapshot.
        """
        if await self.store.create(self.manifest_path(manifest.applied), encode_manifest(manifest)):
            return True
        try:
            return await self.read(manifest.applied) == manifest
        except ArchiveError:
            return False

    async def newest(
        self, bound: int | None, fits: Callable[[Manifest], str | None], refused: Callable[[int, object], object]
    ) -> Manifest | None:
        """The newest snapshot that fits, of a transaction up to ``bound``; ``None`` if there is none.

        ``fits`` returns why one does not. ``refused`` is told the transactions of newer snapshots that are damaged or
        do not fit, and the reason. Raises ``StoreUnavailableError``.
        """
        for applied in reversed(await self.ids()):
            if bound is not None and applied > bound:
                continue
            try:
                manifest = await self.read(applied)
            except StoreUnavailableError:
                raise
            except ArchiveError as error:
                refused(applied, error)
                continue
            reason = fits(manifest)
            if reason is None:
                return manifest
            refused(applied, reason)
        return None


async def clusters_with_snapshots(store: ObjectStore) -> list[UUID]:
    """The keys of the clusters. Raises ``StoreUnavailableError``."""
    found = []
    for name in await store.folders(TOP):
        try:
            found.append(UUID(name))
        except ValueError:
            continue
    return found


async def partitions_with_snapshots(store: ObjectStore, cluster_key: UUID) -> list[int]:
    """The partitions of a cluster. Raises ``StoreUnavailableError``."""
    return sorted(int(name) for name in await store.folders(f"{TOP}/{cluster_key}") if name.isdecimal())


class Removed(NamedTuple):
    """What was removed."""

    snapshots: list[int]
    """Their last transactions."""
    files: int


async def remove_old(place: SnapshotPlace, keep: int) -> Removed:
    """Remove all snapshots but the newest ``keep``; one that is damaged does not count as kept, and is removed.

    A manifest goes before its files. Stopped anywhere, the call may be repeated: files without a manifest are left for
    :func:`remove_leftovers`. Raises ``StoreUnavailableError``, ``NewerFormError`` rather than removing what a newer
    program saved, and ``ValueError`` for less than one.
    """
    if keep < 1:
        raise ValueError(f"keep must be at least 1; found {keep}")
    kept, gone, files = 0, [], 0
    for applied in reversed(await place.ids()):
        manifest: Manifest | None = None
        try:
            manifest = await place.read(applied)
        except (StoreUnavailableError, NewerFormError):
            raise
        except ArchiveError:
            pass
        if manifest is not None and kept < keep:
            kept += 1
            continue
        await place.store.remove(place.manifest_path(applied))
        gone.append(applied)
        for each in () if manifest is None else manifest.files:
            await place.store.remove(place.path(each.name))
            files += 1
    return Removed(sorted(gone), files)


async def leftovers(place: SnapshotPlace) -> list[str]:
    """The names of files that belong to no snapshot: attempts that were stopped, or that are still under way.

    Raises ``ArchiveError`` for a manifest that cannot be read: nobody knows its files.
    """
    names = [name async for name in place.store.names(place.folder) if name.endswith(".parquet")]
    counted = {each.name for applied in await place.ids() for each in (await place.read(applied)).files}
    return [name for name in names if name not in counted]


async def remove_leftovers(place: SnapshotPlace) -> list[str]:
    """Remove the files that belong to no snapshot. Only while no snapshot of the partition is being saved.

    Raises as :func:`leftovers`.
    """
    found = await leftovers(place)
    for name in found:
        await place.store.remove(place.path(name))
    return found


def check_bytes(data: bytes, size_bytes: int, crc: int) -> str | None:
    """How the bytes of a file differ from what was saved; ``None`` if they do not."""
    if len(data) != size_bytes:
        return f"it has {len(data)} bytes, and {size_bytes} were saved"
    return None if crc32(data) == crc else "it does not match its checksum"
