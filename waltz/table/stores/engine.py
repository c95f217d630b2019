"""The interface of a database that can serve as a store: four primitives over ordered key spaces."""

import enum
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence


class Space(enum.IntEnum):
    """The key spaces."""

    ROWS = 0
    BY_PREFIX = 1
    META = 2
    ZONES = 3


class Engine(ABC):
    """Bytes by bytes, in the order of plain comparison.

    An engine does not interpret its content. Every operation may raise :class:`~waltz.table.errors.StoreError`; damage
    is ``StoreDamagedError``, after which the store is rebuilt, unlike after a full disk.
    """

    @abstractmethod
    def get(self, space: Space, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of the keys."""

    @abstractmethod
    def page(
        self, space: Space, start: bytes, end: bytes | None, limit: int, *, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        """The first, or in reverse the last, ``limit`` entries of [``start``, ``end``). ``None`` is open."""

    @abstractmethod
    def write(self, puts: Iterable[tuple[Space, bytes, bytes]], deletes: Sequence[tuple[Space, bytes]] = ()) -> None:
        """Put entries and delete others: all or nothing, also when the process is killed."""

    def release_page(self) -> bool:
        """As of a store: let some of the memory go before the close, and say whether there is more."""
        return False

    @abstractmethod
    def close(self) -> None:
        """Close the files. May be called again."""
