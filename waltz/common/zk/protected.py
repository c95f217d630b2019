"""Creations in a tree that may be protected: each node gets its access control list at once, from the tree's own table.

A process with a user asks before each creation whether, and how, the tree is protected, and again after it. If that has
changed meanwhile, the new node's list is changed: so no node stays open in a tree that ``waltz zookeeper protect`` is
just protecting, which looks at all nodes only after the protection has been written.
"""

from typing import NamedTuple, Protocol

from pydantic import SecretStr

from waltz.common.zk.client import NodeExistsError, NoNodeError, NotPermittedError, Stat, Watch
from waltz.common.zk.protection import DOCUMENT_PATH, OPEN, Acl, Protection, identity_of, relative


class Login(NamedTuple):
    """The user of a process in the tree of a cluster."""

    user: str
    password: SecretStr
    root: str
    """The path of the cluster."""

    @property
    def identity(self) -> str:
        """What ZooKeeper knows the user by."""
        return identity_of(self.user, self.password.get_secret_value())


class AclNodes(Protocol):
    """Nodes with access control lists: the part of a ZooKeeper client for creations."""

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        """Data and stat. :class:`NoNodeError`, :class:`NotPermittedError`."""
        ...

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Stat or ``None``; everybody may ask."""
        ...

    async def create_with(
        self, path: str, data: bytes | None, acl: Acl, *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        """Create a node with this list, and return its path. Errors as of ``create``."""
        ...

    async def acl(self, path: str) -> Acl:
        """The list of a node. :class:`NoNodeError`, :class:`NotPermittedError`."""
        ...

    async def set_acl(self, path: str, acl: Acl) -> None:
        """Replace the list of a node. :class:`NoNodeError`, :class:`NotPermittedError`."""
        ...


async def read_protection(nodes: AclNodes, root: str) -> Protection | None:
    """The protection of a tree; ``None``: it has none.

    Raises ``NotPermittedError`` for a process without a user, or with a wrong password, ``ProtectionError`` when the
    protection cannot be understood.
    """
    try:
        data, _ = await nodes.get(f"{root}/{DOCUMENT_PATH}")
    except NoNodeError:
        return None
    return Protection.decode(data)


async def create(
    nodes: AclNodes, root: str, path: str, data: bytes | None, *, ephemeral: bool = False, sequential: bool = False
) -> str:
    """Create a node below ``root`` with the list that it has to have now, and return its path.

    Raises the errors of ``create``, ``NotPermittedError``, and ``ProtectionError`` when the protection cannot be
    understood.
    """
    protection = await read_protection(nodes, root)
    try:
        created = await nodes.create_with(
            path, data, _acl_of(protection, root, path, sequential), ephemeral=ephemeral, sequential=sequential
        )
    except NotPermittedError:
        # ZooKeeper looks at the right first, and callers count on the news that a node is there already.
        if not sequential and await nodes.exists(path) is not None:
            raise NodeExistsError(f"create {path}: the node exists already") from None
        raise
    now = await read_protection(nodes, root)
    while now != protection:
        await nodes.set_acl(created, _acl_of(now, root, path, sequential))
        protection, now = now, await read_protection(nodes, root)
    return created


def _acl_of(protection: Protection | None, root: str, path: str, sequential: bool) -> Acl:
    below = relative(root, f"{path}0" if sequential else path)
    return OPEN if protection is None or below is None else protection.acl_of(below)
