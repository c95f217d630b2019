"""The rights of the peers of one node. Connections keep the row of their peer, and the row changes with the rules."""

import shlex
import weakref
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from waltz.common.access import ANONYMOUS, Action, Proof, Right, not_permitted
from waltz.common.acl.audit import Audit, Event, Outcome
from waltz.common.acl.document import Mode
from waltz.common.acl.refusals import Refusals
from waltz.common.acl.rules import EVERY_RIGHT, Rules
from waltz.common.acl.throttling import PrincipalThrottle, Throttles

NO_RULES_TEXT: Final = (
    "this node has not read any access rules, so that only super principals may do anything; waltz acl init"
)


class Applied(NamedTuple):
    """The rules that a node applies."""

    version: int
    """The version of the znode with the rules, for people."""
    rules: Rules


MAX_TEXTS: Final = 100
"""Reasons that a row keeps: those of a peer's frequent requests."""


class Row:
    """The rights of one peer. :attr:`places` has a byte for each partition, and one for the node."""

    __slots__ = (
        "__weakref__",
        "_access",
        "lenient",
        "passing",
        "places",
        "principal",
        "proof",
        "reduced",
        "texts",
        "throttle",
        "unproved",
    )

    def __init__(self, access: "RuleAccess", principal: str, proof: str, *, unproved: bool) -> None:
        self.principal = principal
        self.proof = proof
        """How the principal is known, in brackets."""
        self.unproved = unproved
        """Whether the rules hold for the peer in every mode: before there were tokens, TLS did not let it in."""
        self.places = b""
        self.passing = b""
        """The same for what passes: an audit lets everything pass."""
        self.lenient = False
        """As :class:`~waltz.common.access.Rights` says."""
        self.reduced = False
        """As :class:`~waltz.common.access.Rights` says."""
        self.throttle: PrincipalThrottle | None = None
        self.texts: dict[tuple[Right, int | None], str] = {}
        """Reasons against requests under the present rules."""
        self._access = access

    def refusal(
        self, right: Right, partition_id: int | None, peer: str = "", count: int = 1, *, noted: bool = False
    ) -> str | None:
        """As :class:`~waltz.common.access.Rights` says."""
        places = self.places
        if partition_id is None:
            given = places[-1]
        elif 0 <= partition_id < len(places) - 1:
            given = places[partition_id]
        else:
            given = 0
        return None if given & right.bit else self._access.judge(self, right, partition_id, peer, count, noted=noted)

    def refusal_everywhere(self, right: Right, peer: str = "") -> str | None:
        """As :class:`~waltz.common.access.Rights` says."""
        bit, node = right.bit, len(self.places) - 1
        lacking: list[int | None] = [place for place, given in enumerate(self.places[:node]) if not given & bit]
        if not self.places[node] & bit:
            lacking.insert(0, None)
        return self._access.judge_all(self, right, lacking, peer) if lacking else None

    def refusal_anywhere(self, right: Right, peer: str = "") -> str | None:
        """As :class:`~waltz.common.access.Rights` says."""
        if any(given & right.bit for given in self.places):
            return None
        return self._access.judge(self, right, None, peer, 1, noted=False)

    def filtered(self, right: Right, partition_ids: Iterable[int], operation: str, peer: str = "") -> list[int]:
        """As :class:`~waltz.common.access.Rights` says."""
        listed = list(partition_ids)
        lacking = [partition_id for partition_id in listed if not self.permits(right, partition_id)]
        # Who may see nothing at all has been refused, or would be: that is noted already.
        noted = not any(given & right.bit for given in self.places)
        hidden = self._access.hide(self, right, lacking, operation, peer, noted=noted) if lacking else frozenset()
        return [partition_id for partition_id in listed if partition_id not in hidden]

    def permits(self, right: Right, partition_id: int | None) -> bool:
        """As :class:`~waltz.common.access.Rights` says."""
        places = self.places
        place = len(places) - 1 if partition_id is None else partition_id
        return 0 <= place < len(places) and bool(places[place] & right.bit)

    def acted(self, action: Action) -> None:
        """As :class:`~waltz.common.access.Rights` says."""
        outcome = Outcome.FAILED if action.error else Outcome.DONE
        right = None if self._access.is_super(self.principal) else action.right  # super principals need none
        event = Event(self.principal, action.operation, right, outcome, action.peer)
        self._access.audit.note(event, action.partition_ids or (None,), lambda: action.error)


