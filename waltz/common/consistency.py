"""Levels of consistency: what an acknowledgement of an append and a read say, and what a partition demands. Pure.

The commit and the feed rest on a quorum of the storages at every level. The level of an append only moves the
acknowledgement to the writer; that of a read says what the answer has. The names, and the tables of what goes with
what, are Amza's.
"""

from enum import IntEnum
from typing import Final


class Consistency(IntEnum):
    """A level, by its number in the client-server protocol. The name in small letters is that of Amza."""

    LEADER = 1
    LEADER_PLUS_ONE = 2
    LEADER_QUORUM = 3
    LEADER_ALL = 4
    QUORUM = 5
    WRITE_ALL_READ_ONE = 6
    WRITE_ONE_READ_ALL = 7
    NONE = 8

    @property
    def word(self) -> str:
        """The name in properties and arguments."""
        return self.name.lower()


_BY_WORD: Final = {level.word: level for level in Consistency}
_BELOW_QUORUM = (
    Consistency.LEADER,
    Consistency.LEADER_PLUS_ONE,
    Consistency.WRITE_ONE_READ_ALL,
    Consistency.NONE,
)
_OF_ALL = (Consistency.LEADER_ALL, Consistency.WRITE_ALL_READ_ONE)

_ACCEPTED: Final = {
    Consistency.LEADER: (
        Consistency.LEADER,
        Consistency.LEADER_PLUS_ONE,
        Consistency.LEADER_QUORUM,
        *_OF_ALL,
    ),
    Consistency.LEADER_PLUS_ONE: (Consistency.LEADER_PLUS_ONE, Consistency.LEADER_QUORUM, *_OF_ALL),
    Consistency.LEADER_QUORUM: (Consistency.LEADER_QUORUM, *_OF_ALL),
    Consistency.LEADER_ALL: _OF_ALL,
    Consistency.QUORUM: (Consistency.LEADER_QUORUM, Consistency.QUORUM, *_OF_ALL),
    Consistency.WRITE_ALL_READ_ONE: _OF_ALL,
    Consistency.WRITE_ONE_READ_ALL: tuple(Consistency),
    Consistency.NONE: tuple(Consistency),
}
"""The levels of appends that a partition takes, by its property ``consistency``."""


_FOR_ALL_WRITES: Final = (Consistency.WRITE_ONE_READ_ALL, Consistency.NONE)
_ACCEPTED_READS: Final = {
    Consistency.LEADER: (Consistency.LEADER, *_FOR_ALL_WRITES),
    Consistency.LEADER_PLUS_ONE: (Consistency.LEADER, Consistency.LEADER_PLUS_ONE, *_FOR_ALL_WRITES),
    Consistency.LEADER_QUORUM: (
        Consistency.LEADER,
        Consistency.LEADER_QUORUM,
        Consistency.QUORUM,
        *_FOR_ALL_WRITES,
    ),
    Consistency.LEADER_ALL: tuple(Consistency),
    Consistency.QUORUM: (Consistency.QUORUM, *_FOR_ALL_WRITES),
    Consistency.WRITE_ALL_READ_ONE: tuple(Consistency),
    Consistency.WRITE_ONE_READ_ALL: _FOR_ALL_WRITES,
    Consistency.NONE: tuple(Consistency),
}
"""The levels of reads that a partition takes, by its property ``consistency``."""


def accepts(demanded: Consistency, level: Consistency) -> bool:
    """Whether a partition whose property ``consistency`` is ``demanded`` takes an append at ``level``."""
    return level in _ACCEPTED[demanded]


def accepts_read(demanded: Consistency, level: Consistency) -> bool:
    """Whether a partition whose property ``consistency`` is ``demanded`` takes a read at ``level``."""
    return level in _ACCEPTED_READS[demanded]


def reads_everything(level: Consistency) -> bool:
    """Whether a read at this level has all that was committed before it; otherwise whatever the view has."""
    return level not in (*_OF_ALL, Consistency.NONE)


def storages_before_commit(level: Consistency) -> int | None:
    """The number of storages that have an append on disk when it is acknowledged, at a level below the quorum; ``None``
    at all other levels, where the commit comes first. Where a quorum is as large, the commit comes first, too."""
    if level is Consistency.LEADER_PLUS_ONE:
        return 2
    return 1 if level in _BELOW_QUORUM else None


def waits_for_all(level: Consistency) -> bool:
    """Whether an append at this level is acknowledged when all storages of the partition have it on disk."""
    return level is Consistency.LEADER_ALL or level is Consistency.WRITE_ALL_READ_ONE


def level_without_choice(demanded: Consistency) -> Consistency:
    """The level of an append whose writer has named none: what the partition demands, and at least the commit."""
    return Consistency.LEADER_QUORUM if demanded in _BELOW_QUORUM else demanded


def consistency_named(word: object) -> Consistency:
    """The level of this name. Raises ``ValueError``."""
    level = _BY_WORD.get(word) if isinstance(word, str) else None
    if level is None:
        raise ValueError(f"{word!r} is no level of consistency; there are {', '.join(_BY_WORD)}")
    return level


def level_of_append(word: object) -> Consistency:
    """The level of an append, by its name. Raises ``TypeError`` for anything but a string, ``ValueError`` for unknown
    levels."""
    if not isinstance(word, str):
        raise TypeError(f"consistency must be the name of a level, for example 'leader_all', not {word!r}")
    return consistency_named(word)


def level_from_commit(word: object) -> Consistency:
    """As :func:`level_of_append`, for callers that cannot be told that an acknowledgement is taken back: raises
    ``ValueError`` for levels below the quorum, too."""
    level = level_of_append(word)
    if level in _BELOW_QUORUM:
        raise ValueError(
            f"{level.word} is not possible here: an acknowledgement before the commit may be taken back, which only "
            "append, and a context of a client with callbacks, can be told. Use leader_quorum"
        )
    return level
