"""The access rules of a cluster in ZooKeeper: ``ext/acl``, ``ext/names``, and what each node applies."""

import json
from collections.abc import Generator
from typing import NamedTuple

from waltz.common.acl.document import Document, read_document, read_names, write_document, write_names
from waltz.common.acl.json_pieces import AclError
from waltz.common.acl.rules import Rules, compile_rules
from waltz.common.pieces import at_once
from waltz.common.zk.client import BadVersionError, NodeExistsError, NoNodeError, Stat, Watch, ZooKeeper
from waltz.common.zk.paths import ClusterPaths


class StoredRules(NamedTuple):
    """The stored rules and names, not read yet."""

    data: bytes
    names_data: bytes | None
    """``None`` if no partitions are named."""
    stat: Stat
    names_stat: Stat | None

    @property
    def place(self) -> "Place":
        """Which rules these are."""
        return Place(self.stat.version, self.stat.mzxid, 0 if self.names_stat is None else self.names_stat.mzxid)

    def read(self) -> Generator[None, None, tuple[Document, dict[str, str]]]:
        """The rules and the names. Raises :class:`AclError`."""
        document = yield from read_document(self.data)
        names = {} if self.names_data is None else (yield from read_names(self.names_data))
        return document, names

    def compile(self, partition_count: int) -> Generator[None, None, Rules]:
        """The rules, compiled for a cluster. Raises :class:`AclError`."""
        document, names = yield from self.read()
        return (yield from compile_rules(document, names, partition_count))


class Place(NamedTuple):
    """Rules in their order: later ones are greater in both transactions of ZooKeeper."""

    version: int
    """The number of changes of ``ext/acl``, for people."""
    rules: int
    """The transaction that wrote the rules."""
    names: int
    """The transaction that wrote the names; 0 without any."""

    def covers(self, other: "Place") -> bool:
        """Whether these rules and names are at least as new as others."""
        return self.rules >= other.rules and self.names >= other.names

    def encode(self) -> bytes:
        """The stored form."""
        return json.dumps(self._asdict()).encode()

    @classmethod
    def decode(cls, data: bytes) -> "Place":
        """Read the stored form. Raises :class:`AclError`."""
        try:
            fields = json.loads(data)
            return cls(int(fields["version"]), int(fields["rules"]), int(fields["names"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise AclError(f"{data[:40]!r} does not say which access rules a node applies") from None


async def read_stored(
    zookeeper: ZooKeeper, root: str, watch: Watch | None = None, names_watch: Watch | None = None
) -> StoredRules | None:
    """The stored rules, or ``None`` if the cluster has none. Watches are left in either case.

    Raises :class:`~waltz.common.zk.client.ZooKeeperError`.
    """
    paths = ClusterPaths.of(root)
    rules = await _get(zookeeper, paths.access_rules, watch)
    names = await _get(zookeeper, paths.partition_names, names_watch)
    if rules is None:
        return None
    data, stat = rules
    names_data, names_stat = (None, None) if names is None else names
    return StoredRules(data, names_data, stat, names_stat)


async def _get(zookeeper: ZooKeeper, path: str, watch: Watch | None) -> tuple[bytes, Stat] | None:
    while True:
        try:
            data, stat = await zookeeper.get(path, watch)
        except NoNodeError:
            if await zookeeper.exists(path, watch) is None:
                return None
        else:
            return data or b"", stat


async def write_rules(
    zookeeper: ZooKeeper, root: str, document: Document, before: StoredRules | None, partition_count: int
) -> Place:
    """Replace the rules that were read before, after a check of the new ones.

    Raises:
        AclError: The new rules cannot be used, or somebody else has changed the rules or the names meanwhile.
    """
    data = write_document(document)
    names_data = await _get(zookeeper, ClusterPaths.of(root).partition_names, None)
    names = {} if names_data is None else at_once(read_names(names_data[0]))
    at_once(compile_rules(at_once(read_document(data)), names, partition_count))
    stat = await _write(zookeeper, ClusterPaths.of(root).access_rules, data, None if before is None else before.stat)
    return Place(stat.version, stat.mzxid, 0 if names_data is None else names_data[1].mzxid)


async def write_partition_names(
    zookeeper: ZooKeeper, root: str, names: dict[str, str], before: StoredRules, partition_count: int
) -> Place:
    """Replace the names of partitions, after a check that the rules can be used with the new ones.

    Raises:
        AclError: The rules cannot be used with these names, or somebody else has changed the names meanwhile.
    """
    data = write_names(names)
    document, _ = at_once(before.read())
    at_once(compile_rules(document, at_once(read_names(data)), partition_count))
    stat = await _write(zookeeper, ClusterPaths.of(root).partition_names, data, before.names_stat)
    return before.place._replace(names=stat.mzxid)


async def _write(zookeeper: ZooKeeper, path: str, data: bytes, before: Stat | None) -> Stat:
    try:
        if before is not None:
            return await zookeeper.set(path, data, before.version)
        await zookeeper.create(path, data, make_path=True)
    except (BadVersionError, NodeExistsError, NoNodeError):
        raise AclError("somebody else has changed the access rules meanwhile: nothing was written; try again") from None
    stat = await zookeeper.exists(path)
    if stat is None:
        raise AclError(f"{path} was deleted as soon as it was written")
    return stat


async def read_applied(zookeeper: ZooKeeper, root: str) -> dict[str, Place]:
    """What each live node with access rules applies, by its name such as ``server HOST:PORT``."""
    path = ClusterPaths.of(root).applied_rules
    found: dict[str, Place] = {}
    try:
        names = await zookeeper.children(path)
    except NoNodeError:
        return found
    for name in sorted(names):
        try:
            data, _ = await zookeeper.get(f"{path}/{name}")
        except NoNodeError:
            continue
        found[name.replace("-", " ", 1)] = Place.decode(data or b"")
    return found
