"""Counts refused requests and logs them, without a flood: as often as the audit log has lines of their own for them."""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from waltz.common.access import Right
from waltz.common.acl.audit import Audit, Event, Outcome

logger = logging.getLogger(__name__)

MAX_COUNTED: Final = 1000
"""Principals whose refusals are counted; a further one takes the place of that with the fewest."""


class Tops:
    """Counts what was refused by principal, to tell the greatest."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[bool, int]] = {}

    def add(self, principal: str, count: int, *, audited: bool) -> None:
        """Count requests that were refused, or passed all the same (``audited``)."""
        counts = self._counts.get(principal)
        if counts is None:
            if len(self._counts) >= MAX_COUNTED:
                del self._counts[min(self._counts, key=lambda each: sum(self._counts[each].values()))]
            counts = self._counts[principal] = {False: 0, True: 0}
        counts[audited] += count

    def top(self, size: int) -> list[tuple[str, int, int]]:
        """The principals with the most refused requests, each with those that were refused and those that passed."""
        found = [(principal, counts[False], counts[True]) for principal, counts in self._counts.items()]
        return sorted(found, key=lambda each: (-each[1] - each[2], each[0]))[:size]


class Refusals:
    """The refusals of a node, in the modes "audit" and "enforce"."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        audit.on_folded = _log_folded
        self._counts = {(right, audited): 0 for right in Right for audited in (False, True)}
        self.tops = Tops()
        """The same by principal."""

    def counts(self) -> Iterable[tuple[tuple[str, str], int]]:
        """Number of refused requests by right, and whether they passed all the same (audit)."""
        for (right, audited), count in self._counts.items():
            yield (right.name.lower(), "audit" if audited else "enforce"), count

    def add(
        self,
        principal: str,
        right: Right,
        places: Sequence[int | None],
        explain: Callable[[], str],
        peer: str,
        count: int,
        *,
        audited: bool,
    ) -> None:
        """Count refused requests of a peer, and note them: each concerns these partitions, or the node (``None``).

        ``explain`` makes the reason. To be called on the loop.
        """
        self._counts[right, audited] += count
        self.tops.add(principal, count, audited=audited)
        outcome = Outcome.WOULD_REFUSE if audited else Outcome.REFUSED
        event = Event(principal, right.name.lower(), right, outcome, peer)
        text = self._audit.note(event, places, explain, count)
        if text is not None:
            verb = "audit: would refuse" if audited else "refused"
            logger.warning("%s: %s%s", verb, text, f" (from {peer})" if peer else "")


def _log_folded(principal: str, count: int) -> None:
    logger.warning("%d more refusals like these of principal %r were left out", count, principal)
