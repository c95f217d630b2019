"""A cluster inside the process, for tests of applications: no sockets, no servers, no ZooKeeper.

The client library is the real one, down to the bytes of the protocol; only what is behind its connections is not.
"""

from waltz.client.mock.driver import MockDriver
from waltz.client.mock.partition import MockServerPartition

__all__ = ["MockDriver", "MockServerPartition"]
