"""The audit log: who asked for what, from where, with which outcome, as lines of JSON in the fields of OCSF.

A line is about a refusal, an administrative action, a fence, a change of the rules, or a refused token; never about
what was stored, and with no part of a token but the principal in it. The first events of a principal within a minute
have lines of their own; others, and all repetitions, are folded into one line for each operation and outcome at the end
of the minute, with their number and their partitions.
"""

import asyncio
import json
from collections.abc import Callable, Generator, Iterable
from enum import StrEnum
from typing import Final, NamedTuple

from waltz.common.access import Right
from waltz.common.partition_ids import id_ranges
from waltz.common.pieces import at_once, in_turns
from waltz.common.tasks import owned
from waltz.common.version import installed_version
from waltz.common.wall_clock import now_ms

WINDOW_S: Final = 60.0
MAX_LINES: Final = 20
"""Events of one principal with lines of their own in a window."""
MAX_PRINCIPALS: Final = 1000
"""Principals with lines of their own in a window. The events of all others have one line together."""
MAX_CLAIMED: Final = 100
"""The same for the principals that refused tokens claim to be of: whoever reaches a port can claim any number."""

NODE: Final = "node"
"""Stands for the node itself among partitions."""

OVER_QUOTA: Final = "append over quota"
"""The operation of appends that the rules permit and a quota refuses."""

OCSF_VERSION: Final = "1.3.0"
_CATEGORY, _CLASS = 6, 6003
"""Application activity, API activity."""
_TOKEN_CATEGORY: Final = 3
TOKEN_CLASS: Final = 3002
"""Identity and access management, authentication: the class of refused tokens."""
_LOGON, _OTHER_PROTOCOL = 1, 99
_MAX_PORT: Final = 65_535


class Outcome(StrEnum):
    """What became of a request."""

    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"
    """It was not executed, since its principal lacks the right."""
    WOULD_REFUSE = "would refuse"
    """It was executed, and will be refused when the rules are enforced."""
    FILTERED = "filtered"
    """It was for a list, which was told without the partitions to which its principal lacks the right."""
    WOULD_FILTER = "would filter"
    """The list was told as a whole, and will be filtered when the rules are enforced."""


class _Ocsf(NamedTuple):
    status: str
    status_id: int
    action: str
    action_id: int
    severity: str
    severity_id: int


_OCSF: Final = {
    Outcome.DONE: _Ocsf("Success", 1, "Allowed", 1, "Informational", 1),
    Outcome.FAILED: _Ocsf("Failure", 2, "Allowed", 1, "Low", 2),
    Outcome.REFUSED: _Ocsf("Failure", 2, "Denied", 2, "Medium", 3),
    Outcome.WOULD_REFUSE: _Ocsf("Success", 1, "Observed", 3, "Low", 2),
    Outcome.FILTERED: _Ocsf("Success", 1, "Modified", 4, "Informational", 1),
    Outcome.WOULD_FILTER: _Ocsf("Success", 1, "Observed", 3, "Informational", 1),
}

_ACTIVITIES: Final = {
    Right.APPEND: ("Create", 1),
    Right.READ: ("Read", 2),
    Right.METADATA: ("Read", 2),
    Right.DESCRIBE: ("Read", 2),
}


class Event(NamedTuple):
    """What is told about a request, beside the partitions."""

    principal: str | None
    """``None`` for the node itself."""
    operation: str
    right: Right | None
    """The right that it needed."""
    outcome: Outcome
    peer: str
    """Where it came from, ``HOST:PORT``; empty if that is not known."""
    token_port: int | None = None
    """For a refused token the port of the node at which it was presented; ``principal`` is then only claimed."""


_Kind = tuple[str, Right | None, Outcome, int | None]


def _kind(event: Event) -> _Kind:
    return event.operation, event.right, event.outcome, event.token_port


def refused_token(claimed: str | None, peer: str, port: int) -> Event:
    """The event of a refused token: who it claims to be, where it came from, and the port of the node."""
    return Event(claimed, "present a token", None, Outcome.REFUSED, peer, port)


