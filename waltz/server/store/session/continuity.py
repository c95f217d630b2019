"""Checks that the store sessions of a log follow each other, without another owner between them. Pure.

Session ids are taken by compare-and-set from the partition's metadata, each one more than the one before. So an owner
that takes an id knows that no other owner has taken one since it took the id below. Any doubt - an unanswered
compare-and-set, a raised generation - counts as another owner.
"""


class Continuity:
    """Gets every session id that was certainly taken."""

    __slots__ = ("_broken", "_generation", "_session_id")

    def __init__(self) -> None:
        self._session_id = -1
        self._generation = -1
        self._broken = True

    def session_taken(self, session_id: int, generation: int) -> None:
        """A session id was taken, in a generation; its session may never open."""
        if session_id != self._session_id + 1 or generation != self._generation:
            self._broken = True
        self._session_id = session_id
        self._generation = generation

    def session_opened(self) -> bool:
        """A session has opened; returns whether it follows another one of ours that had opened before."""
        unbroken = not self._broken
        self._broken = False
        return unbroken
