"""Named cursors as the positions of a consumer."""

from collections.abc import Collection, Mapping

from waltz.client.errors import PositionConflictError, PositionsError
from waltz.client.plain.client import Client
from waltz.client.positions.interface import Move, PositionStore
from waltz.table.errors import CursorConflict, TableError
from waltz.table.face.cursors import NamedCursor


class ZooKeeperPositions(PositionStore):
    """Positions in the ZooKeeper of the cluster: ``ZooKeeperPositions(client, "mails")``.

    They are the cursors of the group (:class:`waltz.table.NamedCursor`), and nothing has to be set up for them. Each
    change is a write in ZooKeeper for each partition that has moved, so let it be one a second rather than one for each
    transaction.

    Examples:
        ```python
        positions = waltz.ZooKeeperPositions(client, "mails")
        async with client.consume(positions, commit_every_s=1.0) as consumer:
            print((await anext(consumer)).data)
        ```
    """

    def __init__(self, client: Client, group: str) -> None:
        """Raises ``ValueError`` when the name of the group cannot be that of a node."""
        NamedCursor(client, group, 0)
        self._client = client
        self._group = group
        self._cursors: dict[int, NamedCursor] = {}

    async def load(self, cluster_key: str, partition_ids: Collection[int]) -> dict[int, int]:
        """The positions in these partitions, where there are any.

        Raises ``PositionsError`` when a node holds something else, and ``ZooKeeperError``.
        """
        nodes, root = self._client.directory
        await nodes.sync(root)  # another instance may have moved them a moment ago
        positions: dict[int, int] = {}
        for partition_id in partition_ids:
            cursor = self._cursors.get(partition_id)
            if cursor is None:
                cursor = self._cursors[partition_id] = NamedCursor(self._client, self._group, partition_id)
            try:
                position = await cursor.read()
            except TableError as error:
                raise PositionsError(f"{error}; remove the node, and begin with `start` where to go on") from error
            if cursor.exists:
                positions[partition_id] = position
        return positions

    async def save(self, cluster_key: str, moves: Mapping[int, Move]) -> None:
        """Change positions, one by one.

        Raises ``PositionConflictError`` for partitions whose cursor was moved by somebody else; all others are
        changed then. Raises ``ZooKeeperError``, too: then some of the changes may have been made.
        """
        conflicting = []
        for partition_id, move in moves.items():
            try:
                await self._cursors[partition_id].advance(move.after)
            except CursorConflict:
                conflicting.append(partition_id)
        if conflicting:
            raise PositionConflictError(conflicting, f"the cursors of group {self._group!r}")
