"""Rules from audit logs: the least ones that permit what was noted, and what other rules would have refused. Pure."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from waltz.common.access import Right
from waltz.common.acl.audit import NODE, OVER_QUOTA, TOKEN_CLASS, Outcome
from waltz.common.acl.document import ALL, RIGHTS, Rule, partition_spans
from waltz.common.acl.json_pieces import AclError
from waltz.common.acl.rules import IMPLIED, Decision, Rules
from waltz.common.partition_ids import id_ranges

Places = frozenset[int | None]
"""Partitions, and ``None`` for nodes."""


class Asked(NamedTuple):
    """Requests of one principal that need one right."""

    principal: str
    right: Right
    places: Places
    requests: int
    permitted: bool = False
    """Whether the rules of that time permitted them."""


class Refused(NamedTuple):
    """Requests that rules do not permit, with the decision on them."""

    principal: str
    right: Right
    places: Places
    decision: Decision
    requests: int
    """At most so many; a line of the audit log has one number for all of its partitions."""

    def __str__(self) -> str:
        rule = "" if self.decision.rule is None else f" ({self.decision.rule})"
        return (
            f"{self.principal}: {self.right.name.lower()} at {places_at(self.places, {})}:"
            f" {self.decision.reason}{rule}; {self.requests} requests at most"
        )


class Suggestion(NamedTuple):
    """What would permit the noted requests."""

    rules: list[Rule]
    denied: list[Refused]
    """Requests that a rule denies: no further rule permits them."""


def read_audit(lines: Iterable[str], where: str) -> Iterator[Asked]:
    """The requests that need a right, in the lines of an audit log.

    A last line without an end is still being written, and left out.

    Args:
        lines: The lines, with their ends.
        where: The file, for errors.

    Raises:
        AclError: A line is none of an audit log.
    """
    for number, line in enumerate(lines, 1):
        if not line.endswith("\n"):
            return
        try:
            fields = json.loads(line)
            asked = _asked(fields)
        except (ValueError, KeyError, TypeError, RecursionError, AclError) as error:
            raise AclError(f"{where}:{number}: no line of an audit log: {error!r}") from None
        if asked is not None:
            yield asked


def _asked(fields: Any) -> Asked | None:
    """The request of a line; ``None`` if the line is about something that needs no right."""
    if fields["class_uid"] == TOKEN_CLASS:  # its principal is only claimed
        return None
    ours, user = fields["unmapped"], fields["actor"].get("user")
    if user is None or "right" not in ours:
        return None
    if Outcome(ours["outcome"]) in (Outcome.FILTERED, Outcome.WOULD_FILTER):  # nobody has asked for what was left out
        return None
    refused = Outcome(ours["outcome"]) in (Outcome.REFUSED, Outcome.WOULD_REFUSE)
    permitted = not refused or fields["api"]["operation"] == OVER_QUOTA
    return Asked(str(user["name"]), RIGHTS[ours["right"]], _places(str(ours["at"])), int(fields["count"]), permitted)


def _places(text: str) -> Places:
    parts = [part for part in text.split(",") if part]
    ids = ",".join(part for part in parts if part != NODE)
    found: set[int | None] = {None} if NODE in parts else set()
    for first, end in partition_spans(ids, None, {}) if ids else ():
        found.update(range(first, end))
    return frozenset(found)


def replay(asked: Iterable[Asked], rules: Rules) -> list[Refused]:
    """The requests that rules refuse when they are enforced, except where their mode is off."""
    found: list[Refused] = []
    for (principal, right), (places, count) in sorted(_sums(asked).items()):
        row = rules.row(principal)
        by_rule: dict[int | None, tuple[Decision, set[int | None]]] = {}
        for place in places:
            index = rules.place(place)
            if index is not None and not row[index] & right.bit:
                decision = rules.decide(principal, right, place)
                by_rule.setdefault(decision.number, (decision, set()))[1].add(place)
        found += [
            Refused(principal, right, frozenset(refused), decision, count) for decision, refused in by_rule.values()
        ]
    return found


def suggest(asked: Iterable[Asked], rules: Rules, names: Mapping[str, str]) -> Suggestion:
    """The least rules that permit what others do not.

    Args:
        asked: The requests that were noted.
        rules: The rules that hold, or those that would be completed.
        names: Ids and ranges of partitions by name, which are used where they fit.
    """
    denied: list[Refused] = []
    needed: dict[str, dict[Right, set[int | None]]] = {}
    for refused in replay((each for each in asked if not each.permitted), rules):
        if refused.decision.rule is None:
            needed.setdefault(refused.principal, {}).setdefault(refused.right, set()).update(refused.places)
        else:
            denied.append(refused)
    everywhere = frozenset(range(rules.partition_count))
    named = {name: _named(text, rules.partition_count) for name, text in names.items()}
    found: list[Rule] = []
    for principal, by_right in sorted(needed.items()):
        for places, rights in _least(by_right, everywhere):
            listed = tuple(right for right in Right if right in rights)
            found.append(Rule(True, principal, listed, places_at(places, named)))
    return Suggestion(found, denied)


def places_at(places: Places, named: Mapping[str, Places]) -> str:
    """Partitions as in a rule: names that fit, and ranges; all for the nodes, which have no other text."""
    if None in places:
        return ALL
    left, parts = set(places), []
    for name, members in sorted(named.items(), key=lambda each: (-len(each[1]), each[0])):
        if members and members <= left:
            parts.append(name)
            left -= members
    ranges = id_ranges((place for place in left if place is not None), ",")
    return ",".join([*sorted(parts), *([ranges] if ranges else [])])


def _sums(asked: Iterable[Asked]) -> dict[tuple[str, Right], tuple[set[int | None], int]]:
    """Places and number of requests by principal and right."""
    places: dict[tuple[str, Right], set[int | None]] = {}
    counts: dict[tuple[str, Right], int] = {}
    for each in asked:
        key = each.principal, each.right
        places.setdefault(key, set()).update(each.places)
        counts[key] = counts.get(key, 0) + each.requests
    return {key: (places[key], counts[key]) for key in places}


def _named(text: str, partition_count: int) -> Places:
    return frozenset(place for first, end in partition_spans(text, partition_count, {}) for place in range(first, end))


def _least(by_right: Mapping[Right, set[int | None]], everywhere: Places) -> list[tuple[Places, set[Right]]]:
    """The rights of one principal, by places, in as few sets of places as possible."""
    wide: dict[Right, set[int | None]] = {
        right: {None, *everywhere} if None in places else set(places) for right, places in by_right.items()
    }
    for right, implied in IMPLIED.items():
        for each in implied:
            left = wide.get(each, set()) - wide.get(right, set())
            if each in wide and None not in left:
                wide[each] = left
    by_places: dict[Places, set[Right]] = {}
    for right, needed in wide.items():
        if needed:
            by_places.setdefault(frozenset(needed), set()).add(right)
    for places in sorted(by_places, key=len, reverse=True):
        parts = [each for each in by_places if each < places]
        if places == frozenset[int | None]().union(*parts):
            for part in parts:
                by_places[part] |= by_places[places]
            del by_places[places]
    return sorted(by_places.items(), key=lambda each: min(right.bit for right in each[1]))
