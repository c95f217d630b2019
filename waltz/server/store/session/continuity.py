"""Whether the store sessions of a log have followed each other, with none of another owner between them. Pure.

Session ids are taken by compare-and-set from the partition's metadata, each one more than the one before. So an owner
that takes an id knows that nobody has taken any since it took the one below. What it cannot be sure of - the
compare-and-set before was not answered, its generation was raised - counts as another owner.
"""


class Continuity:
    """Told of every session id that was taken for sure."""

    __slots__ = ("_broken", "_generation", "_session_id")

    def __init__(self) -> None:
        self._session_id = -1
        self._generation = -1
        self._broken = True

    def session_taken(self, session_id: int, generation: int) -> None:
        """A session id was taken, in a generation; the session may come to nothing."""
        if session_id != self._session_id + 1 or generation != self._generation:
            self._broken = True
        self._session_id = session_id
        self._generation = generation

    def session_opened(self) -> bool:
        """A session has opened; returns whether it follows the one that opened before it, and there was one."""
        unbroken = not self._broken
        self._broken = False
        return unbroken
