"""Protects the tree of a cluster, opens it, and finds what is open: see :mod:`waltz.common.zk.protection`.

Each step may be repeated. A command that is killed leaves a tree in which some nodes have their new lists and others
their old ones; processes with users get at both, and the next run does the rest.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple, Protocol

from waltz.common.zk.client import NodeExistsError, NoNodeError, ZooKeeper
from waltz.common.zk.protected import AclNodes, Login, read_protection
from waltz.common.zk.protection import (
    DOCUMENT_PATH,
    OPEN,
    PREPARED,
    Acl,
    Protection,
    ProtectionError,
    Role,
    checked,
    relative,
)
from waltz.common.zk.store_admin import read_cluster_params, sync_cluster

logger = logging.getLogger(__name__)

_PASSES = 20
"""Nodes may come while the tree is walked; each pass is for those that came during the one before."""
_AT_ONCE = 50
_MASKED = ":x"
"""In place of a hash for users who may not change the list."""


class AclZooKeeper(ZooKeeper, AclNodes, Protocol):
    """A client that can also read and write access control lists."""

    @property
    def login(self) -> Login | None:
        """The user of this process."""
        ...


class Finding(NamedTuple):
    """A node whose list is not what it has to be."""

    path: str
    is_open: bool
    """Whether everybody has rights there that nobody without a user should have."""
    found: Acl
    wanted: Acl

    def __str__(self) -> str:
        kind = "open" if self.is_open else "differs"
        return f"{kind}: {self.path} has {_listed(self.found)}, not {_listed(self.wanted)}"


async def protect(zookeeper: AclZooKeeper, root: str, protection: Protection) -> int:
    """Protect the tree, or change its protection. Returns the number of nodes whose lists were changed.

    Raises ``ProtectionError`` when this process itself could not change the tree afterwards, ``StoreAdminError``
    without a cluster, ``ZooKeeperError``. After any error it can be repeated.
    """
    checked(protection)
    login = zookeeper.login
    if login is None:
        raise ProtectionError("this process has no zookeeper.user; protect the tree as a user with the role admin")
    if login.identity not in protection.users[Role.ADMIN]:
        raise ProtectionError(
            f"user {login.user} of this process is no user with the role admin, or has another password there: it "
            "could not change the tree afterwards"
        )
    await read_cluster_params(zookeeper, root)
    with contextlib.suppress(NodeExistsError):
        await zookeeper.create_with(f"{root}/ext", None, OPEN)  # clients may create their nodes there until it is done
    for path, data in PREPARED.items():
        with contextlib.suppress(NodeExistsError):
            await zookeeper.create_with(f"{root}/{path}", data, protection.acl_of(path))
    # Before the walk, so that what is created behind it has its list: see waltz.common.zk.protected.
    await _write(zookeeper, root, protection)
    return await _settle(zookeeper, root, protection)


async def unprotect(zookeeper: AclZooKeeper, root: str) -> int:
    """Open the whole tree to everybody. Returns the number of nodes whose lists were changed; may be repeated.

    Raises ``ProtectionError`` when nodes kept coming, ``StoreAdminError`` without a cluster, ``ZooKeeperError``.
    """
    await sync_cluster(zookeeper, root)
    with contextlib.suppress(NoNodeError):
        await zookeeper.delete(f"{root}/{DOCUMENT_PATH}")
    return await _settle(zookeeper, root, None)


async def check(zookeeper: AclZooKeeper, root: str) -> list[Finding]:
    """The nodes whose lists are not those of the protection; in a tree without protection all that is open.

    Raises ``ProtectionError`` when the protection cannot be understood, ``StoreAdminError`` without a cluster,
    ``ZooKeeperError``.
    """
    await sync_cluster(zookeeper, root)
    return await findings(zookeeper, root, await read_protection(zookeeper, root))


async def findings(zookeeper: AclZooKeeper, root: str, protection: Protection | None) -> list[Finding]:
    """What differs from a protection; without one, every node to which everybody has any right."""
    found: list[Finding] = []
    async for path, acl in _walk(zookeeper, root):
        if any(entry.scheme == "digest" and entry.id.endswith(_MASKED) for entry in acl):
            raise ProtectionError(f"ZooKeeper does not show this user all of the list of {path}: look as an admin")
        if protection is None:
            if _rights_of_everybody(acl):
                found.append(Finding(path, True, acl, frozenset()))
        elif not protection.accepts(_below(root, path), acl):
            wanted = protection.acl_of(_below(root, path))
            is_open = bool(_rights_of_everybody(acl) & ~_rights_of_everybody(wanted))
            found.append(Finding(path, is_open, acl, wanted))
    return sorted(found)


async def _write(zookeeper: AclZooKeeper, root: str, protection: Protection) -> None:
    path, data = f"{root}/{DOCUMENT_PATH}", protection.encode()
    try:
        await zookeeper.create_with(path, data, protection.acl_of(DOCUMENT_PATH))
    except NodeExistsError:
        # Its list first: a process that reads the new users has to be able to.
        await zookeeper.set_acl(path, protection.acl_of(DOCUMENT_PATH))
        await zookeeper.set(path, data)


async def _settle(zookeeper: AclZooKeeper, root: str, protection: Protection | None) -> int:
    """Give each node its list, until a whole pass finds nothing to be done."""

    def wanted(path: str) -> Acl:
        return OPEN if protection is None else protection.acl_of(_below(root, path))

    changed = 0
    for _ in range(_PASSES):
        await zookeeper.sync(root)
        others = [path async for path, acl in _walk(zookeeper, root) if acl != wanted(path)]
        if not others:
            return changed
        await _in_groups(others, lambda path: _set(zookeeper, path, wanted(path)))
        changed += len(others)
        logger.info("the access control lists of %d nodes were changed", len(others))
    raise ProtectionError(
        f"other processes kept creating nodes with other lists below {root}; are there some without zookeeper.user, or "
        "with other users? Look at waltz zookeeper protect --check, and repeat the command"
    )


async def _set(zookeeper: AclZooKeeper, path: str, acl: Acl) -> None:
    with contextlib.suppress(NoNodeError):  # gone meanwhile
        await zookeeper.set_acl(path, acl)


async def _walk(zookeeper: AclZooKeeper, root: str) -> AsyncIterator[tuple[str, Acl]]:
    """Every node of the tree with its list, parents first; those that go meanwhile are left out."""
    level = [root]
    while level:
        below: list[str] = []
        for start in range(0, len(level), _AT_ONCE):
            group = level[start : start + _AT_ONCE]
            for path, looked in zip(
                group, await asyncio.gather(*(_look(zookeeper, path) for path in group)), strict=True
            ):
                if looked is not None:
                    acl, names = looked
                    yield path, acl
                    below += [f"{path}/{name}" for name in sorted(names)]
        level = below


async def _look(zookeeper: AclZooKeeper, path: str) -> tuple[Acl, list[str]] | None:
    try:
        return await zookeeper.acl(path), await zookeeper.children(path)
    except NoNodeError:
        return None


async def _in_groups(paths: list[str], work: Callable[[str], Awaitable[None]]) -> None:
    for start in range(0, len(paths), _AT_ONCE):
        await asyncio.gather(*(work(path) for path in paths[start : start + _AT_ONCE]))


def _below(root: str, path: str) -> str:
    below = relative(root, path)
    assert below is not None, "the walk begins at the root"
    return below


def _rights_of_everybody(acl: Acl) -> int:
    return next((entry.permissions for entry in acl if (entry.scheme, entry.id) == ("world", "anyone")), 0)


def _listed(acl: Acl) -> str:
    return ", ".join(sorted(map(str, acl))) or "nothing for everybody"
