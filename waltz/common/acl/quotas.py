"""The use of a quota at one server: what is admitted, what is refused, and how long a peer should wait. Pure.

Appends are counted, and what is counted fades at the server's share of the limit. An append is admitted while less than
:data:`BURST_S` of the share is counted. So within any window of T seconds at most the share of T + :data:`BURST_S`
seconds is admitted, and one append more: large appends never starve behind small ones.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from waltz.common.acl.document import Quota

BURST_S: Final = 1.0
"""The use that may come at once, in seconds of the limit."""

PRESSURE_S: Final = BURST_S / 2
"""The use above which peers are asked to wait, in seconds of the limit."""

_UNLIMITED_PER_S: Final = 1e300
"""Stands for no limit; infinity times no time would be no number."""


class Taken(NamedTuple):
    """What a quota says about appends."""

    admitted: int
    """The first of them; the others exceed the quota."""
    delay_s: float
    """The time until the use is below :data:`PRESSURE_S`; 0 if it is."""


class Usage:
    """The use that one principal makes of one quota at one server."""

    __slots__ = ("_appends", "_appends_per_s", "_at_s", "_bytes", "_bytes_per_s", "_quota", "share")

    def __init__(self, quota: Quota, share: "Share") -> None:
        self._quota = quota
        self._appends = self._bytes = self._at_s = 0.0
        self._appends_per_s = self._bytes_per_s = 1.0
        self.set_share(share)

    def set_share(self, share: "Share") -> None:
        """Use another share of the limit from now on. The same part of it is used as before."""
        self.share = share
        appends_per_s, bytes_per_s = self._appends_per_s, self._bytes_per_s
        self._appends_per_s = _part(self._quota.appends_per_s, share)
        self._bytes_per_s = _part(self._quota.bytes_per_s, share)
        self._appends *= self._appends_per_s / appends_per_s
        self._bytes *= self._bytes_per_s / bytes_per_s

    def take(self, sizes: Sequence[int], now_s: float) -> Taken:
        """Count the appends of these sizes, as far as they are admitted. The first that is not ends it: none overtakes
        another."""
        appends_per_s, bytes_per_s = self._appends_per_s, self._bytes_per_s
        passed_s, self._at_s = now_s - self._at_s, now_s
        appends, size_bytes = (
            max(self._appends - passed_s * appends_per_s, 0.0),
            max(self._bytes - passed_s * bytes_per_s, 0.0),
        )
        most_appends, most_bytes = appends_per_s * BURST_S, bytes_per_s * BURST_S
        admitted = 0
        for size in sizes:
            if appends >= most_appends or size_bytes >= most_bytes:
                break
            appends += 1
            size_bytes += size
            admitted += 1
        self._appends, self._bytes = appends, size_bytes
        return Taken(admitted, max(appends / appends_per_s - PRESSURE_S, size_bytes / bytes_per_s - PRESSURE_S, 0.0))

    def idle(self, now_s: float) -> bool:
        """Whether nothing is counted any more, as at the beginning."""
        return max(self._appends / self._appends_per_s, self._bytes / self._bytes_per_s) <= now_s - self._at_s


class Share(NamedTuple):
    """The part of a limit that a server has: that of the quota's partitions which it owns."""

    owned: int
    total: int


def share_of(partitions: int, owned: int) -> Share:
    """The share of a server. Both are sets of partitions, as integers in which the bits of the ids are set."""
    return Share((partitions & owned).bit_count(), partitions.bit_count())


def _part(limit: int | None, share: Share) -> float:
    """A share of a limit. A server without a partition is not asked, and must not divide by nothing."""
    return _UNLIMITED_PER_S if limit is None else limit * max(share.owned, 1) / share.total
