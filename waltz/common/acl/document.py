"""The documents of access rules and of named partitions, as they are stored in ZooKeeper. Pure.

Readers are generators that yield between pieces of work, so that a loop can have other turns in between; their result
is the return value.
"""

import json
import re
from collections.abc import Generator, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from waltz.common.access import Right
from waltz.common.acl.json_pieces import MAX_BYTES, AclError, read_json

FORMAT: Final = 1
"""The version of the documents' format."""

MAX_RULES: Final = 10_000
MAX_QUOTAS: Final = 1000
MAX_PER_S: Final = 10**15
"""Largest limit of a quota."""
MAX_PRINCIPAL_CHARACTERS: Final = 512

ALL: Final = "*"
"""All principals, also those without a certificate; or all partitions and the nodes themselves."""

GROUP: Final = "group:"
"""Begins the name of a group in the place of a principal."""

RIGHTS: Final[Mapping[str, Right]] = {right.name.lower(): right for right in Right}
"""The rights by their names in documents and commands."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_RULES_PER_PIECE = 100


class Mode(StrEnum):
    """What happens to requests that no rule permits."""

    OFF = "off"
    """They pass."""
    AUDIT = "audit"
    """They pass, are counted, and are logged."""
    ENFORCE = "enforce"
    """They are refused."""


class Rule(NamedTuple):
    """One rule. A rule that denies wins over all that allow."""

    allows: bool
    principal: str
    """A principal, a group with :data:`GROUP` before its name, or :data:`ALL`."""
    rights: tuple[Right, ...]
    partitions: str
    """Ids, ranges and names of partitions, such as ``7,10-12,orders``, or :data:`ALL`."""

    @property
    def rights_text(self) -> str:
        """The names of the rights, separated by commas."""
        return ",".join(right.name.lower() for right in self.rights)

    def __str__(self) -> str:
        return f"{'allow' if self.allows else 'deny'} {self.principal} to {self.rights_text} at {self.partitions}"


class PartitionMode(NamedTuple):
    """Partitions with a mode of their own."""

    partitions: str
    mode: Mode


class Quota(NamedTuple):
    """A limit of the appends of one principal, over all servers; at least one of the two numbers is there."""

    principal: str
    """A principal, or a group with :data:`GROUP` before its name, or :data:`ALL`: then each principal has the limit for
    itself."""
    partitions: str
    """Ids, ranges and names of partitions that share the limit, or :data:`ALL`."""
    appends_per_s: int | None = None
    bytes_per_s: int | None = None
    """Bytes of the data of transactions."""

    @property
    def limits_text(self) -> str:
        """The limits for people."""
        limits = ((self.appends_per_s, "appends/s"), (self.bytes_per_s, "bytes/s"))
        return " and ".join(f"{limit} {unit}" for limit, unit in limits if limit is not None)

    def __str__(self) -> str:
        return f"quota {self.principal} at {self.partitions}: {self.limits_text}"


class Document(NamedTuple):
    """The access rules of a cluster."""

    mode: Mode
    modes: tuple[PartitionMode, ...] = ()
    groups: Mapping[str, tuple[str, ...]] = {}
    rules: tuple[Rule, ...] = ()
    quotas: tuple[Quota, ...] = ()


def read_document(data: bytes) -> Generator[None, None, Document]:
    """Read the rules; the result is a :class:`Document`.

    Raises:
        AclError: The data are no such document, or exceed a limit; the text says where.
    """
    found = yield from read_json(data, "the access rules")
    fields = _object(found, "the access rules", {"version", "mode"}, {"modes", "groups", "rules", "quotas"})
    _check_format(fields["version"], "the access rules")
    groups: dict[str, tuple[str, ...]] = {}
    for count, (name, members) in enumerate(_object(fields.get("groups", {}), "groups").items()):
        where = f"group {name!r}"
        check_name(name, where)
        groups[name] = tuple(_principal(member, where) for member in _list(members, where))
        if any(member == ALL or member.startswith(GROUP) for member in groups[name]):
            raise AclError(f"{where} has a member that is no principal: groups hold principals only")
        if not count % _RULES_PER_PIECE:
            yield
    listed = _list(fields.get("rules", []), "rules")
    if len(listed) > MAX_RULES:
        raise AclError(
            f"{len(listed)} access rules are too many: at most {MAX_RULES}; use groups and names of partitions"
        )
    rules: list[Rule] = []
    for number, found in enumerate(listed, 1):
        rules.append(_rule(found, f"rule {number}", groups))
        if not number % _RULES_PER_PIECE:
            yield
    modes = tuple(
        PartitionMode(_text(each["at"], "the partitions of a mode"), _mode(each["mode"]))
        for each in (
            _object(found, "an element of modes", {"at", "mode"}) for found in _list(fields.get("modes", []), "modes")
        )
    )
    listed = _list(fields.get("quotas", []), "quotas")
    if len(listed) > MAX_QUOTAS:
        raise AclError(f"{len(listed)} quotas are too many: at most {MAX_QUOTAS}; use groups and names of partitions")
    quotas: list[Quota] = []
    for number, found in enumerate(listed, 1):
        quotas.append(_quota(found, f"quota {number}", groups))
        if not number % _RULES_PER_PIECE:
            yield
    return Document(_mode(fields["mode"]), modes, groups, tuple(rules), tuple(quotas))


def read_names(data: bytes) -> Generator[None, None, dict[str, str]]:
    """Read the named partitions; the result has ids and ranges by name.

    Raises:
        AclError: The data are no such document.
    """
    found = yield from read_json(data, "the names of partitions")
    fields = _object(found, "the names of partitions", {"version", "names"})
    _check_format(fields["version"], "the names of partitions")
    names: dict[str, str] = {}
    for count, (name, partitions) in enumerate(_object(fields["names"], "names").items()):
        check_name(name, f"the name {name!r} of partitions")
        names[name] = _text(partitions, f"the partitions of {name!r}")
        partition_spans(names[name], None, {})
        if not count % _RULES_PER_PIECE:
            yield
    return names


def write_document(document: Document) -> bytes:
    """The stored form of rules. Raises :class:`AclError` above the limit of bytes."""
    fields: dict[str, Any] = {"version": FORMAT, "mode": document.mode.value}
    if document.modes:
        fields["modes"] = [{"at": each.partitions, "mode": each.mode.value} for each in document.modes]
    if document.groups:
        fields["groups"] = {name: list(members) for name, members in document.groups.items()}
    fields["rules"] = [
        {"allow" if rule.allows else "deny": rule.principal, "to": rule.rights_text, "at": rule.partitions}
        for rule in document.rules
    ]
    if document.quotas:
        fields["quotas"] = [
            {
                "principal": quota.principal,
                "at": quota.partitions,
                **({} if quota.appends_per_s is None else {"appends_per_s": quota.appends_per_s}),
                **({} if quota.bytes_per_s is None else {"bytes_per_s": quota.bytes_per_s}),
            }
            for quota in document.quotas
        ]
    return _encoded(fields)


def write_names(names: Mapping[str, str]) -> bytes:
    """The stored form of named partitions. Raises :class:`AclError` above the limit of bytes."""
    return _encoded({"version": FORMAT, "names": dict(names)})


def partition_spans(text: str, partition_count: int | None, names: Mapping[str, str]) -> tuple[tuple[int, int], ...]:
    """The partitions of a rule or a name as pairs of a first id and the id after the last one.

    Args:
        text: Ids, ranges and names, separated by commas.
        partition_count: Number of partitions in the cluster; ``None`` if it is not known.
        names: Ids and ranges by name.

    Raises:
        AclError: The text is not of this form, a name is unknown, or a partition does not exist.
    """
    spans: list[tuple[int, int]] = []
    for part in text.split(","):
        if part in names:
            spans += partition_spans(names[part], partition_count, {})
            continue
        found = _RANGE.fullmatch(part)
        if found is None:
            known = f" The names are {', '.join(sorted(names))}." if names else " There are no names."
            raise AclError(f"{part!r} is neither a partition, a range such as 0-31, nor a known name.{known}")
        first = int(found[1])
        last = first if found[2] is None else int(found[2])
        if last < first:
            raise AclError(f"the range {part} ends before it begins")
        if partition_count is not None and last >= partition_count:
            raise AclError(
                f"there is no partition {last}; the cluster has {partition_count} (0 to {partition_count - 1})"
            )
        spans.append((first, last + 1))
    return tuple(spans)


def read_rights(text: str) -> tuple[Right, ...]:
    """Rights from their names, separated by commas. Raises :class:`AclError`."""
    names = text.split(",")
    for name in names:
        if name not in RIGHTS:
            raise AclError(f"there is no right {name!r}; the rights are {', '.join(RIGHTS)}")
    return tuple(RIGHTS[name] for name in dict.fromkeys(names))


def check_name(name: str, what: str) -> None:
    """Raise :class:`AclError` unless a group or named partitions may have this name."""
    if _NAME.fullmatch(name) is None:
        raise AclError(f"{what}: a name is a letter and then up to 63 letters, digits, dots, underscores or hyphens")


def _rule(value: object, where: str, groups: Mapping[str, object]) -> Rule:
    fields = _object(value, where, {"to", "at"}, {"allow", "deny"})
    allows = "allow" in fields
    if allows == ("deny" in fields):
        raise AclError(f"{where} has to allow or to deny")
    principal = _holder(fields["allow" if allows else "deny"], where, groups)
    try:
        rights = read_rights(_text(fields["to"], where))
    except AclError as error:
        raise AclError(f"{where}: {error}") from None
    return Rule(allows, principal, rights, _text(fields["at"], where))


def _quota(value: object, where: str, groups: Mapping[str, object]) -> Quota:
    fields = _object(value, where, {"principal", "at"}, {"appends_per_s", "bytes_per_s"})
    appends_per_s = _limit(fields, "appends_per_s", where)
    bytes_per_s = _limit(fields, "bytes_per_s", where)
    if appends_per_s is None and bytes_per_s is None:
        raise AclError(f"{where} has no limit: give appends_per_s, bytes_per_s, or both")
    holder = _holder(fields["principal"], where, groups)
    return Quota(holder, _text(fields["at"], where), appends_per_s, bytes_per_s)


def _limit(fields: Mapping[str, object], name: str, where: str) -> int | None:
    if name not in fields:
        return None
    value = fields[name]
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_PER_S:
        raise AclError(
            f"{where}: {name} is a whole number from 1 to {MAX_PER_S}, not {_brief(value)}; to permit no appends,"
            " deny the right"
        )
    return value


def _holder(value: object, where: str, groups: Mapping[str, object]) -> str:
    """A principal, a group that exists, or :data:`ALL`."""
    principal = _principal(value, where)
    if principal.startswith(GROUP) and principal.removeprefix(GROUP) not in groups:
        raise AclError(f"{where}: there is no group {principal.removeprefix(GROUP)!r}")
    return principal


def _principal(value: object, where: str) -> str:
    text = _text(value, where)
    if len(text) > MAX_PRINCIPAL_CHARACTERS or not text.isprintable():
        raise AclError(
            f"{where}: a principal is printable text of at most {MAX_PRINCIPAL_CHARACTERS} characters, not "
            f"{text[:40]!r}"
        )
    return text


def _mode(value: object) -> Mode:
    if value not in tuple(Mode):
        raise AclError(f"a mode is {', '.join(Mode)}, not {value!r}")
    return Mode(str(value))


def _check_format(version: object, what: str) -> None:
    if version != FORMAT or isinstance(version, bool):
        raise AclError(f"{what} have format {version!r}; this version of Waltz reads format {FORMAT}")


def _object(
    value: object, where: str, required: set[str] | None = None, optional: set[str] | frozenset[str] = frozenset()
) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise AclError(f"{where}: an object is expected, not {_brief(value)}")
    if required is not None:
        unknown, missing = value.keys() - required - optional, required - value.keys()
        if unknown:
            raise AclError(f"{where}: unknown field {sorted(unknown)[0]!r}")
        if missing:
            raise AclError(f"{where}: {sorted(missing)[0]!r} is missing")
    return value


def _list(value: object, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise AclError(f"{where}: a list is expected, not {_brief(value)}")
    return value


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise AclError(f"{where}: a text is expected, not {_brief(value)}")
    return value


def _brief(value: object) -> str:
    return repr(value)[:40]


def _encoded(fields: dict[str, Any]) -> bytes:
    data = (json.dumps(fields, indent=1, ensure_ascii=False) + "\n").encode()
    if len(data) > MAX_BYTES:
        data = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
    if len(data) > MAX_BYTES:
        raise AclError(f"the rules have {len(data)} bytes; the limit is {MAX_BYTES}")
    return data
