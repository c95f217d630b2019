"""The access of a node to its rules: made at the start, from the node's configuration."""

import random
from typing import NamedTuple

from waltz.common.access import ANONYMOUS
from waltz.common.acl.enforcement import RuleAccess
from waltz.common.acl.mapping import DEFAULT, principal_mapping
from waltz.common.acl.watch import RuleWatch
from waltz.common.config.schemas import AclConfig
from waltz.common.errors import ConfigError
from waltz.common.metrics.registry import Registry
from waltz.common.zk.client import ZooKeeper


class NodeRules(NamedTuple):
    """The access rules at one node."""

    access: RuleAccess
    watch: RuleWatch


def super_principals(text: str) -> list[str]:
    """The principals of ``acl.superPrincipals``. Raises ``ConfigError`` for "anonymous"."""
    found = [each.strip() for each in text.split(";") if each.strip()]
    if ANONYMOUS in found:
        raise ConfigError("acl.superPrincipals: peers without a certificate cannot have all rights")
    return found


async def start_rules(
    config: AclConfig,
    zookeeper: ZooKeeper,
    root: str,
    name: str,
    partition_count: int,
    registry: Registry,
    random_source: random.Random,
) -> NodeRules:
    """Read the access rules and follow them. ``name`` is that of the node, such as ``server-HOST:PORT``.

    Without usable rules the node serves super principals only, which is logged.

    Raises ``WaltzError`` for a mistake in the configuration, and when ZooKeeper cannot be read.
    """
    mapping = principal_mapping(config.principal_mapping or DEFAULT)
    access = RuleAccess(partition_count, mapping, super_principals(config.super_principals or ""))
    watch = RuleWatch(zookeeper, root, access, name, partition_count, random_source)
    watch.add_metrics(registry)
    await watch.start()
    return NodeRules(access, watch)
