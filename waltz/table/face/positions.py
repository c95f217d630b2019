"""Positions in the ZooKeeper of the cluster, for applications without a database of their own.

The node of a partition is JSON: the transaction, its request id, and its writer. It is changed by compare-and-set, so
that of two consumers that believe they own the partition one gets an error.
"""

import json
from collections.abc import Collection, Mapping
from typing import NamedTuple
from uuid import uuid4

from waltz.client.databases.marks import request_id_of
from waltz.client.errors import PositionConflictError, PositionsError
from waltz.client.plain.client import Client
from waltz.client.positions.interface import Move, PositionStore
from waltz.client.sharing import check_group
from waltz.common.ids import NO_TRANSACTION
from waltz.common.partition_ids import check_partition
from waltz.common.zk.client import BadVersionError, NodeExistsError, NoNodeError
from waltz.common.zk.paths import ClusterPaths

_POSITION = "transactionId"
_REQUEST_ID = "requestId"
_HOLDER = "holder"


class _Node(NamedTuple):
    position: int | None = None
    request_id: bytes = b""
    version: int = 0


class ZooKeeperPositions(PositionStore):
    """Positions in the ZooKeeper of the cluster: ``ZooKeeperPositions(client, "mails")``.

    Nothing has to be set up. A change is one write in ZooKeeper for each partition that has moved, so save about once a
    second rather than for each transaction.

    Examples:
        ```python
        positions = waltz.ZooKeeperPositions(client, "mails")
        async with client.consume(positions, commit_every_s=1.0) as consumer:
            print((await anext(consumer)).data)
        ```
    """

    def __init__(self, client: Client, group: str) -> None:
        """Raises ``ValueError`` when the name of the group cannot be that of a node."""
        check_group(group)
        self._client = client
        self._group = group
        self._holder = uuid4().hex
        self._nodes: dict[int, _Node] = {}

    async def load(self, cluster_key: str, partition_ids: Collection[int]) -> dict[int, int]:
        """The stored positions in these partitions.

        Raises ``PositionsError`` when a node holds something else, and ``ZooKeeperError``.
        """
        nodes, root = self._client.directory
        await nodes.sync(root)  # another instance may have moved the positions a moment ago
        for partition_id in partition_ids:
            self._nodes[partition_id] = await self._read(partition_id)
        found = {each: self._nodes[each].position for each in partition_ids}
        return {each: position for each, position in found.items() if position is not None}

    def request_id(self, partition_id: int) -> bytes:
        return self._nodes[partition_id].request_id

    async def save(self, cluster_key: str, moves: Mapping[int, Move]) -> None:
        """Change positions, one by one.

        Raises ``PositionConflictError`` for partitions whose position another process has moved; all other positions
        are changed. After a ``ZooKeeperError`` some of the changes may have been made.
        """
        conflicting = [each for each, move in moves.items() if not await self._move(each, move)]
        if conflicting:
            raise PositionConflictError(conflicting, f"the ZooKeeper nodes of group {self._group!r}")

    async def _move(self, partition_id: int, move: Move) -> bool:
        """Move a position; returns whether it is ``after`` now."""
        nodes, _ = self._client.directory
        path = self._path(partition_id)
        fields: dict[str, object] = {_POSITION: move.after, _HOLDER: self._holder}
        if move.request_id:
            fields[_REQUEST_ID] = move.request_id.hex()
        data = json.dumps(fields, sort_keys=True).encode()
        node = self._nodes.get(partition_id, _Node())
        looked = False
        while not looked or node.position != move.after:
            if node.position == move.before != move.after:
                try:
                    if node.position is None:
                        await nodes.create(path, data, make_path=True)
                        version = 0
                    else:
                        version = (await nodes.set(path, data, node.version)).version
                except (NodeExistsError, BadVersionError, NoNodeError):
                    pass
                else:
                    self._nodes[partition_id] = _Node(move.after, move.request_id, version)
                    return True
            elif looked:
                return False
            await nodes.sync(path)  # the last seen state may be old
            node = self._nodes[partition_id] = await self._read(partition_id)
            looked = True
        return True

    async def _read(self, partition_id: int) -> _Node:
        nodes, _ = self._client.directory
        path = self._path(partition_id)
        try:
            data, stat = await nodes.get(path)
        except NoNodeError:
            return _Node()
        try:
            fields = json.loads(data or b"")
            position, holder = fields[_POSITION], fields[_HOLDER]
        except (ValueError, KeyError, TypeError, RecursionError):
            position = holder = None
        if type(position) is not int or type(holder) is not str or position < NO_TRANSACTION:
            raise PositionsError(
                f"{path} does not hold a position; remove the node, and begin with `start` where to go on"
            )
        return _Node(position, request_id_of(fields.get(_REQUEST_ID)), stat.version)

    def _path(self, partition_id: int) -> str:
        check_partition(partition_id, self._client.partition_count, ValueError)
        return ClusterPaths.of(self._client.directory.root).cursor(self._group, partition_id)
