"""``waltz zookeeper protect``: access control lists for every node of the cluster's tree."""

import argparse
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from waltz.cli.output import confirm, show, yes_option
from waltz.cli.session import Nouns, Session, cluster_command
from waltz.common.brief import shown_key
from waltz.common.config.yaml_file import read_yaml
from waltz.common.errors import WaltzError
from waltz.common.metrics.registry import Json
from waltz.common.zk.protected import read_protection
from waltz.common.zk.protection import (
    MIN_PASSWORD_LENGTH,
    USER_NAME,
    Protection,
    ProtectionError,
    Role,
    checked,
    identity_of,
    open_for_original,
)
from waltz.common.zk.store_admin import read_store_params
from waltz.operations.protecting import check, protect, unprotect

if TYPE_CHECKING:
    from waltz.operations.protecting import AclZooKeeper

logger = logging.getLogger(__name__)

_OTHERS = 0o077


def register(verbs: Nouns) -> None:
    """Add the verb to ``waltz zookeeper``."""
    help_text = "restrict the cluster's tree to users with passwords; each role gets the rights it needs"
    parser = cluster_command(verbs, "protect", help_text, _protect, prints=True)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--users",
        type=Path,
        metavar="FILE",
        help="protect the tree for these users, or change its users: a YAML file with names and passwords below "
        "server, storage, client, enforcer and admin",
    )
    what.add_argument(
        "--check",
        action="store_true",
        help="only print the znodes that are open, or differ; exit code 1 if there are any",
    )
    what.add_argument("--open", action="store_true", help="remove the protection: everybody may do everything")
    parser.add_argument(
        "--with-original-nodes",
        action="store_true",
        help="leave open the znodes that nodes and clients of the original need, since these have no users",
    )
    yes_option(parser)


async def _protect(options: argparse.Namespace, session: Session) -> None:
    zookeeper = _with_lists(session)
    if options.with_original_nodes and options.users is None:
        raise WaltzError("--with-original-nodes is for --users; the tree remembers it")
    await read_store_params(zookeeper, session.root)  # fails without a cluster
    if options.check:
        await _check(options, zookeeper, session.root)
    elif options.open:
        confirm(options, f"open the tree at {session.root} to everybody with access to ZooKeeper?")
        changed = await unprotect(zookeeper, session.root)
        show(options, {"changed": changed}, [f"the tree is open to everybody; {changed} nodes were changed"])
    else:
        protection = read_users(options.users, with_original_nodes=options.with_original_nodes)
        changed = await protect(zookeeper, session.root, protection)
        lines = [f"the tree is protected; {changed} nodes were changed", *_left_open(protection)]
        show(options, {"changed": changed, "with_original_nodes": protection.with_original_nodes}, lines)


async def _check(options: argparse.Namespace, zookeeper: "AclZooKeeper", root: str) -> None:
    found = await check(zookeeper, root)
    protection = await read_protection(zookeeper, root)
    lines = [str(each) for each in found]
    if protection is not None:
        lines += _left_open(protection)
    nodes: list[Json] = [{"path": each.path, "open": each.is_open} for each in found]
    show(options, {"protected": protection is not None, "nodes": nodes}, lines)
    if protection is None:
        raise WaltzError(f"the tree at {root} is not protected: waltz zookeeper protect --users FILE")
    if found:
        raise WaltzError(f"{len(found)} nodes are open, or differ; waltz zookeeper protect --users FILE repairs them")


def _left_open(protection: Protection) -> Iterator[str]:
    if protection.with_original_nodes:
        yield "open to everybody, for nodes and clients of the original:"
        yield from (f"  {pattern or 'the root'}: {rights}" for pattern, rights in open_for_original())


def _with_lists(session: Session) -> "AclZooKeeper":
    from waltz.common.zk.kazoo_client import KazooZooKeeper

    assert isinstance(session.zookeeper, KazooZooKeeper), "commands connect by it"
    return session.zookeeper


def read_users(path: Path, *, with_original_nodes: bool = False) -> Protection:
    """Read the users from a file: a mapping of roles to mappings of names to passwords.

    Raises:
        ConfigError: The file is not YAML.
        ProtectionError: A user or a password is not valid. The text contains no password.
    """
    document = read_yaml(path)
    if path.stat().st_mode & _OTHERS:
        logger.warning("%s can be read by others: chmod 600 %s", path, path)
    users = {}
    for name, given in document.items():
        try:
            role = Role(name)
        except ValueError:
            roles = ", ".join(each.value for each in Role)
            raise ProtectionError(f"{path}: {shown_key(str(name))} is not a role; the roles are {roles}") from None
        if not isinstance(given, dict):
            raise ProtectionError(f"{path}: {role.value} needs lines of the form 'name: password' below it")
        users[role] = tuple(_identity(path, str(user), password) for user, password in given.items())
    return checked(Protection(users, with_original_nodes))


def _identity(path: Path, user: str, password: object) -> str:
    if USER_NAME.fullmatch(user) is None:
        raise ProtectionError(f"{path}: a name of a user has at most 128 characters, without colons and blanks")
    if not isinstance(password, str):
        raise ProtectionError(f"{path}: the password of {user} is not text; put it in quotes")
    if len(password) < MIN_PASSWORD_LENGTH or password != password.strip():
        raise ProtectionError(
            f"{path}: the password of {user} has fewer than {MIN_PASSWORD_LENGTH} characters, or blanks around it; "
            "make one by: openssl rand -base64 24"
        )
    return identity_of(user, password)
