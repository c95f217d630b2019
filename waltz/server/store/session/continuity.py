"""Checks that the store sessions of a log follow each other, without another owner between them. Pure.

Session ids are taken by compare-and-set from the metadata of the partition, each larger by one than the id before. So
if an owner takes two consecutive ids, no other owner has taken one in between. Any doubt, such as an unanswered
compare-and-set or a raised generation, counts as another owner.
"""


class Continuity:
    """Is told every session id that was certainly taken."""

    __slots__ = ("_broken", "_generation", "_session_id")

    def __init__(self) -> None:
        self._session_id = -1
        self._generation = -1
        self._broken = True

    def session_taken(self, session_id: int, generation: int) -> None:
        """Note that a session id was taken, in a generation. The session may never open."""
        if session_id != self._session_id + 1 or generation != self._generation:
            self._broken = True
        self._session_id = session_id
        self._generation = generation

    def session_opened(self) -> bool:
        """Note that a session has opened. Returns whether it directly follows another opened session of this owner."""
        unbroken = not self._broken
        self._broken = False
        return unbroken
