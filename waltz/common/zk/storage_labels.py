"""Labels of storage nodes and rings, in nodes of ZooKeeper that the original never looks at.

A storage's labels say where it is: ``datacenter``, ``rack``, or any other key. A ring is a named set of storages for
the replicas of some partitions. Both are JSON and changed by compare-and-set.
"""

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Self, TypeVar

from waltz.common.errors import WaltzError
from waltz.common.zk.client import BadVersionError, NodeExistsError, NoNodeError, ZooKeeper
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.store_admin import read_connections

DATACENTER = "datacenter"
RACK = "rack"

Labels = Mapping[str, str]
"""The labels of one storage."""

_T = TypeVar("_T")

_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}")
_RING = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_MAX_VALUE_CHARACTERS = 100
_LABELS_FORM = 'a JSON object of labels such as {"datacenter": "a", "rack": "1"}'


class LabelsError(WaltzError):
    """Labels or a ring that cannot be accepted, or cannot be read; nothing was written."""


class Ring(NamedTuple):
    """A named set of storages, and the partitions whose replicas stay in it."""

    storages: tuple[str, ...]
    """Connect strings, in ascending order."""
    partition_ids: tuple[int, ...] = ()

    def encode(self) -> bytes:
        """The data of the node."""
        return json.dumps({"storages": self.storages, "partitions": self.partition_ids}).encode()

    @classmethod
    def decode(cls, data: bytes | None, path: str) -> Self:
        """Raises :class:`LabelsError`."""
        document = _document(data)
        storages = _list_of(str, document, "storages")
        partition_ids = _list_of(int, document, "partitions")
        if storages is None or partition_ids is None:
            raise LabelsError(f"{path} does not hold a ring: delete the node, and make the ring again")
        return cls(tuple(sorted(storages)), tuple(sorted(partition_ids)))


class StoredLabels(NamedTuple):
    """The labels of all storages, as read from ZooKeeper."""

    labels: Mapping[str, Labels]
    """By connect string; a storage without labels is left out."""
    unreadable: Sequence[str]
    """A line for each node that holds no labels."""


def check_labels(labels: Labels) -> None:
    """Raise :class:`LabelsError` for a key or a value that is no label."""
    for key, value in labels.items():
        if not _KEY.fullmatch(key):
            raise LabelsError(
                f"{key!r} is no key of a label: it begins with a letter, and has at most 63 letters, digits, '.', '_' "
                "and '-'"
            )
        if not value or len(value) > _MAX_VALUE_CHARACTERS or not value.isprintable() or set(value) & set(",= "):
            raise LabelsError(
                f"label {key} cannot be {value!r}: it has 1 to {_MAX_VALUE_CHARACTERS} printable characters, without "
                "blanks, commas and '='"
            )


def decode_labels(data: bytes | None, path: str) -> dict[str, str]:
    """The labels of a node. Raises :class:`LabelsError`."""
    document = _document(data)
    if not isinstance(document, dict) or not all(isinstance(value, str) for value in document.values()):
        raise LabelsError(f"{path} does not hold {_LABELS_FORM}: set them again (waltz storage label)")
    try:
        check_labels(document)
    except LabelsError as error:
        raise LabelsError(f"{path}: {error}; set it again (waltz storage label)") from None
    return document


def parse_labels(text: str) -> dict[str, str]:
    """Labels from ``datacenter=a,rack=1``. Raises :class:`LabelsError`."""
    labels: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.strip().partition("=")
        if not equals:
            raise LabelsError(f"not of the form KEY=VALUE,KEY=VALUE: {text!r}")
        if key in labels:
            raise LabelsError(f"label {key} is given twice: {text!r}")
        labels[key] = value
    check_labels(labels)
    return labels


def labels_text(labels: Labels) -> str:
    """Labels as ``datacenter=a,rack=1``: datacenter and rack first."""
    order = {DATACENTER: 0, RACK: 1}
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels, key=lambda key: (order.get(key, 2), key)))


def default_spread(labels: Iterable[Labels]) -> list[str]:
    """Datacenter and rack, each if any storage has such a label."""
    used = {key for each in labels for key in each}
    return [key for key in (DATACENTER, RACK) if key in used]


def nearness(here: Labels, there: Labels) -> int:
    """How many of datacenter and rack, the widest first, two places share, by the labels that ``here`` has."""
    shared = 0
    for key in (DATACENTER, RACK):
        if key in here:
            if here[key] != there.get(key):
                break
            shared += 1
    return shared


async def read_labels(zookeeper: ZooKeeper, root: str) -> StoredLabels:
    """The labels of all storages. Raises ``ZooKeeperError``."""
    paths = ClusterPaths.of(root)
    found: dict[str, Labels] = {}
    unreadable: list[str] = []
    for storage in sorted(await _children(zookeeper, paths.all_storage_labels)):
        path = paths.storage_labels(storage)
        try:
            labels = decode_labels((await zookeeper.get(path))[0], path)
        except NoNodeError:
            continue
        except LabelsError as error:
            unreadable.append(str(error))
            continue
        if labels:
            found[storage] = labels
    return StoredLabels(found, unreadable)


