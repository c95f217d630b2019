"""Events of a client for its application: in the log, and for a function of the application."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from waltz.common.ids import Endpoint

logger = logging.getLogger(__name__)

Kind: TypeAlias = Literal["connected", "lost", "moved", "conflict", "behind"]

_LEVELS: dict[Kind, int] = {
    "connected": logging.INFO,
    "lost": logging.INFO,
    "moved": logging.INFO,
    "conflict": logging.DEBUG,
    "behind": logging.WARNING,
}


@dataclass(frozen=True, slots=True)
class ClientEvent:
    """An event of a client; ``str(event)`` is its line in the log of ``waltz.client.events``.

    ``kind`` is one of

    * ``"connected"``: the connection to the server at ``endpoint`` is established;
    * ``"lost"``: that connection broke, for the reason in ``error``, and is being made again;
    * ``"moved"``: the partition ``partition_id`` has another server, ``endpoint``;
    * ``"conflict"``: an append to ``partition_id`` was refused because a lock was changed, at the latest by
      ``transaction_id`` (-1 if the server lost count);
    * ``"behind"``: what reads or applies ``partition_id`` has been far behind the log for a while, at last by ``count``
      transactions, and came no nearer; with a ``count`` of 0 it has caught up.

    Examples:
        ```python
        def on_event(event: waltz.ClientEvent) -> None:
            if event.kind == "behind":
                print("partition", event.partition_id, "is", event.count, "transactions behind:", event)


        async with waltz.connect(cluster, on_event=on_event) as client:
            await client.append(0, b"hello")
        ```
    """

    kind: Kind
    text: str
    partition_id: int | None = None
    endpoint: Endpoint | None = None
    transaction_id: int | None = None
    count: int | None = None
    error: Exception | None = None

    def __str__(self) -> str:
        return self.text


OnEvent: TypeAlias = Callable[[ClientEvent], None]
"""The application's function for events. Called on the loop of the client, so it must not block; errors are logged."""


class Events:
    """Reports events to the log and, if there is one, to the application's function."""

    def __init__(self, on_event: OnEvent | None = None) -> None:
        self._on_event = on_event

    def connected(self, endpoint: Endpoint) -> None:
        """A connection is established."""
        self._tell(ClientEvent("connected", f"connected to {endpoint}", endpoint=endpoint))

    def lost(self, endpoint: Endpoint, error: Exception) -> None:
        """A connection broke."""
        text = f"the connection to {endpoint} is lost ({error}); connecting again"
        self._tell(ClientEvent("lost", text, endpoint=endpoint, error=error))

    def moved(self, partition_id: int, before: Endpoint, after: Endpoint) -> None:
        """A partition has another server."""
        text = f"partition {partition_id} has moved from {before} to {after}"
        self._tell(ClientEvent("moved", text, partition_id, after))

    def conflict(self, partition_id: int, transaction_id: int) -> None:
        """An append was refused. Such events may be very frequent."""
        if self._on_event is None and not logger.isEnabledFor(_LEVELS["conflict"]):
            return
        what = f"transaction {transaction_id}" if transaction_id >= 0 else "a transaction that is not known"
        text = f"partition {partition_id}: an append was refused, because {what} changed a lock of it"
        self._tell(ClientEvent("conflict", text, partition_id, transaction_id=transaction_id))

    def behind(self, partition_id: int, count: int) -> None:
        """A partition is read or applied more slowly than it is written."""
        text = f"partition {partition_id} is read or applied too slowly: {count} transactions behind the log"
        self._tell(ClientEvent("behind", text, partition_id, count=count))

    def caught_up(self, partition_id: int) -> None:
        """The partition has caught up."""
        text = f"partition {partition_id} has caught up with the log"
        self._tell(ClientEvent("behind", text, partition_id, count=0), logging.INFO)

    def _tell(self, event: ClientEvent, level: int | None = None) -> None:
        logger.log(_LEVELS[event.kind] if level is None else level, "%s", event)
        if self._on_event is not None:
            try:
                self._on_event(event)
            except Exception:
                logger.exception("on_event failed for: %s", event)


class Lagging:
    """Decides which partitions are behind: those with a large lag at two looks, no smaller at the second one.

    A partition whose lag shrinks is catching up, like every reader that has begun at the beginning of the log.
    """

    def __init__(self, events: Events, limit: int) -> None:
        self._events = events
        self._limit = limit
        self._large: dict[int, int] = {}
        """The lags that were large at the last look."""
        self._told: set[int] = set()

    def look(self, lags: dict[int, int]) -> None:
        """``lags`` are the numbers of transactions, by partition, that are in the log and not read or applied."""
        large = {partition_id: lag for partition_id, lag in lags.items() if lag >= self._limit}
        slow = {partition_id for partition_id, lag in large.items() if lag >= self._large.get(partition_id, lag + 1)}
        for partition_id in sorted(slow - self._told):
            self._events.behind(partition_id, lags[partition_id])
        self._told |= slow
        for partition_id in sorted(self._told):
            lag = lags.get(partition_id)
            if lag is None or lag <= self._limit // 2:
                self._told.discard(partition_id)
                if lag is not None:
                    self._events.caught_up(partition_id)
        self._large = large
