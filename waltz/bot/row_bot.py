"""Base of the bots that know the possible values of each row."""

from collections.abc import Mapping, Sequence

from waltz.bot.bot import Bot
from waltz.bot.prover import Prover
from waltz.common.metrics.registry import Json


class RowBot(Bot):
    """Base class: writes a fixed set of keys through a prover."""

    def __init__(self, prover: Prover, keys: Sequence[str], operations: int | None) -> None:
        """``operations``: the number of operations until the end; ``None``: no end."""
        super().__init__(prover.journal, prover.troubles)
        self.prover = prover
        self._keys = keys
        self._operations = operations
        self._is_known = False

    @property
    def valid(self) -> Mapping[str, Json]:
        return self.journal.expected.valid

    async def check(self) -> None:
        if self._is_known:
            for process in range(self.prover.processes):
                await self.prover.scan(process)

    async def _begin(self) -> None:
        """Delete all rows, so that the value of every row is known."""
        self._is_known = False
        await self.prover.delete_all(self._keys)
        self._is_known = True

    async def _begin_anew_if_full(self) -> None:
        if self.journal.is_full:
            self.journal.begin_anew()
            await self._begin()
