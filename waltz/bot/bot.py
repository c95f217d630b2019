"""The interface of all bots, for the code that runs them and shows their state."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from waltz.bot.journal import Journal
from waltz.bot.troubles import Troubles
from waltz.common.metrics.registry import Json


class Bot(ABC):
    """A bot. It works until it is cancelled, or has done the requested number of operations."""

    def __init__(self, journal: Journal, troubles: Troubles) -> None:
        self.journal = journal
        self.troubles = troubles
        self.done = 0
        """The number of finished operations."""

    @property
    @abstractmethod
    def valid(self) -> Mapping[str, Json]:
        """The expected values of the table, by key."""

    @property
    @abstractmethod
    def counts(self) -> Mapping[str, int | str]:
        """Counts of the bot's work, by name."""

    @abstractmethod
    async def work(self) -> None:
        """Work from the beginning, as on a new table. Raises ``TableError`` when a table has stopped."""

    @abstractmethod
    async def check(self) -> None:
        """Compare the whole table with the expected values once, if these are known already.

        Raises ``WaltzError`` and ``TimeoutError``.
        """
