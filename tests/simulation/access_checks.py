"""What must hold of access rules and quotas: while they change, and whatever happens to nodes meanwhile.

The checks know what was written to ZooKeeper, by its transactions, and which of it each node has said that it applies.
From then on a node may decide by these rules, or by newer ones, and by no others.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.simulation.access_model import LimitedTo, Text, Verdict

BURST_S = 1.0
"""What a quota admits at once, in seconds of its limit, by the documentation."""

_ROUNDING = 1e-6
"""Clients that wait as long as they are told often come at the very moment at which there is room again."""

_NEVER = (-1, -1)
"""Stands for no rules at all."""

Place = tuple[int, int]
"""The transactions of ZooKeeper that wrote rules and names."""


@dataclass(slots=True)
class _Used:
    """What was admitted under a quota by one node, as far as it counts still."""

    appends: float = 0.0
    size_bytes: float = 0.0
    at_s: float = 0.0
    part: float = 0.0
    """The node's part of the limit."""


@dataclass(slots=True)
class _Sum:
    """What all servers have admitted under a quota, as far as it counts still, since its partitions have these owners.

    Each server admits an append while less than its part of a second is used, so one append of each of the others may
    exceed the limit.
    """

    appends: float = 0.0
    size_bytes: float = 0.0
    at_s: float = 0.0
    largest: dict[Hashable, int] = field(default_factory=dict)
    """The size of the largest append, by server."""


@dataclass(slots=True)
class _Node:
    """One run of a node."""

    said: Place = _NEVER
    """What it says that it applies, from when it begins to say so."""
    acted: Place = _NEVER
    """The same from when it has said so: feeds and sessions without a right have ended by then."""
    owned: frozenset[int] = frozenset()
    """What the server takes for its own where it computes its part of a quota."""
    server_id: int = -1
    told: frozenset[int] | None = None
    """The partitions that the server has last heard to be its own."""
    used: dict[LimitedTo, _Used] = field(default_factory=dict)
    noted: dict[tuple[str, int], int] = field(default_factory=dict)
    """Appends that the audit has noted, by principal and partition."""
    placed: dict[tuple[str, int], set[bytes]] = field(default_factory=dict)
    """Appends that got their place though the rules do not permit them."""


