"""What a read of a table is of: all that is committed, at least a transaction, whatever is there, or a past state."""

from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple

from waltz.client.errors import ConsistencyRefusedError
from waltz.common.consistency import accepts_read, consistency_named, reads_everything
from waltz.common.ids import NO_TRANSACTION
from waltz.table.properties import PartitionProperties
from waltz.table.rows import TableRow
from waltz.table.view import KeyRange

READ_TIMEOUT_S = 30.0


class AtLeast(NamedTuple):
    """A read of a view that has applied a transaction, for example one that another program has written.

    ``timeout_s`` limits the wait for it, in seconds; ``DeadlineExceededError`` then.

    Examples:
        ```python
        written = await table.put(b"alice", b"100")
        await table.get([b"alice"], consistency=waltz.table.AtLeast(written))
        ```
    """

    transaction_id: int
    timeout_s: float = READ_TIMEOUT_S


class AsOf(NamedTuple):
    """A read of the state after a transaction; -1 is the empty table.

    Rows are hidden by the time of the newest row of that state, and by the present ages. Unless the view is just there,
    the log is read from its beginning to that transaction. ``timeout_s`` limits the wait for a transaction that the log
    does not have yet, in seconds; ``DeadlineExceededError`` then.

    Examples:
        ```python
        written = await table.put(b"alice", b"100")
        await table.get([b"alice"], consistency=waltz.table.AsOf(written))
        ```
    """

    transaction_id: int
    timeout_s: float = READ_TIMEOUT_S


ReadConsistency = str | AtLeast | AsOf
"""The level of a read: a name of Amza, ``"fresh"``, ``"any"``, or a transaction."""


class Present(Enum):
    """Reads of the present view."""

    OWN = "own"
    """It has the writes of the object that reads."""
    FRESH = "fresh"
    """It has all that was committed before the read."""
    ANY = "any"
    """Nothing is waited for."""


Read = Present | AtLeast | AsOf


class Answer(list[TableRow | None]):
    """The rows of a read, the transaction after which they were read, and how old that state may be.

    Examples:
        ```python
        answer: waltz.table.Answer = await table.get([b"alice"], consistency="any")
        print(answer[0], "as of transaction", answer.applied)
        ```
    """

    __slots__ = ("age_s", "applied", "stale")

    def __init__(
        self, rows: Iterable[TableRow | None], applied: int, *, age_s: float | None = None, stale: bool = False
    ) -> None:
        super().__init__(rows)
        self.applied = applied
        """The last transaction whose effect is in the answer; -1 for none."""
        self.age_s = age_s
        """So many seconds ago it was known for the last time that the view has all that is committed, by a fresh read
        of anybody over the same view; ``None``: it is not known."""
        self.stale = stale
        """Whether the view could not have what the read demanded, and ``stale_ok_after_s`` was given."""


def read_of(
    fresh: bool, consistency: ReadConsistency | None, properties: PartitionProperties, partition_id: int
) -> Read:
    """What a read with these arguments is of. Raises the errors of arguments, and ``ConsistencyRefusedError``."""
    if consistency is None:
        return Present.FRESH if fresh else Present.OWN
    if fresh:
        raise ValueError("a read has either fresh=True or a consistency, not both")
    if isinstance(consistency, AtLeast | AsOf):
        if consistency.transaction_id < NO_TRANSACTION:
            raise ValueError(f"a transaction id must be at least -1, not {consistency.transaction_id}")
        return consistency
    if not isinstance(consistency, str):
        raise TypeError(f"consistency must be the name of a level, AtLeast or AsOf, not {consistency!r}")
    if consistency in (Present.FRESH.value, Present.ANY.value):
        return Present(consistency)
    level = consistency_named(consistency)
    demanded = consistency_named(properties.consistency)
    if properties.require_consistency and not accepts_read(demanded, level):
        raise ConsistencyRefusedError(
            partition_id,
            level.word,
            f"its property consistency={demanded.word} does not go with reads at {level.word}",
            effect="nothing was read",
        )
    return Present.FRESH if reads_everything(level) else Present.ANY


def level_of_several(consistency: ReadConsistency | None) -> str | None:
    """The level of a read of several partitions. Raises ``TypeError`` for a transaction, which is of one partition."""
    if consistency is None or isinstance(consistency, str):
        return consistency
    raise TypeError(
        f"a read of several partitions has the name of a level, not {consistency!r}: ids are of one partition"
    )


def within(ranges: Iterable[KeyRange] | None) -> Callable[[bytes], bool]:
    """Tells whether a joined key is in one of the ranges; ``None`` is all keys."""
    if ranges is None:
        return lambda _joined: True
    bounds = [each.bounds() for each in ranges]
    return lambda joined: any(start <= joined < end for start, end in bounds)
