"""Where the archive of a cluster is, in a node of ZooKeeper that the original never looks at.

The node is also the parent of the archivers' locks, so it may be there without an address.
"""

import json

from waltz.common.errors import WaltzError
from waltz.common.zk.client import ANY_VERSION, NodeExistsError, Nodes, NoNodeError, ZooKeeper
from waltz.common.zk.paths import ClusterPaths

MAX_URL_BYTES = 4096


class ArchiveAddressError(WaltzError):
    """What is stored is no address of an archive, or none can be stored; nothing was written."""


async def read_archive_url(zookeeper: Nodes, root: str) -> str | None:
    """The address of the cluster's archive, ``None`` if none is set. Raises ``ArchiveAddressError``,
    ``ZooKeeperError``."""
    path = ClusterPaths.of(root).archive
    try:
        data, _ = await zookeeper.get(path)
    except NoNodeError:
        return None
    if not data:
        return None
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        document = None
    url = document.get("url") if isinstance(document, dict) else None
    if not isinstance(url, str) or not url:
        raise ArchiveAddressError(f"{path} does not hold the address of an archive: waltz archive set-url")
    return url


async def write_archive_url(zookeeper: ZooKeeper, root: str, url: str | None) -> None:
    """Set the address, or remove it with ``None``. Raises ``ArchiveAddressError`` for a text that is far too long, and
    ``ZooKeeperError``."""
    data = b"" if url is None else json.dumps({"url": url}).encode()
    if len(data) > MAX_URL_BYTES:
        raise ArchiveAddressError(f"the address of an archive has at most {MAX_URL_BYTES} bytes")
    path = ClusterPaths.of(root).archive
    while True:
        try:
            await zookeeper.set(path, data, ANY_VERSION)
            return
        except NoNodeError:
            if url is None:
                return
        try:
            await zookeeper.create(path, data, make_path=True)
            return
        except NodeExistsError:
            continue  # an archiver made the parent of its locks meanwhile
