"""The end of a mirror: its partition of the target is written by applications from now on."""

import asyncio

from waltz.common.cluster.handle import ClusterHandle
from waltz.common.cluster.owners import read_owners
from waltz.common.errors import WaltzError
from waltz.common.wire.write_sessions import NO_WRITE_SESSION
from waltz.mirror.claims import Claims
from waltz.operations.write_sessions import fence

ATTEMPTS = 5
PAUSE_S = 1.0


async def promote_partition(cluster: ClusterHandle, partition_id: int) -> int:
    """Make a mirrored partition an ordinary one; its last transaction.

    The promotion is written down, then a write session begins that is open to all: no mirror appends behind the
    transaction that is returned, neither one that runs nor one that comes later. May be repeated.

    Raises ``MirrorError`` when the partition is no mirror, and ``WaltzError`` when it is not certain that the old
    session has ended; then the promotion has to be repeated.
    """
    await Claims(cluster.zookeeper, cluster.root).promote(partition_id)
    failure: WaltzError | None = None
    for attempt in range(ATTEMPTS):
        if attempt:
            await asyncio.sleep(PAUSE_S)
        try:
            owner = (await read_owners(cluster.zookeeper, cluster.root)).get(partition_id)
            if owner is None or owner.endpoint is None:
                raise WaltzError(f"no server owns partition {partition_id}; is a server running?")
            answer = await fence(owner.endpoint, partition_id, owner.generation, NO_WRITE_SESSION, cluster.tls)
        except WaltzError as error:
            failure = error
        else:
            return answer.transaction_id
    assert failure is not None
    raise WaltzError(
        f"partition {partition_id} is marked as promoted, but the session of its mirror may not have ended: {failure}; "
        "promote it again"
    )