class _Folded:
    """Events of one kind without lines of their own."""

    __slots__ = ("begin_ms", "count", "end_ms", "place_ids", "with_node")

    def __init__(self, time_ms: int) -> None:
        self.count = 0
        self.place_ids: set[int] = set()
        self.with_node = False
        self.begin_ms = self.end_ms = time_ms

    def add(self, places: Iterable[int | None], count: int, time_ms: int) -> None:
        """Add further events."""
        self.count += count
        self.end_ms = time_ms
        for place in places:
            if place is None:
                self.with_node = True
            else:
                self.place_ids.add(place)

    @property
    def places(self) -> list[int | None]:
        """All partitions of the events, and ``None`` for the node."""
        return [*sorted(self.place_ids), *([None] if self.with_node else [])]


class _Window:
    """The events of one principal."""

    __slots__ = ("folded", "seen")

    def __init__(self) -> None:
        self.seen: set[tuple[_Kind, tuple[int | None, ...]]] = set()
        self.folded: dict[_Kind, _Folded] = {}


class _Windows:
    """The events of a time, by principal."""

    __slots__ = ("by_principal", "limit", "others")

    def __init__(self, limit: int) -> None:
        self.by_principal: dict[str | None, _Window] = {}
        self.others = _Window()
        self.limit = limit

    def of(self, principal: str | None) -> _Window:
        """The window of a principal, or that of all for whom there is no room."""
        window = self.by_principal.get(principal, self.others)
        if window is self.others and len(self.by_principal) < self.limit:
            window = self.by_principal[principal] = _Window()
        return window

    def take(self) -> "_Windows":
        """What is there, which is left to the caller."""
        taken = _Windows(self.limit)
        taken.by_principal, self.by_principal = self.by_principal, {}
        taken.others, self.others = self.others, _Window()
        return taken


class Audit:
    """The audit log of a node. To be used on its loop."""

    def __init__(
        self,
        node: str,
        partition_count: int,
        write: Callable[[str], None] | None = None,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        """Make the log of a node, such as ``server-HOST:PORT``; ``write`` takes its lines, without their ends.

        Without ``write`` it only says which events have lines of their own.
        """
        self.on_folded: Callable[[str, int], None] = _nothing
        """Called at the end of a window for each principal with folded refusals, with their number."""
        self._node = node
        self._partition_count = partition_count
        self._write = write
        self._clock_ms = clock_ms
        self._windows = _Windows(MAX_PRINCIPALS)
        self._claims = _Windows(MAX_CLAIMED)
        self._timer: asyncio.TimerHandle | None = None
        self._ending: Generator[None, None, None] = self._fold(_Windows(0))
        """Writes what was folded in the last window."""
        self._task: asyncio.Task[None] | None = None

    def note(
        self, event: Event, places: Iterable[int | None], explain: Callable[[], str], count: int = 1
    ) -> str | None:
        """Note equal events at partitions, or at the node (``None``).

        Partitions that do not exist are left out: a peer may name as many as it likes.

        Args:
            event: What they have in common.
            places: The partitions that each of them concerns.
            explain: Makes the reason, for people; only called for a line of its own.
            count: The number of events.

        Returns:
            The reason if the first of them got a line of its own, else ``None``.
        """
        existing = tuple(place for place in places if place is None or 0 <= place < self._partition_count)
        time_ms = self._clock_ms()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WINDOW_S, self._end_in_turns)
        windows = self._windows if event.token_port is None else self._claims
        window = windows.of(event.principal)
        kind = _kind(event)
        key = (kind, existing)
        alone = window is not windows.others and key not in window.seen and len(window.seen) < MAX_LINES
        detail = None
        if alone:
            window.seen.add(key)
            detail = explain()
            self._line(event, existing, 1, time_ms, time_ms, detail)
            count -= 1
        if count:
            if kind not in window.folded:
                window.folded[kind] = _Folded(time_ms)
            window.folded[kind].add(existing, count, time_ms)
        return detail

    def end_window(self) -> None:
        """Write at once what was folded until now, as at the end of the node."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at_once(self._ending)
        at_once(self._fold(self._windows.take(), self._claims.take()))

    def _end_in_turns(self) -> None:
        """The window is over: thousands of lines take other turns of the loop in between."""
        self._timer = None
        at_once(self._ending)
        self._ending = self._fold(self._windows.take(), self._claims.take())
        self._task = owned(in_turns(self._ending), "the end of a window of the audit log")

    def _fold(self, *ended: _Windows) -> Generator[None, None, None]:
        for windows in ended:
            for principal, window in windows.by_principal.items():
                refused = 0
                for (operation, right, outcome, port), folded in window.folded.items():
                    event = Event(principal, operation, right, outcome, "", port)
                    self._line(event, folded.places, folded.count, folded.begin_ms, folded.end_ms, "")
                    yield
                    if outcome in (Outcome.REFUSED, Outcome.WOULD_REFUSE) and port is None:
                        refused += folded.count
                if refused and principal is not None:
                    self.on_folded(principal, refused)
            for (operation, right, outcome, port), folded in windows.others.folded.items():
                event = Event(None, operation, right, outcome, "", port)
                detail = f"of principals beyond the first {windows.limit}"
                self._line(event, folded.places, folded.count, folded.begin_ms, folded.end_ms, detail)
                yield

    def _line(
        self, event: Event, places: Iterable[int | None], count: int, begin_ms: int, end_ms: int, detail: str
    ) -> None:
        if self._write is not None:
            fields = _common_fields(event, count, begin_ms, end_ms)
            if event.token_port is None:
                fields |= _request_fields(self._node, event, places)
            else:
                fields |= _token_fields(self._node, event)
            if detail:
                fields["status_detail"] = detail
            self._write(json.dumps(fields, separators=(",", ":")))


def _request_fields(node: str, event: Event, places: Iterable[int | None]) -> dict[str, object]:
    """A line in the fields of OCSF's class "API Activity"; what it lacks is below ``unmapped``."""
    activity, activity_id = ("Update", 3) if event.right is None else _ACTIVITIES.get(event.right, ("Update", 3))
    ours: dict[str, object] = {"outcome": event.outcome.value, "at": places_text(places)}
    if event.right is not None:
        ours["right"] = event.right.name.lower()
    return {
        "category_uid": _CATEGORY,
        "class_uid": _CLASS,
        "type_uid": 100 * _CLASS + activity_id,
        "activity_id": activity_id,
        "activity_name": activity,
        "actor": {} if event.principal is None else {"user": {"name": event.principal}},
        "api": {"operation": event.operation, "service": {"name": node}},
        "unmapped": ours,
    }


