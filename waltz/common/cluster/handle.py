"""The access of a program to the nodes of one cluster, as one value."""

import ssl
from typing import NamedTuple

from waltz.common.zk.client import ZooKeeper


class ClusterHandle(NamedTuple):
    """The cluster of a program. The program owns the ZooKeeper session and closes it."""

    zookeeper: ZooKeeper
    root: str
    """The cluster's root znode."""
    tls: ssl.SSLContext | None
    """TLS of connections to servers and storages; ``None`` for plaintext."""
