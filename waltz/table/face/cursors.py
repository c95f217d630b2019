"""Named cursors, deprecated: positions in ZooKeeper, partition by partition."""

import warnings

from waltz.client.errors import PositionConflictError, PositionsError
from waltz.client.plain.client import Client
from waltz.client.positions.interface import Move
from waltz.common.ids import NO_TRANSACTION
from waltz.common.partition_ids import check_partition
from waltz.common.zk.client import ZooKeeperError
from waltz.table.errors import CursorConflict, TableError
from waltz.table.face.positions import ZooKeeperPositions


class NamedCursor:
    """Deprecated: use :class:`waltz.ZooKeeperPositions`, which keeps the same nodes.

    Examples:
        ```python
        positions = waltz.ZooKeeperPositions(client, "mails")
        cluster_key = await client.cluster_key()
        stored = (await positions.load(cluster_key, [0])).get(0)
        taken = await table.take(-1 if stored is None else stored)
        print(len(taken.rows), "rows to be mailed")
        await positions.save(cluster_key, {0: waltz.Move(stored, taken.cursor)})
        ```
    """

    def __init__(self, client: Client, group: str, partition_id: int) -> None:
        """Raises ``ValueError`` when the name of the group cannot be that of a node, or there is no such partition."""
        warnings.warn("NamedCursor is deprecated; use waltz.ZooKeeperPositions", DeprecationWarning, stacklevel=2)
        check_partition(partition_id, client.partition_count, ValueError)
        self._positions = ZooKeeperPositions(client, group)
        self._client = client
        self._partition_id = partition_id
        self._position: int | None = None
        self._attempted: int | None = None

    async def read(self) -> int:
        """The last transaction that the group is done with, -1 at first; :meth:`advance` moves the cursor from there.

        Raises ``TableError`` when the node holds something else, and ``ZooKeeperError``.
        """
        self._attempted = None
        self._position = await self._stored()
        return NO_TRANSACTION if self._position is None else self._position

    @property
    def exists(self) -> bool:
        """Whether the cursor's node existed at the last read or move."""
        return self._position is not None

    async def advance(self, transaction_id: int) -> None:
        """Record that the group is done with all transactions up to this one, whose effects have to be safe.

        Raises ``ValueError`` for a step back, :class:`CursorConflict` when another process has moved the cursor since
        it was read, ``TableError`` when the node holds something else, and ``ZooKeeperError``: after a
        ``ConnectionLossError`` the cursor may have been moved, and the call can be repeated.
        """
        if self._attempted is not None and await self._stored() == self._attempted:
            self._position = self._attempted
        if transaction_id < (NO_TRANSACTION if self._position is None else self._position):
            raise ValueError(f"the cursor is at {self._position} already, and does not go back to {transaction_id}")
        move = Move(self._position, transaction_id)
        try:
            await self._positions.save(await self._client.cluster_key(), {self._partition_id: move})
        except PositionConflictError as error:
            raise CursorConflict(f"{error}; read it again") from None
        except PositionsError as error:
            raise TableError(str(error)) from error
        except ZooKeeperError:
            self._attempted = transaction_id
            raise
        self._position, self._attempted = transaction_id, None

    async def _stored(self) -> int | None:
        try:
            stored = await self._positions.load(await self._client.cluster_key(), [self._partition_id])
        except PositionsError as error:
            raise TableError(str(error)) from error
        return stored.get(self._partition_id)
