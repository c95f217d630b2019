"""Access rules, compiled: decisions, their reasons, and the rights of a principal at all partitions. Pure.

Sets of partitions are integers, in which the bit of a partition's id is set; one more bit stands for the nodes
themselves. The rights of a principal are one byte for each of these places.
"""

import functools
from collections.abc import Generator, Iterable, Mapping
from typing import Final, NamedTuple

from waltz.common.access import Right
from waltz.common.acl.document import ALL, GROUP, Document, Mode, Quota, Rule, partition_spans
from waltz.common.acl.json_pieces import AclError

EVERY_RIGHT: Final = 0xFF

IMPLIED: Final = {
    Right.APPEND: (Right.METADATA, Right.DESCRIBE),
    Right.READ: (Right.METADATA, Right.DESCRIBE),
    Right.ADMIN: (Right.CONFIGURE,),
}
"""The rights that a right has in itself."""
_RULES_PER_PIECE = 100


class Decision(NamedTuple):
    """An answer to the question whether a request is permitted, by the rules alone: modes do not count."""

    allowed: bool
    number: int | None
    """The deciding rule, counted from 1; ``None`` if no rule is about the request."""
    rule: Rule | None

    @property
    def reason(self) -> str:
        """The reason in words."""
        if self.rule is None:
            return "no rule"
        return f"rule {self.number} {'allows' if self.allowed else 'denies'} it"


class _Sums:
    """All rules about one principal or group: places by the bits of the rights that are allowed or denied there."""

    __slots__ = ("allowed", "denied", "numbers")

    def __init__(self) -> None:
        self.allowed: dict[int, int] = {}
        self.denied: dict[int, int] = {}
        self.numbers: list[int] = []
        """The rules themselves, counted from 1."""

    def add(self, number: int, rule: Rule, places: int) -> None:
        by_rights = self.allowed if rule.allows else self.denied
        given = _bits(rule)
        by_rights[given] = by_rights.get(given, 0) | places
        self.numbers.append(number)


_NO_SUMS: Final = _Sums()


def _bits(rule: Rule) -> int:
    """The bits of a rule's rights, with those that are implied."""
    given = 0
    for right in rule.rights:
        given |= right.bit
        if rule.allows:
            for implied in IMPLIED.get(right, ()):
                given |= implied.bit
    return given


