"""How far the archive of a cluster goes, for whoever takes transactions away."""

import asyncio

from waltz.common.cluster.handle import ClusterHandle
from waltz.common.errors import WaltzError
from waltz.common.version import with_extra
from waltz.common.zk.archive_address import read_archive_url
from waltz.common.zk.store_admin import read_store_params

_TIMEOUT_S = 60.0


async def archived_end(cluster: ClusterHandle, partition_id: int) -> int | None:
    """The end of the archived part of a partition; ``None`` if the cluster has no archive.

    Raises ``WaltzError`` when there is one and it cannot be read.
    """
    url = await read_archive_url(cluster.zookeeper, cluster.root)
    if url is None:
        return None
    try:
        from waltz.archive.chain import Place, newest_page
        from waltz.archive.store import open_store
    except ModuleNotFoundError as error:
        raise WaltzError(f"the archive at {url} cannot be read: {with_extra('archive')}: {error}") from None
    key = (await read_store_params(cluster.zookeeper, cluster.root)).key
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            return (await newest_page(Place(open_store(url), key, partition_id))).end
    except TimeoutError:
        raise WaltzError(f"the archive at {url} did not answer within {_TIMEOUT_S:g} s") from None
