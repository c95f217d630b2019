"""The access of a node to its rules: made at the start, from the node's configuration."""

import asyncio
import random
from typing import TYPE_CHECKING, Final, NamedTuple

from waltz.common.access import ANONYMOUS
from waltz.common.acl.audit import Audit, refused_token
from waltz.common.acl.audit_file import AuditFile
from waltz.common.acl.claims import claimed_principal
from waltz.common.acl.enforcement import RuleAccess
from waltz.common.acl.mapping import DEFAULT, principal_mapping, principal_sources
from waltz.common.acl.refusals import Tops
from waltz.common.acl.watch import AUDIT_LOST, RuleWatch
from waltz.common.config.schemas import AclConfig
from waltz.common.errors import ConfigError
from waltz.common.metrics.registry import Description, Json, Registry
from waltz.common.net.http import Page, Request, Response, json_page
from waltz.common.net.token_gate import Identities, RefusedToken
from waltz.common.tasks import owned, restarting
from waltz.common.zk.client import ZooKeeper
from waltz.common.zk.znodes import StoreParams

if TYPE_CHECKING:
    from waltz.common.acl.token_files import TokenFiles

UNUSABLE_TOKEN_FILES: Final = Description(
    "waltz_acl_token_files_unusable",
    "gauge",
    (),
    "1 while the changed keys of tokens, or the changed list of withdrawn ones, cannot be used, and the former hold. "
    "Only with `acl.tokens.keys`.",
)

REFUSED_PAGE: Final = "GET /acl/refused"
"""Shows the principals with the most refused requests."""

_SHOWN = 10


class NodeRules(NamedTuple):
    """The access rules at one node."""

    access: RuleAccess
    watch: RuleWatch
    file: AuditFile | None
    """The audit log, if there is one."""

    @property
    def pages(self) -> dict[str, Page]:
        """Pages of the HTTP port by method and path."""

        def refused(request: Request) -> Response:
            return json_page(
                {
                    "principals": _top(self.access.refusals.tops),
                    "over_quota": _top(self.access.throttles.top),
                },
                request,
            )

        return {REFUSED_PAGE: refused}

    async def close(self) -> None:
        """Stop following the rules, and write the end of the audit log."""
        await self.watch.close()
        self.access.audit.end_window()
        if self.file is not None:
            await asyncio.to_thread(self.file.close)


def super_principals(text: str) -> list[str]:
    """The principals of ``acl.superPrincipals``. Raises ``ConfigError`` for "anonymous"."""
    found = [each.strip() for each in text.split(";") if each.strip()]
    if ANONYMOUS in found:
        raise ConfigError("acl.superPrincipals: peers without a certificate cannot have all rights")
    return found


def _top(tops: Tops) -> list[Json]:
    """The principals with the most refused requests, for the page."""
    return [
        {"principal": principal, "refused": refused, "would_refuse": audited}
        for principal, refused, audited in tops.top(_SHOWN)
    ]


class NodeIdentities(NamedTuple):
    """How a node knows its peers."""

    identities: Identities
    following: asyncio.Task[None] | None
    """Follows the files with the keys and with the withdrawn tokens."""

    async def close(self) -> None:
        """Stop following."""
        if self.following is not None:
            self.following.cancel()
            await asyncio.wait((self.following,))


def start_identities(config: AclConfig, cluster_key: str, registry: Registry, audit: Audit) -> NodeIdentities:
    """Read the keys of tokens, and follow them; a node without keys refuses all tokens. Refused ones are noted.

    Raises ``ConfigError`` for files that cannot be used, and for an unknown source of names.
    """
    sources = principal_sources(config.principal_from)
    files = _token_files(config, cluster_key)

    def note(refused: RefusedToken) -> None:
        event = refused_token(refused.claimed, refused.peer, refused.port)
        audit.note(event, (), lambda: str(refused.refusal))

    if files is None:
        return NodeIdentities(Identities(None, sources, claimed=claimed_principal, note=note), None)
    registry.reading(UNUSABLE_TOKEN_FILES, lambda: [((), int(files.problem is not None))])
    identities = Identities(lambda: files.tokens, sources, claimed=claimed_principal, note=note)
    what = "following the keys of tokens"
    return NodeIdentities(identities, owned(restarting(lambda: files.follow(identities.check_all), what), what))


def _token_files(config: AclConfig, cluster_key: str) -> "TokenFiles | None":
    if config.token_keys is None:
        return None
    try:
        from waltz.common.acl.token_files import TokenFiles  # only who takes tokens has the library
    except ImportError:
        raise ConfigError("acl.tokens.keys needs the package PyJWT: pip install 'waltz-log[acl]'") from None
    return TokenFiles(config, cluster_key)


def check_access(config: AclConfig) -> None:
    """Raise ``ConfigError`` for what :func:`start_rules` and :func:`start_identities` would refuse."""
    principal_mapping(config.principal_mapping or DEFAULT)
    super_principals(config.super_principals or "")
    principal_sources(config.principal_from)
    _token_files(config, "")


async def start_rules(
    config: AclConfig,
    zookeeper: ZooKeeper,
    root: str,
    name: str,
    partition_count: int,
    registry: Registry,
    random_source: random.Random,
    *,
    tells: bool = True,
) -> NodeRules:
    """Read the access rules and follow them. ``name`` is that of the node, such as ``server-HOST:PORT``.

    Unless it ``tells`` which rules it applies, nobody waits for it after a change.

    Without usable rules the node serves super principals only, which is logged.

    Raises ``WaltzError`` for a mistake in the configuration, and when ZooKeeper cannot be read.
    """
    mapping = principal_mapping(config.principal_mapping or DEFAULT)
    privileged = super_principals(config.super_principals or "")
    file = None if config.audit_log is None else AuditFile(config.audit_log)
    audit = Audit(name, partition_count, None if file is None else file.write)
    access = RuleAccess(partition_count, mapping, privileged, audit)
    watch = RuleWatch(zookeeper, root, access, name, partition_count, random_source, tells=tells)
    watch.add_metrics(registry)
    if file is not None:
        lost = file
        registry.reading(AUDIT_LOST, lambda: [((), lost.lost)])
    rules = NodeRules(access, watch, file)
    try:
        await watch.start()
    except BaseException:
        await rules.close()
        raise
    return rules


class PageAccess(NamedTuple):
    """How the HTTP port of a process that is no node, such as an archiver, asks its readers."""

    rules: NodeRules
    identities: NodeIdentities

    async def close(self) -> None:
        """Stop following the rules and the keys of tokens."""
        await self.identities.close()
        await self.rules.close()


async def start_page_access(
    config: AclConfig, zookeeper: ZooKeeper, root: str, name: str, store: StoreParams, registry: Registry
) -> PageAccess:
    """Read the access rules and the keys of tokens, and follow them; ``name`` is that of the process in its log.

    Such a process does not tell the cluster which rules it applies: it writes nothing, and no change waits for it.
    Raises like :func:`start_rules` and :func:`start_identities`.
    """
    rules = await start_rules(
        config, zookeeper, root, name, store.partition_count, registry, random.Random(), tells=False
    )
    try:
        identities = start_identities(config, str(store.key), registry, rules.access.audit)
    except BaseException:
        await rules.close()
        raise
    return PageAccess(rules, identities)
