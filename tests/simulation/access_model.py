"""Access rules as their documentation has them, naively: one decision at a time, from the stored text. Pure."""

import enum
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

IMPLIED = {"append": ("metadata", "describe"), "read": ("metadata", "describe"), "admin": ("configure",)}
UNUSABLE = b"unusable"
"""Is in every document that nodes cannot use."""


class Verdict(enum.Enum):
    """What becomes of a request."""

    PASSES = "passes"
    NOTED = "passes, and the audit notes it"
    REFUSED = "is refused"


class LimitedTo(NamedTuple):
    """A quota as it holds for one principal."""

    principal: str
    holder: str
    """The principal, group, or everybody, for whom the rules have it."""
    partitions: frozenset[int]
    appends_per_s: float | None
    bytes_per_s: float | None


class Text:
    """One document of rules, and one of names, as they are stored."""

    def __init__(self, rules: bytes, names: bytes | None, partition_count: int, super_principal: str) -> None:
        self.usable = UNUSABLE not in rules and (names is None or UNUSABLE not in names)
        self._count = partition_count
        self._super = super_principal
        self._fields: Mapping[str, Any] = json.loads(rules) if self.usable else {}
        self._names: Mapping[str, str] = json.loads(names)["names"] if self.usable and names is not None else {}
        named = [part for at in self._all_places() for part in at.split(",") if at != "*" and not part[:1].isdigit()]
        self.usable = self.usable and all(name in self._names for name in named)
        self._verdicts: dict[tuple[str, str, int | None], Verdict] = {}
        self._quotas: dict[tuple[str, int], LimitedTo | None] = {}

    def _all_places(self) -> list[str]:
        parts = (self._fields.get(name, []) for name in ("rules", "modes", "quotas"))
        return [each["at"] for part in parts for each in part]

    def verdict(self, principal: str, right: str, partition_id: int | None) -> Verdict:
        """What becomes of a request; ``None`` stands for the node."""
        key = principal, right, partition_id
        found = self._verdicts.get(key)
        if found is None:
            found = self._verdicts[key] = self._decide(principal, right, partition_id)
        return found

    def _decide(self, principal: str, right: str, partition_id: int | None) -> Verdict:
        mode = self.mode(partition_id)
        if principal == self._super or mode == "off" or self._permits(principal, right, partition_id):
            return Verdict.PASSES
        return Verdict.NOTED if mode == "audit" else Verdict.REFUSED

    def mode(self, partition_id: int | None) -> str:
        """The mode at a partition, or of the cluster."""
        own = [each["mode"] for each in self._fields.get("modes", []) if partition_id in self._places(each["at"])]
        mode: str = own[0] if own else self._fields["mode"]
        return mode

    def quota(self, principal: str, partition_id: int) -> LimitedTo | None:
        """The quota that holds for a principal at a partition."""
        key = principal, partition_id
        if key not in self._quotas:
            self._quotas[key] = self._find_quota(principal, partition_id)
        return self._quotas[key]

    def _find_quota(self, principal: str, partition_id: int) -> LimitedTo | None:
        if principal == self._super:
            return None
        for holder in (principal, *self._groups_of(principal), "*"):
            for each in self._fields.get("quotas", []):
                places = self._places(each["at"])
                if each["principal"] == holder and partition_id in places:
                    partitions = frozenset(place for place in places if place is not None)
                    limits = each.get("appends_per_s"), each.get("bytes_per_s")
                    return LimitedTo(principal, holder, partitions, *limits)
        return None

    def _permits(self, principal: str, right: str, partition_id: int | None) -> bool:
        about = {principal, *self._groups_of(principal), "*"}
        allowed = False
        for rule in self._fields["rules"]:
            if partition_id not in self._places(rule["at"]):
                continue
            given = rule["to"].split(",")
            if rule.get("deny") in about and right in given:
                return False
            if rule.get("allow") in about:
                implied = [each for one in given for each in IMPLIED.get(one, ())]
                allowed = allowed or right in given or right in implied
        return allowed

    def _groups_of(self, principal: str) -> list[str]:
        return [f"group:{name}" for name, members in self._fields.get("groups", {}).items() if principal in members]

    def _places(self, text: str) -> set[int | None]:
        if text == "*":
            return {None, *range(self._count)}
        places: set[int | None] = set()
        for part in ",".join(self._names.get(part, part) for part in text.split(",")).split(","):
            first, _, last = part.partition("-")
            places |= set(range(int(first), int(last or first) + 1))
        return places