class AccessChecks:
    """Is told what happens, and calls ``fail`` when it must not."""

    def __init__(self, fail: Callable[[str], None], partition_count: int, super_principal: str) -> None:
        self.objections = 0
        """Requests that were refused, or that an audit has noted."""
        self._fail = fail
        self._count = partition_count
        self._super = super_principal
        self._rules: list[tuple[int, bytes]] = []
        self._names: list[tuple[int, bytes | None]] = [(0, None)]
        self._texts: dict[Place, Text] = {}
        self._nodes: dict[Hashable, _Node] = {}
        self._assigned: dict[int, frozenset[int]] = {}
        self._sums: dict[LimitedTo, _Sum] = {}

    # What is written and applied

    def rules_written(self, transaction: int, data: bytes) -> None:
        """ZooKeeper has other rules."""
        self._rules.append((transaction, data))

    def names_written(self, transaction: int, data: bytes | None) -> None:
        """ZooKeeper has other names of partitions."""
        self._names.append((transaction, data))

    def says(self, node: Hashable, place: Place) -> None:
        """A node begins to say that it applies these rules and names."""
        known = self._node(node)
        if not self._text(place).usable:
            self._fail(f"{node} says that it applies {place}, which cannot be used")
        if place[0] < known.said[0] or place[1] < known.said[1]:
            self._fail(f"{node} says that it applies {place} after {known.said}")
        known.said = place
        text = self._text(place)
        for quota in list(known.used):
            if not any(text.quota(quota.principal, partition_id) == quota for partition_id in quota.partitions):
                del known.used[quota]
                self._sums.pop(quota, None)

    def has_said(self, node: Hashable) -> None:
        """What a node has begun to say is known."""
        known = self._node(node)
        known.acted = known.said

    # Decisions

    def judged(
        self, node: Hashable, principal: str, right: str, partition_id: int | None, *, noted: bool, verdict: Verdict
    ) -> None:
        """A node has decided about a request; ``noted``: the audit had noted it before, and need not again."""
        self.objections += verdict is not Verdict.PASSES
        may = self._verdicts(self._node(node).said, principal, right, partition_id)
        if verdict in may or (noted and verdict is Verdict.PASSES and Verdict.NOTED in may):
            return
        self._fail(
            f"{node}: a request of {principal} to {right} at {partition_id} {verdict.value}; by the rules since "
            f"{self._node(node).said} it {' or '.join(sorted(each.value for each in may))}"
        )

    def noted_appends(self, node: Hashable, principal: str, partition_id: int, count: int) -> None:
        """The audit has noted appends."""
        noted = self._node(node).noted
        noted[principal, partition_id] = noted.get((principal, partition_id), 0) + count

    def placed(self, node: Hashable, principal: str, partition_id: int, req_ids: Iterable[bytes]) -> None:
        """Appends get their place in the order."""
        known = self._node(node)
        may = self._verdicts(known.said, principal, "append", partition_id)
        if may == {Verdict.REFUSED}:
            self._fail(
                f"{node} gives an append of {principal} its place in partition {partition_id}; the rules since "
                f"{known.said}, which it applies, refuse it"
            )
        if may == {Verdict.NOTED}:
            placed = known.placed.setdefault((principal, partition_id), set())
            placed.update(req_ids)
            noted = known.noted.get((principal, partition_id), 0)
            if len(placed) > noted:
                self._fail(
                    f"{node}: {len(placed)} appends of {principal} to partition {partition_id} got their place without "
                    f"their right; the audit has noted {noted}"
                )

    def served(self, node: Hashable, principal: str, partition_id: int, what: str, right: str = "read") -> None:
        """A node executes a request."""
        if self._verdicts(self._node(node).said, principal, right, partition_id) == {Verdict.REFUSED}:
            self._fail(
                f"{node}: {what} of partition {partition_id} for {principal}; the rules since {self._node(node).said}, "
                f"which it applies, do not permit that"
            )

    def goes_on(self, node: Hashable, principal: str, partition_id: int, what: str, right: str) -> None:
        """A node has something open for a principal that needs a right all the time."""
        acted = self._node(node).acted
        if acted != _NEVER and self._verdicts(acted, principal, right, partition_id) == {Verdict.REFUSED}:
            self._fail(
                f"{node}: {what} of partition {partition_id} for {principal} goes on; the rules since {acted}, which "
                "it says that it applies, have ended that"
            )

    # Quotas

    def assigned(self, servers: Mapping[int, Iterable[int]]) -> None:
        """ZooKeeper has other owners, by server id. A new owner begins with a whole burst."""
        before, self._assigned = self._assigned, {each: frozenset(owned) for each, owned in servers.items()}
        kept = (self._assigned[each] & owned for each, owned in before.items() if each in self._assigned)
        changed = set(range(self._count)).difference(*kept)
        self._sums = {quota: found for quota, found in self._sums.items() if changed.isdisjoint(quota.partitions)}

    def told(self, node: Hashable, server_id: int, partition_ids: Iterable[int]) -> None:
        """A server hears which partitions are its own."""
        known = self._node(node)
        known.server_id, known.told = server_id, frozenset(partition_ids)

    def owns(self, node: Hashable, partition_ids: Iterable[int]) -> None:
        """A server computes its parts of quotas by these partitions from now on. The used part of its burst is the same
        as before."""
        known = self._node(node)
        known.owned = frozenset(partition_ids)
        for quota, used in known.used.items():
            if part := self._part(known, quota):
                used.appends *= part / used.part
                used.size_bytes *= part / used.part
                used.part = part

    def admits(self, node: Hashable, principal: str, partition_id: int, sizes: Sequence[int], now_s: float) -> None:
        """A server takes appends that have arrived. In any T seconds it may take its part of T + 1 seconds, and one
        append: so it may take one as long as less than its part of a second is used."""
        known = self._node(node)
        if known.said == _NEVER:
            return
        text = self._text(known.said)
        quota = text.quota(principal, partition_id)
        mode = text.mode(partition_id)
        if quota is None or mode == "off":
            return
        used = known.used.setdefault(quota, _Used(at_s=now_s, part=self._part(known, quota)))
        passed_s, used.at_s = now_s - used.at_s, now_s
        appends_per_s, bytes_per_s = (
            None if limit is None else limit * used.part for limit in (quota.appends_per_s, quota.bytes_per_s)
        )
        used.appends = max(used.appends - passed_s * (appends_per_s or 0.0), 0.0)
        used.size_bytes = max(used.size_bytes - passed_s * (bytes_per_s or 0.0), 0.0)
        for size in sizes:
            limits = (used.appends, appends_per_s), (used.size_bytes, bytes_per_s)
            if mode == "audit" and any(_is_full(*each, rounding=-_ROUNDING) for each in limits):
                return  # it only would be refused, and does not count; in doubt it does not
            if any(_is_full(*each) for each in limits):
                self._fail(
                    f"{node} takes an append of {principal} to partition {partition_id}; {used.appends:.2f} appends and"
                    f" {used.size_bytes:.0f} bytes are used of {quota}, of which it has {used.part:.2f}"
                )
                return
            used.appends += appends_per_s is not None
            used.size_bytes += size if bytes_per_s is not None else 0
            if not self._add(node, quota, size, now_s):
                self._fail(
                    f"{node} takes an append of {principal} to partition {partition_id}; all servers together have "
                    f"taken more than {quota} permits"
                )
                return

    def _add(self, node: Hashable, quota: LimitedTo, size: int, now_s: float) -> bool:
        """Count an append for all servers together. Returns false if there is no room.

        What a server takes that has not heard yet that it has lost partitions, or got some, does not count: it may have
        too large a part for that moment.
        """
        known = self._node(node)
        present = self._assigned.get(known.server_id, frozenset())
        if known.told is None or (known.told ^ present) & quota.partitions:
            return True
        found = self._sums.setdefault(quota, _Sum(at_s=now_s))
        passed_s, found.at_s = now_s - found.at_s, now_s
        found.appends = max(found.appends - passed_s * (quota.appends_per_s or 0), 0.0)
        found.size_bytes = max(found.size_bytes - passed_s * (quota.bytes_per_s or 0), 0.0)
        others = [largest for other, largest in found.largest.items() if other != node]
        is_full = _is_full(found.appends - len(others), quota.appends_per_s) or _is_full(
            found.size_bytes - sum(others), quota.bytes_per_s
        )
        found.largest[node] = max(found.largest.get(node, 0), size)
        found.appends += quota.appends_per_s is not None
        found.size_bytes += size if quota.bytes_per_s is not None else 0
        return not is_full

    def _part(self, known: _Node, quota: LimitedTo) -> float:
        return len(known.owned & quota.partitions) / len(quota.partitions)

    # What may be

    def _node(self, node: Hashable) -> _Node:
        return self._nodes.setdefault(node, _Node())

    def _text(self, place: Place) -> Text:
        text = self._texts.get(place)
        if text is None:
            rules, names = dict(self._rules)[place[0]], dict(self._names)[place[1]]
            text = self._texts[place] = Text(rules, names, self._count, self._super)
        return text

    def _verdicts(self, since: Place, principal: str, right: str, partition_id: int | None) -> set[Verdict]:
        """The possible ones of a node that applies rules since then, or newer ones."""
        texts = [
            self._text((rules, names))
            for rules, _ in reversed(self._rules)
            if rules >= since[0]
            for names, _ in self._names
            if names >= since[1]
        ]
        found = {text.verdict(principal, right, partition_id) for text in texts if text.usable}
        if since == _NEVER:
            found.add(Verdict.PASSES if principal == self._super else Verdict.REFUSED)
        return found


def _is_full(used: float, limit: float | None, rounding: float = _ROUNDING) -> bool:
    return limit is not None and used >= limit * BURST_S + rounding