def _token_fields(node: str, event: Event) -> dict[str, object]:
    """A line in the fields of OCSF's class "Authentication"."""
    return {
        "category_uid": _TOKEN_CATEGORY,
        "class_uid": TOKEN_CLASS,
        "type_uid": 100 * TOKEN_CLASS + _LOGON,
        "activity_id": _LOGON,
        "activity_name": "Logon",
        "auth_protocol": "JSON Web Token",
        "auth_protocol_id": _OTHER_PROTOCOL,
        "user": {"name": "unknown" if event.principal is None else event.principal},
        "service": {"name": node},
        "dst_endpoint": {"port": event.token_port},
        "unmapped": {"outcome": event.outcome.value, "claimed": event.principal is not None},
    }


def _common_fields(event: Event, count: int, begin_ms: int, end_ms: int) -> dict[str, object]:
    """The fields of both classes."""
    found = _OCSF[event.outcome]
    fields: dict[str, object] = {
        "time": end_ms,
        "severity_id": found.severity_id,
        "severity": found.severity,
        "status_id": found.status_id,
        "status": found.status,
        "action_id": found.action_id,
        "action": found.action,
        "count": count,
        "metadata": {
            "version": OCSF_VERSION,
            "profiles": ["security_control"],
            "product": {"name": "Waltz", "vendor_name": "Waltz", "version": installed_version() or "unknown"},
        },
    }
    if end_ms != begin_ms:
        fields |= {"start_time": begin_ms, "end_time": end_ms}
    if event.peer:
        fields["src_endpoint"] = _endpoint(event.peer)
    return fields


def places_text(places: Iterable[int | None]) -> str:
    """Partitions and the node as text: ``0-3,7,node``."""
    listed = list(places)
    parts = [id_ranges((place for place in listed if place is not None), ",")]
    return ",".join(part for part in (*parts, NODE if None in listed else "") if part)


def _endpoint(peer: str) -> dict[str, object]:
    host, separator, port = peer.rpartition(":")
    if separator and port.isascii() and port.isdigit() and int(port) <= _MAX_PORT:
        return {"ip": host.strip("[]"), "port": int(port)}
    return {"name": peer}


def _nothing(principal: str, count: int) -> None:
    """Folded events need no call."""
