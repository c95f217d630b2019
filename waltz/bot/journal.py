"""Reports every operation of a bot, at its begin and at its end, to the checker and to the history."""

import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

from waltz.bot.expected import Deviation, Expected
from waltz.bot.history import Call, Event, Header, HistoryFile, Invoked, Returned

MAX_QUARANTINED = 1000
"""The largest number of kept deviations without a single key. Further deviations are reported and counted."""


class Journal:
    """The journal of one run of a bot."""

    def __init__(
        self, bot: str, cluster: str, partition_id: int, history: HistoryFile | None, tell: Callable[[Deviation], None]
    ) -> None:
        """``tell`` is called with each deviation when it is found."""
        self.run = secrets.token_hex(4)
        self.expected = Expected()
        self.operations = 0
        """The number of finished operations in the whole run."""
        self.unknown = 0
        self.deviations = 0
        """The number of deviations found in the whole run, including those before a reset."""
        self._bot = bot
        self._cluster = cluster
        self._partition_id = partition_id
        self._history = history
        self._tell = tell
        self._last_op = 0
        self._write(self._header())

    def begin(self, process: int, call: Call) -> int:
        """An operation of a client begins. Returns its number."""
        self._last_op += 1
        self._take(Invoked(type="invoke", op=self._last_op, process=process, time_ms=wall_ms(), call=call))
        return self._last_op

    def end(
        self,
        op: int,
        kind: Literal["ok", "fail", "info"],
        *,
        transaction: int | None = None,
        conflict: bool = False,
        stamp_ms: tuple[int, int] | None = None,
        rows: dict[str, tuple[str, int, int]] | None = None,
        error: BaseException | None = None,
    ) -> None:
        """An operation ends; the arguments are the fields of :class:`~waltz.bot.history.Returned`."""
        self.operations += 1
        self.unknown += kind == "info"
        self._take(
            Returned(
                type=kind,
                op=op,
                time_ms=wall_ms(),
                transaction=transaction,
                conflict=conflict,
                stamp_ms=stamp_ms,
                rows=rows,
                error=None if error is None else str(error) or type(error).__name__,
            )
        )

    def deviate(self, key: str, what: str) -> None:
        """Report a deviation that was found by other means."""
        self._found(Deviation(key, 0, 0, wall_ms(), what))

    @property
    def is_full(self) -> bool:
        """Whether the history is so large that a new one should be begun."""
        return self._history is not None and self._history.is_full

    def begin_anew(self) -> None:
        """Begin a new history without expectations. The caller then has to delete all rows."""
        self.expected = Expected()
        if self._history is not None:
            self._history.begin_anew()
            self._write(self._header())

    def _header(self) -> Header:
        return Header(
            type="header",
            format=1,
            bot=self._bot,
            run=self.run,
            cluster=self._cluster,
            partition=self._partition_id,
            began=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def _take(self, event: Invoked | Returned) -> None:
        self._write(event)
        for deviation in self.expected.take(event):
            self._found(deviation)

    def _found(self, deviation: Deviation) -> None:
        self.deviations += 1
        if len(self.expected.quarantine) < MAX_QUARANTINED:
            self.expected.quarantine.setdefault(deviation.key, deviation)
        self._tell(deviation)

    def _write(self, event: Event) -> None:
        if self._history is not None:
            self._history.append(event)


def wall_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