async def change_labels(zookeeper: ZooKeeper, root: str, storage: str, changes: Mapping[str, str | None]) -> Labels:
    """Change some labels of a storage; ``None`` removes one. Other labels stay.

    Args:
        zookeeper: The ensemble.
        root: The cluster, which exists.
        storage: Connect string of a storage node of the cluster.
        changes: The new values, by key. Unreadable labels that are stored are replaced.

    Returns:
        All labels that the storage has now.

    Raises:
        LabelsError: The storage is unknown, or a label is refused.
        ZooKeeperError: After a ``ConnectionLossError`` the change may have been made; the call can be repeated.
    """
    check_labels({key: value for key, value in changes.items() if value is not None})
    check_labels({key: "-" for key, value in changes.items() if value is None})
    await _check_storages(zookeeper, root, [storage])
    path = ClusterPaths.of(root).storage_labels(storage)
    while True:
        labels: dict[str, str] = {}
        version = None
        with contextlib.suppress(NoNodeError, LabelsError):
            data, stat = await zookeeper.get(path)
            version = stat.version
            labels = decode_labels(data, path)
        labels = {key: value for key, value in {**labels, **changes}.items() if value is not None}
        if await _write(zookeeper, path, json.dumps(labels, sort_keys=True).encode() if labels else None, version):
            return labels


async def read_rings(zookeeper: ZooKeeper, root: str) -> dict[str, Ring]:
    """All rings by name. Raises :class:`LabelsError` for a node that holds none, and ``ZooKeeperError``."""
    paths = ClusterPaths.of(root)
    rings = {}
    for name in sorted(await _children(zookeeper, paths.all_rings)):
        try:
            rings[name] = Ring.decode((await zookeeper.get(paths.ring(name)))[0], paths.ring(name))
        except NoNodeError:
            continue
    return rings


async def write_ring(zookeeper: ZooKeeper, root: str, name: str, storages: Iterable[str]) -> Ring:
    """Make a ring of these storages, or give an existing one these storages; its partitions stay in it.

    Raises :class:`LabelsError` for a name that is none, and for unknown storages.
    """
    if not _RING.fullmatch(name):
        raise LabelsError(f"{name!r} is no name of a ring: it has 1 to 63 letters, digits, '.', '_' and '-'")
    members = tuple(sorted(set(storages)))
    await _check_storages(zookeeper, root, members)
    return await _change_ring(zookeeper, root, name, lambda ring: ring._replace(storages=members))


async def add_to_ring(zookeeper: ZooKeeper, root: str, name: str, partition_ids: Iterable[int]) -> Ring:
    """Keep the replicas of further partitions in the ring."""
    added = set(partition_ids)
    return await _change_ring(
        zookeeper, root, name, lambda ring: ring._replace(partition_ids=tuple(sorted(added.union(ring.partition_ids))))
    )


async def delete_ring(zookeeper: ZooKeeper, root: str, name: str) -> None:
    """Forget a ring; the replicas of its partitions stay where they are. Raises :class:`LabelsError` if none."""
    try:
        await zookeeper.delete(ClusterPaths.of(root).ring(name))
    except NoNodeError:
        raise LabelsError(f"there is no ring {name!r}") from None


async def _change_ring(zookeeper: ZooKeeper, root: str, name: str, change: Callable[[Ring], Ring]) -> Ring:
    path = ClusterPaths.of(root).ring(name)
    while True:
        ring, version = Ring(()), None
        with contextlib.suppress(NoNodeError):
            data, stat = await zookeeper.get(path)
            ring, version = Ring.decode(data, path), stat.version
        ring = change(ring)
        if await _write(zookeeper, path, ring.encode(), version):
            return ring


async def _write(zookeeper: ZooKeeper, path: str, data: bytes | None, version: int | None) -> bool:
    """Write by compare-and-set, without ``data`` delete; whether nobody else came first."""
    try:
        if version is not None and data is not None:
            await zookeeper.set(path, data, version)
        elif version is not None:
            await zookeeper.delete(path, version)
        elif data is not None:
            await zookeeper.create(path, data, make_path=True)
    except (NodeExistsError, BadVersionError, NoNodeError):
        return False
    return True


async def _check_storages(zookeeper: ZooKeeper, root: str, storages: Iterable[str]) -> None:
    known = (await read_connections(zookeeper, root)).admin_ports
    for storage in storages:
        if storage not in known:
            names = ", ".join(sorted(known)) or "none"
            raise LabelsError(f"there is no storage node {storage} in the cluster; there are: {names}")


async def _children(zookeeper: ZooKeeper, path: str) -> list[str]:
    try:
        return await zookeeper.children(path)
    except NoNodeError:
        return []


def _document(data: bytes | None) -> object:
    try:
        return json.loads(data or b"")
    except (ValueError, RecursionError):
        return None


def _list_of(kind: type[_T], document: object, key: str) -> list[_T] | None:
    found = document.get(key) if isinstance(document, dict) else None
    if not isinstance(found, list) or not all(type(each) is kind for each in found):
        return None
    return found
