"""How far, and for how long, a mirror is behind its source. Pure."""

from typing import NamedTuple


class Lag(NamedTuple):
    """What the target of one partition lacks."""

    transactions: int
    behind_since_ms: int | None
    """When the first of them was committed, in milliseconds since the epoch; ``None``: nothing is missing."""

    def age_ms(self, now_ms: int) -> int:
        """For how long the first of them is committed."""
        return 0 if self.behind_since_ms is None else max(now_ms - self.behind_since_ms, 0)


NO_LAG = Lag(0, None)


def lag_of(source_mark: int, mirrored_id: int, commit_ms: int | None, before: Lag, now_ms: int) -> Lag:
    """The lag after a look at both logs.

    Args:
        source_mark: The last committed transaction of the source.
        mirrored_id: That of the target.
        commit_ms: When the transaction behind ``mirrored_id`` was committed in the source, if that is known.
        before: The lag at the look before, which tells a time where the source tells none.
        now_ms: The present time.
    """
    count = source_mark - mirrored_id
    if count <= 0:
        return NO_LAG
    if commit_ms is not None:
        return Lag(count, commit_ms)
    return Lag(count, now_ms if before.behind_since_ms is None else before.behind_since_ms)
