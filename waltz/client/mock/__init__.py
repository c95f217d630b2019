"""A cluster inside the process, for tests of applications: no sockets, no servers, no ZooKeeper.

The client library is the real one, down to the bytes of the protocol; only the far end of its connections is mocked.

1. ``driver``: given to the client library in place of a cluster; ``cluster``: the cluster that clients see.
2. ``transport``: connections in memory; ``connection``: the server's end of one.
3. ``partition``: the log of a partition; ``nodes``: the ZooKeeper nodes of tables and consumers.
"""

from waltz.client.mock.driver import MockDriver
from waltz.client.mock.partition import MockServerPartition

__all__ = ["MockDriver", "MockServerPartition"]
