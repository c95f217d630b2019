"""Named cursors: how far a group of consumers has come in a partition, for those who have no database of their own.

The node is JSON: the transaction, and who has written it. It is changed by compare-and-set, so that of two consumers
that believe they have the cursor one is told.
"""

import json
from uuid import uuid4

from waltz.client.plain.client import Client
from waltz.common.ids import NO_TRANSACTION
from waltz.common.partition_ids import check_partition
from waltz.common.zk.client import BadVersionError, NodeExistsError, NoNodeError
from waltz.common.zk.paths import ClusterPaths
from waltz.table.errors import CursorConflict, TableError

_POSITION = "transactionId"
_HOLDER = "holder"


class NamedCursor:
    """The cursor of a group in a partition: ``NamedCursor(client, "mails", 0)``. Whoever reads it last may move it.

    Examples:
        ```python
        cursor = waltz.table.NamedCursor(client, "mails", 0)
        taken = await table.take(await cursor.read())
        print(len(taken.rows), "rows to be mailed")
        await cursor.advance(taken.cursor)
        ```
    """

    def __init__(self, client: Client, group: str, partition_id: int) -> None:
        """Raises ``ValueError`` when the name of the group cannot be that of a node, or there is no such partition."""
        if not group or group in (".", "..") or "/" in group or not group.isprintable():
            raise ValueError(f"the name of a group is printable, without slashes, and not empty: {group!r}")
        check_partition(partition_id, client.partition_count, ValueError)
        nodes, root = client.directory
        self._nodes = nodes
        self._path = ClusterPaths.of(root).cursor(group, partition_id)
        self._holder = uuid4().hex
        self._position = NO_TRANSACTION
        self._version: int | None = None

    async def read(self) -> int:
        """The last transaction that the group is done with, -1 at first; this object may move it from there on.

        Raises ``TableError`` when the node holds something else, and ``ZooKeeperError``.
        """
        self._position, _, self._version = await self._stored()
        return self._position

    @property
    def exists(self) -> bool:
        """Whether there was a node when this object read it last, or there is one since it was moved."""
        return self._version is not None

    async def advance(self, transaction_id: int) -> None:
        """Say that the group is done with everything up to a transaction, once the effects of that are safe.

        Raises ``ValueError`` for a step back, :class:`CursorConflict` when somebody else has moved the cursor since it
        was read, and ``ZooKeeperError``: after a ``ConnectionLossError`` it may have been moved, and can be again.
        """
        if transaction_id < self._position:
            raise ValueError(f"the cursor is at {self._position} already, and does not go back to {transaction_id}")
        data = json.dumps({_POSITION: transaction_id, _HOLDER: self._holder}, sort_keys=True).encode()
        while True:
            try:
                if self._version is None:
                    await self._nodes.create(self._path, data, make_path=True)
                    self._version = 0
                else:
                    self._version = (await self._nodes.set(self._path, data, self._version)).version
            except (NodeExistsError, BadVersionError, NoNodeError):
                position, holder, version = await self._stored()
                if holder != self._holder:
                    raise CursorConflict(
                        f"{self._path} was moved to {position} by somebody else; read it again"
                    ) from None
                self._version = version  # the answer to a write of this object got lost
            else:
                self._position = transaction_id
                return

    async def _stored(self) -> tuple[int, str, int | None]:
        try:
            data, stat = await self._nodes.get(self._path)
        except NoNodeError:
            return NO_TRANSACTION, "", None
        try:
            fields = json.loads(data or b"")
            position, holder = fields[_POSITION], fields[_HOLDER]
        except (ValueError, KeyError, TypeError, RecursionError):
            position = holder = None
        if type(position) is not int or type(holder) is not str or position < NO_TRANSACTION:
            raise TableError(f"{self._path} does not hold a cursor")
        return position, holder, stat.version
