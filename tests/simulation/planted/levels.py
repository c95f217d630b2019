"""Bugs to plant in levels of consistency."""

from waltz.common.consistency import Consistency
from waltz.common.ids import NO_TRANSACTION
from waltz.server.partition.append_rule import AppendRule
from waltz.server.store.session.session import StoreSession


def stored_by_a_quorum(session: StoreSession) -> int:
    """What is committed counts as stored by all."""
    return session.high_water_mark


def stored_by_the_living(session: StoreSession) -> int:
    """A storage that is away, or was never heard of, does not count."""
    living = [replica.acked for replica in session._members if replica.live]
    return min([session.high_water_mark, *living], default=NO_TRANSACTION)


def nothing_is_demanded(rule: AppendRule, level: Consistency | None) -> str | None:
    """Nobody looks at the property."""
    return None
