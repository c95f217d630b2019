"""What keeps the positions of a consumer."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import NamedTuple


class Move(NamedTuple):
    """How a position is to change; both are ids of transactions, and -1 stands before the first one."""

    before: int | None
    """What it is now; ``None``: there is none."""
    after: int
    """What it is to be."""


class PositionStore(ABC):
    """Keeps, for each partition, the id of the last transaction that a consumer is done with.

    Positions belong to the logs of one cluster, named by its key, and to one consumer, or the instances of one that
    share the partitions. They are changed by compare-and-set, so that of two that believe a partition to be theirs one
    is told. :class:`waltz.FilePositions`, :class:`waltz.SqlitePositions`, :class:`waltz.SqlAlchemyPositions` and
    :class:`waltz.ZooKeeperPositions` are such stores; a class of your own needs these methods.
    """

    @abstractmethod
    async def load(self, cluster_key: str, partition_ids: Collection[int]) -> dict[int, int]:
        """The positions in these partitions, where there are any.

        Raises ``PositionsError`` when they are of another cluster, damaged, or in use.
        """

    @abstractmethod
    async def save(self, cluster_key: str, moves: Mapping[int, Move]) -> None:
        """Change positions, by partition; they are safe when this returns.

        A position that is ``after`` already is as good. Raises ``PositionConflictError`` for partitions whose position
        is neither: nothing is saved for these.
        """

    async def close(self) -> None:  # noqa: B027  # most have nothing to be closed
        """The consumer is closed; :meth:`load` begins anew."""
