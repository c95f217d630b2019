"""Which partitions of a target are mirrors, in its ZooKeeper: one small node for each, our own.

A mirror writes the node after it has fenced, by compare-and-set, and appends nothing before that. A promotion writes it
before it fences. So whichever comes first, a mirror that appends has a write session older than that of the promotion,
or sees the promotion: a node that is read could be an old one, a node that is written cannot.
"""

import json
from typing import NamedTuple

from waltz.common.zk.client import BadVersionError, NodeExistsError, NoNodeError, ZooKeeper
from waltz.common.zk.paths import ClusterPaths
from waltz.mirror.errors import MirrorError, OtherSourceError, PromotedError

MAX_CLAIM_BYTES = 4096


class Claim(NamedTuple):
    """What is written down about one partition of a target."""

    source: str
    """The key of the source cluster."""
    promoted: bool = False
    """Whether the partition was a mirror, and is one no more."""
    sessions: int = 0
    """How often a mirror has begun to append. Each claim differs from those before."""

    def encode(self) -> bytes:
        """The node's data."""
        return json.dumps({"source": self.source, "promoted": self.promoted, "sessions": self.sessions}).encode()

    @classmethod
    def decode(cls, data: bytes | None) -> "Claim":
        """Read the node's data. Raises ``MirrorError``."""
        try:
            if data is None or len(data) > MAX_CLAIM_BYTES:
                raise ValueError("no data, or too many")
            document = json.loads(data)
            source, promoted, sessions = document["source"], document["promoted"], document["sessions"]
            if not (isinstance(source, str) and isinstance(promoted, bool) and type(sessions) is int):
                raise ValueError("a field has another type")
        except (ValueError, KeyError, TypeError, RecursionError):
            raise MirrorError("the claim of a mirror in ZooKeeper is damaged, or of a newer version of Waltz") from None
        return cls(source, promoted, sessions)


class Claims:
    """The claims of one target cluster. Methods raise ``ZooKeeperError``, and ``MirrorError`` for damaged nodes."""

    def __init__(self, zookeeper: ZooKeeper, root: str) -> None:
        self._zookeeper = zookeeper
        self._paths = ClusterPaths.of(root)

    async def read(self, partition_id: int) -> Claim | None:
        """The claim of a partition; ``None``: it never was a mirror."""
        found = await self._find(partition_id)
        return None if found is None else found[0]

    async def check(self, partition_id: int, source: str) -> None:
        """Raise ``MirrorStoppedError`` unless the partition may be the mirror of a source."""
        _check(partition_id, await self.read(partition_id), source)

    async def take(self, partition_id: int, source: str) -> None:
        """Write down that a mirror of a source appends from now on. To be called when it has fenced.

        Raises ``MirrorStoppedError`` if it must not append, and ``MirrorError`` when another process wrote meanwhile.
        """
        found = await self._find(partition_id)
        _check(partition_id, None if found is None else found[0], source)
        before, version = found or (Claim(source), None)
        await self._write(partition_id, before._replace(sessions=before.sessions + 1), version)

    async def promote(self, partition_id: int) -> Claim:
        """Write down that the partition is a mirror no more. Raises ``MirrorError`` if it never was one."""
        found = await self._find(partition_id)
        if found is None:
            raise MirrorError(f"partition {partition_id} is no mirror: no mirror has ever appended to it")
        claim, version = found
        if not claim.promoted:
            await self._write(partition_id, claim._replace(promoted=True), version)
        return claim

    async def resume(self, partition_id: int) -> None:
        """Take a promotion back. Raises ``MirrorError`` if there is none."""
        found = await self._find(partition_id)
        if found is None or not found[0].promoted:
            raise MirrorError(f"partition {partition_id} was not promoted: there is nothing to take back")
        await self._write(partition_id, found[0]._replace(promoted=False), found[1])

    async def _find(self, partition_id: int) -> tuple[Claim, int] | None:
        try:
            data, stat = await self._zookeeper.get(self._paths.mirror(partition_id))
        except NoNodeError:
            return None
        return Claim.decode(data), stat.version

    async def _write(self, partition_id: int, claim: Claim, version: int | None) -> None:
        path = self._paths.mirror(partition_id)
        try:
            if version is None:
                await self._zookeeper.create(path, claim.encode(), make_path=True)
            else:
                await self._zookeeper.set(path, claim.encode(), version)
        except (BadVersionError, NodeExistsError, NoNodeError) as error:
            raise MirrorError(f"another process has changed {path} at the same time; ask again") from error


def _check(partition_id: int, claim: Claim | None, source: str) -> None:
    if claim is None:
        return
    if claim.promoted:
        raise PromotedError(
            f"partition {partition_id} was promoted: it is a mirror no more, and nothing is appended to it; "
            "waltz mirror resume takes a promotion back"
        )
    if claim.source != source:
        raise OtherSourceError(
            f"partition {partition_id} is the mirror of the cluster with the key {claim.source}, and not of {source}: "
            "correct the source, or mirror into a fresh cluster"
        )
