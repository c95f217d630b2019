"""What a read over view nodes demands of their views. Pure."""

from waltz.common.ids import NO_TRANSACTION
from waltz.table.face.levels import AsOf, AtLeast, Present, ReadConsistency

Demand = Present | AtLeast | str
"""A string is a level by its name, which the view node knows."""


def demand_of(fresh: bool, consistency: ReadConsistency | None) -> Demand:
    """What a read with these arguments demands. Raises ``ValueError`` and ``TypeError``."""
    if consistency is None:
        return Present.FRESH if fresh else Present.OWN
    if fresh:
        raise ValueError("a read has either fresh=True or a consistency, not both")
    if isinstance(consistency, AtLeast):
        if consistency.transaction_id < NO_TRANSACTION:
            raise ValueError(f"a transaction id must be at least -1, not {consistency.transaction_id}")
        return consistency
    if isinstance(consistency, AsOf):
        raise ValueError('view nodes have the present state only: for AsOf, open the table with view="local"')
    if not isinstance(consistency, str):
        raise TypeError(f"consistency must be the name of a level, or AtLeast, not {consistency!r}")
    if consistency in (Present.FRESH.value, Present.ANY.value):
        return Present(consistency)
    return consistency