class Rules:
    """The rules of one document for a cluster of a known size."""

    def __init__(self, document: Document, partition_count: int) -> None:
        """Use :func:`compile_rules`."""
        self.document = document
        self.partition_count = partition_count
        self._everywhere = (1 << (partition_count + 1)) - 1
        self._places: dict[str, int] = {ALL: self._everywhere}
        """By the text of the rules."""
        self._by_principal: dict[str, _Sums] = {}
        self._groups: dict[str, list[str]] = {}
        """The groups of each principal."""
        self._modes: dict[Mode, int] = {}
        self._quotas: dict[str, list[Quota]] = {}
        """By principal, group, or :data:`ALL`."""

    def fill(self, names: Mapping[str, str]) -> Generator[None, None, None]:
        """Take the rules in; see :func:`compile_rules`."""
        for each in self.document.modes:
            places = self._read_places(each.partitions, names, "a mode")
            if any(places & others for others in self._modes.values()):
                raise AclError(f"the partitions {each.partitions} have more than one mode")
            self._modes[each.mode] = self._modes.get(each.mode, 0) | places
        for count, (name, members) in enumerate(self.document.groups.items()):
            for member in dict.fromkeys(members):
                self._groups.setdefault(member, []).append(GROUP + name)
            if not count % _RULES_PER_PIECE:
                yield
        for number, rule in enumerate(self.document.rules, 1):
            places = self._read_places(rule.partitions, names, f"rule {number}")
            self._by_principal.setdefault(rule.principal, _Sums()).add(number, rule, places)
            if not number % _RULES_PER_PIECE:
                yield
        limited: dict[str, int] = {}
        for number, quota in enumerate(self.document.quotas, 1):
            places = self._read_places(quota.partitions, names, f"quota {number}") & ~self._node
            if places & limited.get(quota.principal, 0):
                raise AclError(
                    f"quota {number}: partitions of {quota.partitions} have two quotas for {quota.principal}"
                )
            limited[quota.principal] = limited.get(quota.principal, 0) | places
            self._quotas.setdefault(quota.principal, []).append(quota)
            if not number % _RULES_PER_PIECE:
                yield

    def _read_places(self, text: str, names: Mapping[str, str], where: str) -> int:
        places = self._places.get(text)
        if places is None:
            try:
                spans = partition_spans(text, self.partition_count, names)
            except AclError as error:
                raise AclError(f"{where}: {error}") from None
            places = self._places[text] = _union(spans)
        return places

    def place(self, partition_id: int | None) -> int | None:
        """The index of a partition, or of the node itself, in a row of rights; ``None`` if there is no such place."""
        if partition_id is None:
            return self.partition_count
        return partition_id if 0 <= partition_id < self.partition_count else None

    def places(self, text: str, names: Mapping[str, str]) -> list[int | None]:
        """The partitions of a rule's text, and ``None`` for nodes where it has them. Raises :class:`AclError`."""
        places = self._read_places(text, names, text)
        partition_ids: list[int | None] = [each for each in range(self.partition_count) if places >> each & 1]
        return [*partition_ids, *([None] if places >> self.partition_count & 1 else [])]

    def mode(self, partition_id: int | None) -> Mode:
        """The mode at a partition; that of the cluster for nodes, and where there is no partition."""
        place = self.place(partition_id)
        if place is not None:
            for mode, places in self._modes.items():
                if places >> place & 1:
                    return mode
        return self.document.mode

    @property
    def audits(self) -> bool:
        """Whether some partition, or the nodes, have the mode "audit"."""
        return self.document.mode is Mode.AUDIT or Mode.AUDIT in self._modes

    def row(self, principal: str, *, with_modes: bool = True) -> bytes:
        """One byte of rights for each place. ``with_modes``: all rights are there where the mode is off."""
        sums = self._about(principal)
        free = self._places_in(Mode.OFF) if with_modes else 0
        row = 0
        for bit in (right.bit for right in Right):
            allowed = _places_with((each.allowed for each in sums), bit)
            denied = _places_with((each.denied for each in sums), bit)
            row |= self._spread((allowed & ~denied) | free, bit)
        return row.to_bytes(self.partition_count + 1, "little")

    @functools.cached_property
    def audited_row(self) -> bytes:
        """All rights at the places where the mode is "audit", none elsewhere, as :meth:`row` has them."""
        row = self._spread(self._places_in(Mode.AUDIT), sum(right.bit for right in Right))
        return row.to_bytes(self.partition_count + 1, "little")

    def _spread(self, places: int, bits: int) -> int:
        """One byte for each place: these bits at these places, nothing elsewhere."""
        size = self.partition_count + 1
        return int.from_bytes(f"{places:0{size}b}".encode().translate(_table(bits)), "big")

    def _places_in(self, wanted: Mode) -> int:
        """The places that have a mode."""
        found = self._everywhere if self.document.mode is wanted else 0
        for mode, places in self._modes.items():
            found = found | places if mode is wanted else found & ~places
        return found

    def decide(self, principal: str, right: Right, partition_id: int | None) -> Decision:
        """The decision on a request, with the deciding rule: the first that denies it, else the first that allows."""
        bit, place, found = right.bit, self.place(partition_id), Decision(False, None, None)
        if place is None:
            return found
        for number in sorted(number for sums in self._about(principal) for number in sums.numbers):
            rule = self.document.rules[number - 1]
            if not (_bits(rule) & bit and self._places[rule.partitions] >> place & 1):
                continue
            if not rule.allows:
                return Decision(False, number, rule)
            if not found.allowed:
                found = Decision(True, number, rule)
        return found

    @property
    def _node(self) -> int:
        """The place of the nodes themselves."""
        return 1 << self.partition_count

    def quotas_of(self, principal: str) -> list[Quota]:
        """The quotas that may hold for a principal, in the order in which the first at a partition holds there: its
        own, then those of its groups, then those of everybody."""
        names = (principal, *self._groups.get(principal, ()), ALL)
        return [quota for name in dict.fromkeys(names) for quota in self._quotas.get(name, ())]

    def quota(self, principal: str, partition_id: int) -> Quota | None:
        """The quota that holds for a principal at a partition."""
        for quota in self.quotas_of(principal):
            if self.quota_places(quota) >> partition_id & 1:
                return quota
        return None

    def quota_places(self, quota: Quota) -> int:
        """The partitions of a quota of these rules, as an integer in which the bits of their ids are set."""
        return self._places[quota.partitions] & ~self._node

    def _about(self, principal: str) -> list[_Sums]:
        """The rules that concern a principal."""
        names = (principal, ALL, *self._groups.get(principal, ()))
        return [self._by_principal.get(name, _NO_SUMS) for name in names]


def compile_rules(document: Document, names: Mapping[str, str], partition_count: int) -> Generator[None, None, Rules]:
    """Compile a document in small pieces, with yields in between; the result is :class:`Rules`.

    Args:
        document: The rules.
        names: Ids and ranges of partitions by name.
        partition_count: Number of partitions in the cluster.

    Raises:
        AclError: A rule names partitions that do not exist, or two modes concern the same partition.
    """
    rules = Rules(document, partition_count)
    yield from rules.fill(names)
    return rules


def _union(spans: tuple[tuple[int, int], ...]) -> int:
    places = 0
    for first, end in spans:
        places |= (1 << end) - (1 << first)
    return places


def _places_with(sums: Iterable[Mapping[int, int]], bit: int) -> int:
    places = 0
    for by_rights in sums:
        for given, each in by_rights.items():
            if given & bit:
                places |= each
    return places


def _table(bits: int) -> bytes:
    """Turns binary digits into bytes with these bits or nothing."""
    return bytes(bits if character == ord("1") else 0 for character in range(256))
