"""The contract of a store for a consumer's positions."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import NamedTuple


class Move(NamedTuple):
    """A change of a position; both values are ids of transactions, and -1 is before the first one.

    Examples:
        ```python
        positions = waltz.SqlitePositions(f"{directory}/mails.sqlite", "mails")
        cluster_key = await client.cluster_key()
        await positions.load(cluster_key, [0])
        await positions.save(cluster_key, {0: waltz.Move(before=None, after=1)})  # begin behind transaction 1
        ```
    """

    before: int | None
    """The present position; ``None``: there is none."""
    after: int
    """The new position."""
    request_id: bytes = b""
    """The request id of the transaction ``after``, from its record; empty if it is not known."""


class PositionStore(ABC):
    """Keeps, for each partition, the id of the last transaction that a consumer is done with.

    Positions belong to the logs of one cluster, named by its key, and to one consumer, or to the instances that share
    its partitions. They are changed by compare-and-set, so that of two instances that believe a partition to be theirs
    one gets an error: nothing moves on from a position that is not provably the consumer's own.
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
        """The stored positions in these partitions.

        Raises ``PositionsError`` when they are of another cluster, damaged, or in use.
        """

    @abstractmethod
    async def save(self, cluster_key: str, moves: Mapping[int, Move]) -> None:
        """Change positions, by partition; they are safe when this returns.

        A position that is ``after`` already counts as saved. A store with a place for it keeps the ``request_id`` of a
        move, too. Raises ``PositionConflictError`` for partitions with any other position: nothing is saved for these.
        """

    def request_id(self, partition_id: int) -> bytes:
        """The request id that was stored with the last loaded position; empty if there is none.

        A consumer compares it with the log's: the log may have been restored from a backup, and have another
        transaction with that id by now. Without a stored request id there is no comparison.
        """
        return b""

    def take_conflicts(self) -> Collection[int]:
        """The partitions with conflicts that :meth:`save` has not reported; each is reported once.

        The consumer reads them anew after their stored positions.
        """
        return ()

    async def close(self) -> None:  # noqa: B027  # most have nothing to be closed
        """The consumer is closed; :meth:`load` begins anew."""
