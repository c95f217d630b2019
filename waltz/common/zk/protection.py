"""Who may do what at each node of a protected tree: one table, and the access control lists that follow from it. Pure.

Users belong to roles. ZooKeeper's digest scheme knows a user by the hash of name and password. The hashes of all users
stand in a node of the tree (``ext/protection``), so that each process can make the lists of the nodes that it creates.

ZooKeeper looks at the list of the node itself for reads, writes and changes of the list, and at that of its parent for
creations and deletions. It lets everybody ask whether a node exists.
"""

import base64
import enum
import hashlib
import json
import re
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from waltz.common.errors import WaltzError

READ, WRITE, CREATE, DELETE, ADMIN = 1, 2, 4, 8, 16
"""ZooKeeper's permissions. The last one is for changes of the list."""
ALL = READ | WRITE | CREATE | DELETE | ADMIN

USER_NAME = re.compile(r"[^\s:]{1,128}")
"""The name of a user."""

_LETTERS = {"c": CREATE, "d": DELETE, "r": READ, "w": WRITE, "a": ADMIN}

MIN_PASSWORD_LENGTH = 16
"""Characters. Whoever has a user of the cluster can read the hashes of the others, and guess at leisure."""

_MAX_DOCUMENT_BYTES = 64 << 10
_MAX_USERS = 100
_HASH_BYTES = 20


class ProtectionError(WaltzError):
    """The protection of the tree cannot be understood, or is impossible."""


class Role(enum.Enum):
    """What a process is in the tree."""

    SERVER = "server"
    STORAGE = "storage"
    CLIENT = "client"
    """Applications and Spark; archivers, mirrors, view nodes and bots without access rules."""
    ENFORCER = "enforcer"
    """Archivers, view nodes and bots that judge requests by the access rules: clients that may read these rules. The
    rules tell who may do what, so other clients may not read them."""
    ADMIN = "admin"
    """Tools. May do everything everywhere."""


class AclEntry(NamedTuple):
    """One entry of an access control list."""

    scheme: str
    id: str
    permissions: int

    def __str__(self) -> str:
        """Without the hash of a password."""
        name = self.id.partition(":")[0] if self.scheme == "digest" else self.id
        return f"{self.scheme}:{name}:{letters(self.permissions)}"


Acl: TypeAlias = frozenset[AclEntry]
"""An access control list; the order of its entries means nothing."""

OPEN: Acl = frozenset({AclEntry("world", "anyone", ALL)})
"""The list of the original's nodes."""


class Rights(NamedTuple):
    """The permissions at the nodes of a pattern, as letters. Admins have all."""

    pattern: str
    server: str = ""
    storage: str = ""
    client: str = ""
    enforcer: str = ""
    """What enforcers have besides the permissions of clients."""
    original: str = ""
    """What everybody has in a cluster with original nodes: these have no users."""
    is_created_by_original: bool = False
    """Nodes of the original create such nodes, which are open then."""


TABLE = (
    Rights("", server="r", storage="r", client="r", original="r"),
    Rights("serverDescriptors", server="cdrw", client="r", original="cdrw"),
    Rights("serverDescriptors/*", server="rw", client="r", original="rw", is_created_by_original=True),
    Rights("ids", server="r", client="r", original="r"),
    Rights("ids/client", client="rw", original="rw"),
    Rights("ids/server", server="rw", original="rw"),
    Rights("store", server="r", storage="r", client="r", original="r"),
    Rights("store/group", server="r", client="r", original="r"),
    Rights("store/assignment", server="r", client="r", original="r"),
    Rights("store/connection", server="r", client="r", original="r"),
    Rights("store/partition", server="cr", client="r", original="cr"),
    Rights("store/partition/*", server="rw", client="r", original="rw", is_created_by_original=True),
    Rights("ext", server="r", storage="r", client="r"),
    Rights("ext/protection", server="r", storage="r", client="r"),
    Rights("ext/partition", server="cr", client="r"),
    Rights("ext/partition/*", server="rw", client="r"),
    Rights("ext/features", server="r", client="r"),
    Rights("ext/clock", client="rw"),
    Rights("ext/cursor", server="r", client="cr"),
    Rights("ext/cursor/*", server="r", client="cr"),
    Rights("ext/cursor/*/*", server="r", client="rw"),
    Rights("ext/consumer", server="r", client="cr"),
    Rights("ext/consumer/*", server="r", client="cr"),
    Rights("ext/consumer/*/*", server="r", client="cdr"),
    Rights("ext/consumer/*/*/*", client="rw"),
    Rights("ext/election", client="cdr"),
    Rights("ext/election/*", client="rw"),
    Rights("ext/archive", server="r", client="cdr"),
    Rights("ext/archive/*", client="rw"),
    Rights("ext/mirror", client="cdr"),
    Rights("ext/mirror/*", client="rw"),
    Rights("ext/view", client="cr"),
    Rights("ext/view/*", client="cdr"),
    Rights("ext/view/*/*", client="rw"),
    Rights("ext/acl", server="cr", storage="cr", enforcer="cr"),
    Rights("ext/acl/applied", server="cdr", storage="cdr", enforcer="cdr"),
    Rights("ext/acl/applied/server-*", server="rw"),
    Rights("ext/acl/applied/storage-*", storage="rw"),
    Rights("ext/acl/applied/view-*", enforcer="rw"),
    Rights("ext/names", server="r", storage="r", enforcer="r"),
    Rights("ext/storage", server="r", client="r"),
    Rights("ext/storage/*", server="r", client="r"),
    Rights("ext/ring", server="r", client="r"),
    Rights("ext/ring/*", server="r", client="r"),
)
"""By paths below the root of the cluster; ``*`` is one name, or its end. Others are for admins only."""

_NOTHING = Rights("")

