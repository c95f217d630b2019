"""The pace of renewals of a session for the sake of a replica that the present session must leave out. Pure.

A storage that regularly takes too long is barred, admitted by the next session, and barred again. Each renewal costs
the appends of the partition a pause. So the intervals between admissions grow while the storage does not stay (rule
S8).
"""

from collections.abc import Collection

MAX_INTERVAL_S = 600.0


class ReadmissionPacer:
    """The pace for one storage, from its first exclusion until it has joined. Lives longer than a session."""

    __slots__ = ("_due_s", "_interval_s")

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._due_s = float("-inf")

    def admit(self, now_s: float) -> bool:
        """Whether a session may be begun for the storage now. If so, the next one has to wait, longer each time."""
        if now_s < self._due_s:
            return False
        self._due_s = now_s + self._interval_s
        self._interval_s = min(self._interval_s * 2, MAX_INTERVAL_S)
        return True


class Readmissions:
    """The paces of all storages of a partition."""

    __slots__ = ("_interval_s", "_pacers")

    def __init__(self, interval_s: float) -> None:
        """``interval_s`` is the first pause between two sessions for the sake of the same storage."""
        self._interval_s = interval_s
        self._pacers: dict[str, ReadmissionPacer] = {}

    def admit(self, storage: str, now_s: float) -> bool:
        """Whether a session may be begun now for this storage."""
        pacer = self._pacers.get(storage)
        if pacer is None:
            pacer = self._pacers[storage] = ReadmissionPacer(self._interval_s)
        return pacer.admit(now_s)

    def joined(self, storage: str) -> None:
        """Note that the storage was admitted, and follows its session."""
        self._pacers.pop(storage, None)

    def keep(self, storages: Collection[str]) -> None:
        """Forget all other storages."""
        self._pacers = {storage: pacer for storage, pacer in self._pacers.items() if storage in storages}