class RuleAccess:
    """The rule of a node whose peers have the rights that the cluster's access rules give them.

    Before any rules are read, all requests are refused but those of super principals.
    """

    def __init__(
        self,
        partition_count: int,
        map_principal: Callable[[str], str],
        super_principals: Collection[str],
        audit: Audit | None = None,
    ) -> None:
        """``map_principal`` makes the principal of a certificate's subject; ``super_principals`` have all rights.

        Without ``audit`` there is no audit log, only messages.
        """
        self.audit = audit or Audit("", partition_count)
        self.refusals = Refusals(self.audit)
        self.throttles = Throttles(self.audit)
        self.applied: Applied | None = None
        self._partition_count = partition_count
        self._map_principal = map_principal
        self._super_principals = frozenset(super_principals)
        self._rows: weakref.WeakValueDictionary[tuple[str, Proof], Row] = weakref.WeakValueDictionary()

    def rights_of(self, principal: str, proof: Proof = Proof.CERTIFICATE) -> Row:
        """The rights of a peer; ``principal`` is a name in its certificate, that of its token, or "anonymous"."""
        row = self._rows.get((principal, proof))
        if row is None:
            if proof is Proof.TOKEN:
                name, text = principal, " (token)"
            elif proof is Proof.NONE:
                name, text = principal, " (neither a certificate nor a token)"
            else:
                name = self._map_principal(principal)
                text = " (no certificate)" if principal == ANONYMOUS else f" (certificate {principal})"
            row = self._rows[principal, proof] = Row(self, name, text, unproved=proof is Proof.NONE)
            row.places = self._places_of(row, self.applied)
            row.passing = _passing(row, row.places, self.applied)
            row.lenient = _audits(self.applied) and not row.unproved
            row.throttle = self._throttle_of(row)
        return row

    def counted_name(self, principal: str, proof: Proof) -> str | None:
        """The principal for whom a connection counts; ``None`` for a peer without one, for super principals, and for
        the cluster's nodes, which the rules permit to replicate."""
        row = self.rights_of(principal, proof)
        return None if row.principal == ANONYMOUS or row.permits(Right.CLUSTER, None) else row.principal

    def owns(self, partition_ids: Collection[int]) -> None:
        """As :class:`~waltz.common.access.Access` says."""
        self.throttles.owns(partition_ids)

    def is_super(self, principal: str) -> bool:
        """Whether a principal has all rights, whatever the rules say."""
        return principal in self._super_principals

    def apply(self, applied: Applied) -> Generator[None, None, Collection[Row]]:
        """Apply other rules from now on, all at once. What can take long is done before, in small pieces.

        The result has the rows that lack rights which they had before, and those whose requests an audit has let pass
        and does not any more.
        """
        made: dict[tuple[str, bool], tuple[bytes, bytes]] = {}
        while missing := [row for row in list(self._rows.values()) if (row.principal, row.unproved) not in made]:
            for row in missing:
                places = self._places_of(row, applied)
                made[row.principal, row.unproved] = places, _passing(row, places, applied)
                yield
        self.applied = applied
        self.throttles.apply(applied.version, applied.rules)
        lost = []
        for row in list(self._rows.values()):
            places, passing = made[row.principal, row.unproved]
            if _lacks(row.places, places) or _lacks(row.passing, passing):
                row.reduced = True
                lost.append(row)
            row.places, row.passing = places, passing
            row.lenient = _audits(applied) and not row.unproved
            row.throttle = self._throttle_of(row)
            row.texts = {}
        return lost

    def judge(
        self, row: Row, right: Right, partition_id: int | None, peer: str, count: int, *, noted: bool
    ) -> str | None:
        """Decide about requests that a row does not permit: by the mode, with the reason."""
        mode = self._mode(row, partition_id)
        if mode is Mode.OFF or (mode is Mode.AUDIT and noted):
            return None
        audited = mode is Mode.AUDIT

        def explain() -> str:
            return self._text(row, right, partition_id)

        self.refusals.add(row.principal, right, (partition_id,), explain, peer, count, audited=audited)
        return None if audited else explain()

    def judge_all(self, row: Row, right: Right, lacking: Sequence[int | None], peer: str) -> str | None:
        """Decide about one request that concerns several places, at which a row lacks the right: by the strictest of
        their modes, with the reason at the first of them.
        """
        by_mode: dict[Mode, list[int | None]] = {}
        for place in lacking:
            by_mode.setdefault(self._mode(row, place), []).append(place)
        mode = Mode.ENFORCE if Mode.ENFORCE in by_mode else Mode.AUDIT
        places = by_mode.get(mode)
        if places is None:
            return None
        first = places[0]

        def explain() -> str:
            return self._text(row, right, first)

        self.refusals.add(row.principal, right, places, explain, peer, 1, audited=mode is Mode.AUDIT)
        return None if mode is Mode.AUDIT else explain()

    def hide(
        self, row: Row, right: Right, lacking: Sequence[int], operation: str, peer: str, *, noted: bool
    ) -> Collection[int]:
        """Decide which partitions are left out of a list, of those to which a row lacks the right: by their modes."""
        by_mode: dict[Mode, list[int]] = {}
        for partition_id in lacking:
            by_mode.setdefault(self._mode(row, partition_id), []).append(partition_id)
        for mode, outcome in ((Mode.ENFORCE, Outcome.FILTERED), (Mode.AUDIT, Outcome.WOULD_FILTER)):
            places = by_mode.get(mode, [])
            if places and not noted:
                event = Event(row.principal, operation, right, outcome, peer)
                self.audit.note(event, places, partial(self._text, row, right, places[0]))
        return frozenset(by_mode.get(Mode.ENFORCE, ()))

    def _mode(self, row: Row, partition_id: int | None) -> Mode:
        if self.is_super(row.principal):  # the partition does not exist
            return Mode.OFF
        if row.unproved or self.applied is None:
            return Mode.ENFORCE
        return self.applied.rules.mode(partition_id)

    def _text(self, row: Row, right: Right, partition_id: int | None) -> str:
        text = row.texts.get((right, partition_id))
        if text is None:
            applied = self.applied
            reason = NO_RULES_TEXT if applied is None else _reason(applied, row.principal, right, partition_id)
            text = f"{not_permitted(row.principal, right, partition_id, row.proof)}: {reason}"
            if partition_id is None or 0 <= partition_id < self._partition_count:
                if len(row.texts) >= MAX_TEXTS:
                    row.texts.clear()
                row.texts[right, partition_id] = text
        return text

    def _throttle_of(self, row: Row) -> PrincipalThrottle | None:
        if self.is_super(row.principal):
            return None
        return self.throttles.throttle_of(row.principal, unproved=row.unproved)

    def _places_of(self, row: Row, applied: Applied | None) -> bytes:
        if self.is_super(row.principal):
            return bytes([EVERY_RIGHT]) * (self._partition_count + 1)
        if applied is None:
            return bytes(self._partition_count + 1)
        return applied.rules.row(row.principal, with_modes=not row.unproved)


def _passing(row: Row, places: bytes, applied: Applied | None) -> bytes:
    """What passes of a peer's requests with these rights: one byte for each place."""
    if applied is None or row.unproved or not applied.rules.audits:
        return places
    passing = int.from_bytes(places, "big") | int.from_bytes(applied.rules.audited_row, "big")
    return passing.to_bytes(len(places), "big")


def _lacks(before: bytes, after: bytes) -> bool:
    """Whether some right is missing that was there before."""
    return bool(int.from_bytes(before, "big") & ~int.from_bytes(after, "big"))


def _audits(applied: Applied | None) -> bool:
    """Whether some requests without their right pass and are noted."""
    return applied is not None and applied.rules.audits


def _reason(applied: Applied, principal: str, right: Right, partition_id: int | None) -> str:
    """The reason against a request, and the command that gives the right or explains the refusal."""
    decision = applied.rules.decide(principal, right, partition_id)
    verb = "grant" if decision.rule is None else "explain"
    place = "'*'" if partition_id is None else str(partition_id)
    command = f"waltz acl {verb} {shlex.quote(principal)} {right.name.lower()} {place}"
    return f"{decision.reason} (rules version {applied.version}); {command}"