PREPARED: Mapping[str, bytes | None] = {
    "ext/partition": None,
    "ext/clock": b"",
    "ext/cursor": None,
    "ext/consumer": None,
    "ext/election": None,
    "ext/archive": None,
    "ext/mirror": None,
    "ext/view": None,
}
"""Nodes that servers and clients create in an open tree, and must find in a protected one: none of them may create what
it likes below ``ext``. By their paths below the root, with their data."""

DOCUMENT_PATH = "ext/protection"


class Protection(NamedTuple):
    """The users of a protected tree, as its node stores them."""

    users: Mapping[Role, tuple[str, ...]]
    """The identities of each role in the digest scheme: name and hash."""
    with_original_nodes: bool = False
    """Whether all that nodes and clients of the original need is open."""

    def encode(self) -> bytes:
        """The node's data. The same protection has the same data.

        Enforcers are named only if there are some: versions without this role cannot read data that names it.
        """
        users = {role.value: sorted(self.users.get(role, ())) for role in Role}
        if not users[Role.ENFORCER.value]:
            del users[Role.ENFORCER.value]
        document = {"version": 1, "withOriginalNodes": self.with_original_nodes, "users": users}
        return json.dumps(document, sort_keys=True).encode()

    @classmethod
    def decode(cls, data: bytes | None) -> "Protection":
        """Read the node's data. Raises :class:`ProtectionError`."""
        try:
            if data is None or len(data) > _MAX_DOCUMENT_BYTES:
                raise ValueError("no data, or too many")
            document = json.loads(data)
            if set(document) != {"version", "withOriginalNodes", "users"} or document["version"] != 1:
                raise ValueError("another version, or other fields")
            with_original_nodes = document["withOriginalNodes"]
            if not isinstance(with_original_nodes, bool):
                raise ValueError("withOriginalNodes is true or false")
            given = {Role(name): tuple(map(_identity, ids)) for name, ids in document["users"].items()}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ProtectionError(
                f"{DOCUMENT_PATH}: the protection of the tree cannot be read ({type(error).__name__}); "
                "it may be that of a newer version"
            ) from None
        return checked(cls({role: given.get(role, ()) for role in Role}, with_original_nodes))

    def acl_of(self, path: str) -> Acl:
        """The list of the node at a path below the root; the root itself is the empty path."""
        rights = rights_at(path)
        permissions = {
            Role.SERVER: rights.server,
            Role.STORAGE: rights.storage,
            Role.CLIENT: rights.client,
            Role.ENFORCER: rights.client + rights.enforcer,
            Role.ADMIN: "cdrwa",
        }
        entries = {
            AclEntry("digest", identity, bits(permissions[role]))
            for role, identities in self.users.items()
            for identity in identities
            if permissions[role]
        }
        if self.with_original_nodes and rights.original:
            entries.add(AclEntry("world", "anyone", bits(rights.original)))
        return frozenset(entries)

    def accepts(self, path: str, acl: Acl) -> bool:
        """Whether a node may have this list: its own one, or that of a node of the original that has created it."""
        is_of_original = self.with_original_nodes and rights_at(path).is_created_by_original
        return acl == self.acl_of(path) or (is_of_original and acl == OPEN)


def checked(protection: Protection) -> Protection:
    """The protection. Raises :class:`ProtectionError` without an admin, for a name in two roles, and for too many."""
    roles: dict[str, Role] = {}
    for role, identities in protection.users.items():
        for identity in identities:
            name = identity.partition(":")[0]
            if roles.setdefault(name, role) is not role:
                raise ProtectionError(f"user {name} is in two roles: {roles[name].value} and {role.value}")
    if not protection.users.get(Role.ADMIN):
        raise ProtectionError("there is no user with the role admin: nobody could change the tree any more")
    if len(roles) > _MAX_USERS:
        raise ProtectionError(f"there are {len(roles)} users; at most {_MAX_USERS} are possible")
    return protection


def identity_of(user: str, password: str) -> str:
    """What ZooKeeper makes of a user's name and password in the digest scheme."""
    digest = hashlib.sha1(f"{user}:{password}".encode(), usedforsecurity=False).digest()  # the scheme's, not our choice
    return f"{user}:{base64.b64encode(digest).decode()}"


def rights_at(path: str) -> Rights:
    """The line of the table for the node at a path below the root."""
    names = path.split("/")
    return next((each for each in TABLE if _matches(each.pattern.split("/"), names)), _NOTHING)


def open_for_original() -> list[tuple[str, str]]:
    """The patterns of nodes at which everybody has rights in a cluster with original nodes, and these rights."""
    return [(each.pattern, each.original) for each in TABLE if each.original]


def relative(root: str, path: str) -> str | None:
    """The path below the root of the cluster; ``None`` outside of the cluster."""
    if path == root:
        return ""
    return path.removeprefix(f"{root}/") if path.startswith(f"{root}/") else None


def bits(text: str) -> int:
    """Permissions of letters such as ``cdrwa``."""
    return sum(_LETTERS[letter] for letter in set(text))


def letters(permissions: int) -> str:
    """Permissions as letters."""
    return "".join(letter for letter, bit in _LETTERS.items() if permissions & bit)


def _matches(pattern: list[str], names: list[str]) -> bool:
    return len(pattern) == len(names) and all(
        name.startswith(wanted[:-1]) if wanted.endswith("*") else wanted == name
        for wanted, name in zip(pattern, names, strict=True)
    )


def _identity(text: object) -> str:
    if not isinstance(text, str):
        raise TypeError("an identity is text")
    name, colon, digest = text.partition(":")
    if not name or not colon or len(base64.b64decode(digest, validate=True)) != _HASH_BYTES:
        raise ValueError("an identity is a name, a colon and a hash")
    return text
