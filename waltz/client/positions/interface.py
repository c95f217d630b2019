"""What keeps the positions of a consumer."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import NamedTuple


class Move(NamedTuple):
    """How a position is to change; both are ids of transactions, and -1 stands before the first one.

    Examples:
        ```python
        positions = waltz.SqlitePositions(f"{directory}/mails.sqlite", "mails")
        cluster_key = await client.cluster_key()
        await positions.load(cluster_key, [0])
        await positions.save(cluster_key, {0: waltz.Move(before=None, after=1)})  # begin behind transaction 1
        ```
    """

    before: int | None
    """What it is now; ``None``: there is none."""
    after: int
    """What it is to be."""
    request_id: bytes = b""
    """The request id of the transaction ``after``, as its record has it; empty where it is not known."""


class PositionStore(ABC):
    """Keeps, for each partition, the id of the last transaction that a consumer is done with.

    Positions belong to the logs of one cluster, named by its key, and to one consumer, or the instances of one that
    share the partitions. They are changed by compare-and-set, so that of two that believe a partition to be theirs one
    is told: nothing moves on from a position that cannot be shown to be the consumer's own.
    :class:`waltz.FilePositions`, :class:`waltz.SqlitePositions`, :class:`waltz.SqlAlchemyPositions` and
    :class:`waltz.ZooKeeperPositions` are such stores; a class of your own needs these methods.

    Examples:
        ```python
        from collections.abc import Collection, Mapping


        class Positions(waltz.PositionStore):
            def __init__(self) -> None:
                self.stored: dict[int, int] = {}

            async def load(self, cluster_key: str, partition_ids: Collection[int]) -> dict[int, int]:
                return {each: self.stored[each] for each in partition_ids if each in self.stored}

            async def save(self, cluster_key: str, moves: Mapping[int, waltz.Move]) -> None:
                lost = [each for each, move in moves.items() if self.stored.get(each) not in move]
                if lost:
                    raise waltz.PositionConflictError(lost, "memory")
                self.stored.update({each: move.after for each, move in moves.items()})


        async with client.consume(Positions()) as consumer:
            print((await anext(consumer)).data)
            await consumer.commit()
        ```
    """

    @abstractmethod
    async def load(self, cluster_key: str, partition_ids: Collection[int]) -> dict[int, int]:
        """The positions in these partitions, where there are any.

        Raises ``PositionsError`` when they are of another cluster, damaged, or in use.
        """

    @abstractmethod
    async def save(self, cluster_key: str, moves: Mapping[int, Move]) -> None:
        """Change positions, by partition; they are safe when this returns.

        A position that is ``after`` already is as good. ``request_id`` of a move is kept beside it by a store that has
        a place for it. Raises ``PositionConflictError`` for partitions whose position
        is neither: nothing is saved for these.
        """

    def request_id(self, partition_id: int) -> bytes:
        """The request id that stands beside the position that was loaded last; empty where there is none.

        A consumer compares it with the log's: the log may have been put back from a backup, and have another
        transaction of that id by now. A store that keeps none is never compared.
        """
        return b""

    def take_conflicts(self) -> Collection[int]:
        """The partitions in which a move was a conflict, beside those that :meth:`save` told of; each is told once.

        The consumer reads them anew behind their stored positions.
        """
        return ()

    async def close(self) -> None:  # noqa: B027  # most have nothing to be closed
        """The consumer is closed; :meth:`load` begins anew."""
