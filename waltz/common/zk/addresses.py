"""Checks the form of a cluster's address in a configuration, and the way in, without a connection."""

from kazoo.hosts import collect_hosts
from pydantic import BaseModel

from waltz.common.brief import shown
from waltz.common.config.schemas import ClusterConfig
from waltz.common.errors import ConfigError
from waltz.common.zk.configured import TLS_IS_OFF, ProcessConfig, configured_login
from waltz.common.zk.paths import ClusterPaths


def address_problems(config: BaseModel, source: str) -> list[str]:
    """One text for each wrong part of the address; ``source`` is the configuration's name in the texts."""
    found: list[str] = []
    if isinstance(config, ClusterConfig):
        given = config.zookeeper_connect_string
        try:
            collect_hosts(given)
        except ValueError as error:
            found.append(f"{source}: zookeeper.connectString {shown(given)} is not host:port,host:port,...: {error}")
        try:
            ClusterPaths.of(config.cluster_root)
        except ConfigError as error:
            found.append(f"{source}: {error}")
        try:
            configured_login(config)
        except ConfigError as error:
            found.append(f"{source}: {error}")
        if isinstance(config, ProcessConfig) and config.zookeeper_ssl_enabled and config.tls.plaintext:
            found.append(f"{source}: {TLS_IS_OFF}")
    return found
