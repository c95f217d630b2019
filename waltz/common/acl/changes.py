"""Changes of access rules by commands: the new document of an old one. Pure."""

import difflib
from collections.abc import Mapping, Sequence

from waltz.common.access import ANONYMOUS, Right
from waltz.common.acl.document import ALL, GROUP, Document, Mode, PartitionMode, Quota, Rule
from waltz.common.acl.json_pieces import AclError
from waltz.common.acl.rules import compile_rules
from waltz.common.pieces import at_once


def initial(servers: Sequence[str], admins: Sequence[str]) -> Document:
    """The rules to begin with: in audit mode, servers may reach storages and ask how these are, and admins may do
    everything else.

    The HTTP ports, whose readers are anonymous, stay open for reading.
    """
    rules = [Rule(True, ANONYMOUS, (Right.DESCRIBE,), ALL)]
    rules += [Rule(True, principal, (Right.CLUSTER, Right.DESCRIBE), ALL) for principal in servers]
    # Nodes of older versions refuse rules that name the right to configure, which administrators have anyway.
    rights = tuple(right for right in Right if right not in (Right.CLUSTER, Right.CONFIGURE))
    rules += [Rule(True, principal, rights, ALL) for principal in admins]
    return Document(Mode.AUDIT, rules=tuple(rules))


def granted(document: Document, wanted: Rule) -> Document:
    """The document with a rule that allows, and without the same rights in a rule that denies."""
    rules = _without(document.rules, wanted._replace(allows=False))
    same = [rule for rule in rules if rule._replace(rights=()) == wanted._replace(rights=())]
    if not same:
        return document._replace(rules=(*rules, wanted))
    merged = same[0]._replace(rights=tuple(dict.fromkeys((*same[0].rights, *wanted.rights))))
    return document._replace(rules=tuple(merged if rule is same[0] else rule for rule in rules))


def revoked(
    document: Document, unwanted: Rule, names: Mapping[str, str], partition_count: int, *, deny: bool
) -> Document:
    """The document without a rule that allows; with ``deny`` also with a rule that denies the same.

    Raises:
        AclError: Another rule still allows it. Nothing can be taken from a rule about other principals or partitions
            without a rule that denies.
    """
    rules = _without(document.rules, unwanted)
    if deny:
        rules = (*rules, unwanted._replace(allows=False))
    found = document._replace(rules=rules)
    if unwanted.principal != ALL and not unwanted.principal.startswith(GROUP):
        compiled = at_once(compile_rules(found, names, partition_count))
        for right in unwanted.rights:
            for place in compiled.places(unwanted.partitions, names):
                decision = compiled.decide(unwanted.principal, right, place)
                if decision.allowed:
                    at = "nodes" if place is None else f"partition {place}"
                    raise AclError(
                        f"nothing was revoked: {unwanted.principal!r} would still have the right"
                        f" {right.name.lower()} at {at}, by rule {decision.number} ({decision.rule}); revoke that rule,"
                        " or add --deny, which makes a rule that denies"
                    )
    if rules == document.rules:
        raise AclError(f"there is no rule: {unwanted}")
    return found


def with_mode(document: Document, mode: Mode, partitions: str | None) -> Document:
    """The document with another mode, of the cluster or of partitions."""
    if partitions is None:
        return document._replace(mode=mode)
    others = tuple(each for each in document.modes if each.partitions != partitions)
    return document._replace(modes=(*others, PartitionMode(partitions, mode)))


def with_quota(document: Document, wanted: Quota) -> Document:
    """The document with a quota, in the place of that of the same principal and partitions if there is one."""
    same = [quota for quota in document.quotas if _is_about(quota, wanted.principal, wanted.partitions)]
    if not same:
        return document._replace(quotas=(*document.quotas, wanted))
    return document._replace(quotas=tuple(wanted if quota is same[0] else quota for quota in document.quotas))


def without_quota(document: Document, principal: str, partitions: str) -> Document:
    """The document without the quota of a principal at partitions. Raises :class:`AclError` if there is none."""
    left = tuple(quota for quota in document.quotas if not _is_about(quota, principal, partitions))
    if left == document.quotas:
        known = "; ".join(str(quota) for quota in document.quotas if quota.principal == principal) or "none"
        raise AclError(f"there is no quota of {principal} at {partitions}; the quotas of {principal}: {known}")
    return document._replace(quotas=left)


def _is_about(quota: Quota, principal: str, partitions: str) -> bool:
    return (quota.principal, quota.partitions) == (principal, partitions)


def lines_of(document: Document) -> list[str]:
    """The document for people: a line for each mode, group, rule and quota."""
    lines = [f"mode {document.mode}"]
    lines += [f"mode {each.mode} at {each.partitions}" for each in document.modes]
    lines += [f"group {name}: {', '.join(members)}" for name, members in sorted(document.groups.items())]
    lines += [str(rule) for rule in document.rules]
    return lines + [str(quota) for quota in document.quotas]


def difference(before: Document, after: Document) -> list[str]:
    """The lines that differ, with ``-`` or ``+`` before them."""
    found = difflib.ndiff(lines_of(before), lines_of(after))
    return [line for line in found if line.startswith(("- ", "+ "))]


def _without(rules: Sequence[Rule], unwanted: Rule) -> tuple[Rule, ...]:
    """Rules without the rights of another one about the same principal and partitions."""
    left = []
    for rule in rules:
        if rule._replace(rights=()) == unwanted._replace(rights=()):
            rule = rule._replace(rights=tuple(right for right in rule.rights if right not in unwanted.rights))
        if rule.rights:
            left.append(rule)
    return tuple(left)
