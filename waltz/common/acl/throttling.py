"""The quotas at one server: which holds for whom, what is done about it, and what is counted."""

import logging
import shlex
import weakref
from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from waltz.common.access import Passage, Right
from waltz.common.acl.audit import OVER_QUOTA, Audit, Event, Outcome
from waltz.common.acl.document import Mode, Quota
from waltz.common.acl.quotas import Share, Usage, share_of
from waltz.common.acl.refusals import Tops
from waltz.common.acl.rules import Rules

logger = logging.getLogger(__name__)

_TELL_INTERVAL_S: Final = 60.0
_FORGET_FROM: Final = 1000
"""Number of usages from which idle ones are forgotten."""


class Held(NamedTuple):
    """A quota that holds for a principal at a partition."""

    quota: Quota
    usage: Usage
    mode: Mode
    """What happens to appends that exceed it: not ``off``."""


class Throttles:
    """The quotas of all principals at one server."""

    def __init__(self, audit: Audit) -> None:
        """Without rules there are no quotas; see :meth:`apply`."""
        self.top = Tops()
        """Appends refused by quotas, by principal."""
        self._audit = audit
        self._rules: Rules | None = None
        self._version = -1
        self._owned = 0
        self._usages: dict[tuple[Quota, str], Usage] = {}
        self._forget_at = _FORGET_FROM
        self._throttles: weakref.WeakSet[PrincipalThrottle] = weakref.WeakSet()
        self._counts = {(action, mode): 0 for action in ("delayed", "refused") for mode in (Mode.AUDIT, Mode.ENFORCE)}

    def counts(self) -> Iterable[tuple[tuple[str, str], int]]:
        """Number of appends by what was done about them, or would have been, and by mode."""
        for (action, mode), count in self._counts.items():
            yield (action, mode.value), count

    def apply(self, version: int, rules: Rules) -> None:
        """Use the quotas of these rules from now on. What was used of a quota that stays remains used."""
        self._rules, self._version = rules, version
        quotas = set(rules.document.quotas)
        self._usages = {key: usage for key, usage in self._usages.items() if key[0] in quotas}
        self._set_shares()
        self._clear()

    def owns(self, partition_ids: Collection[int]) -> None:
        """The server owns these partitions now."""
        self._owned = sum(1 << partition_id for partition_id in set(partition_ids))
        self._set_shares()

    def throttle_of(self, principal: str, *, unproved: bool) -> "PrincipalThrottle | None":
        """The quotas of a principal; ``None`` if it has none. For ``unproved`` they hold in every mode."""
        if self._rules is None or not self._rules.quotas_of(principal):
            return None
        throttle = PrincipalThrottle(self, principal, unproved=unproved)
        self._throttles.add(throttle)
        return throttle

    def held(self, principal: str, partition_id: int, now_s: float, *, unproved: bool) -> Held | None:
        """The quota of a principal at a partition; ``None`` if none holds there, as in the mode ``off``."""
        if self._rules is None or (quota := self._rules.quota(principal, partition_id)) is None:
            return None
        mode = Mode.ENFORCE if unproved else self._rules.mode(partition_id)
        if mode is Mode.OFF:
            return None
        usage = self._usages.get((quota, principal))
        if usage is None:
            if len(self._usages) >= self._forget_at:
                self._forget_idle(now_s)
            usage = self._usages[quota, principal] = Usage(quota, self._share(quota))
        return Held(quota, usage, mode)

    def note(
        self, principal: str, partition_id: int, mode: Mode, peer: str, text: str, refused: int, delayed: int
    ) -> None:
        """Count and log what exceeds a quota."""
        self._counts["delayed", mode] += delayed
        if not refused:
            return
        audited = mode is Mode.AUDIT
        self._counts["refused", mode] += refused
        self.top.add(principal, refused, audited=audited)
        outcome = Outcome.WOULD_REFUSE if audited else Outcome.REFUSED
        event = Event(principal, OVER_QUOTA, Right.APPEND, outcome, peer)
        if self._audit.note(event, (partition_id,), lambda: text, refused) is not None:
            verb = "audit: would refuse" if audited else "refused"
            logger.warning("%s: %s%s", verb, text, f" (from {peer})" if peer else "")

    def text(self, principal: str, quota: Quota, share: Share) -> str:
        """The reason against appends, and the remedy."""
        command = f"waltz acl set-quota {shlex.quote(quota.principal)} {shlex.quote(quota.partitions)}"
        return (
            f"principal {principal!r} appends more than it may: {quota}, of which this server has the share of"
            f" {share.owned} of {share.total} partitions (rules version {self._version}); append more slowly, or raise"
            f" the limit: {command}"
        )

    def _share(self, quota: Quota) -> Share:
        assert self._rules is not None, "there are quotas"
        return share_of(self._rules.quota_places(quota), self._owned)

    def _set_shares(self) -> None:
        for (quota, _), usage in self._usages.items():
            usage.set_share(self._share(quota))

    def _forget_idle(self, now_s: float) -> None:
        self._usages = {key: usage for key, usage in self._usages.items() if not usage.idle(now_s)}
        self._forget_at = max(2 * len(self._usages), _FORGET_FROM)
        self._clear()

    def _clear(self) -> None:
        for throttle in self._throttles:
            throttle.known.clear()


class PrincipalThrottle:
    """The quotas of one principal."""

    __slots__ = ("__weakref__", "_principal", "_throttles", "_told_s", "_unproved", "known")

    def __init__(self, throttles: Throttles, principal: str, *, unproved: bool) -> None:
        """Use :meth:`Throttles.throttle_of`."""
        self.known: dict[int, Held | None] = {}
        """What was looked up in the present rules, by partition."""
        self._throttles = throttles
        self._principal = principal
        self._unproved = unproved
        self._told_s = float("-inf")

    def take(self, partition_id: int, sizes: Sequence[int], peer: str, now_s: float) -> Passage | None:
        """As :class:`~waltz.common.access.Throttle` says."""
        try:
            found = self.known[partition_id]
        except KeyError:
            found = self._throttles.held(self._principal, partition_id, now_s, unproved=self._unproved)
            self.known[partition_id] = found
        if found is None:
            return None
        quota, usage, mode = found
        admitted, delay_s = usage.take(sizes, now_s)
        if not delay_s:
            return None
        text = self._throttles.text(self._principal, quota, usage.share)
        refused = len(sizes) - admitted
        self._throttles.note(self._principal, partition_id, mode, peer, text, refused, admitted)
        if not refused and now_s - self._told_s >= _TELL_INTERVAL_S:
            self._told_s = now_s
            logger.info("%s: %s", "audit: would delay" if mode is Mode.AUDIT else "delayed", text)
        return None if mode is Mode.AUDIT else Passage(admitted, delay_s, text)
