"""Interfaces of the servers and clients that the cluster manager manages."""

from typing import Protocol

from waltz.common.ids import Endpoint
from waltz.common.zk.znodes import PartitionGeneration


class ManagedServer(Protocol):
    """A server of this process. The calls are made in the event loop. They must be quick and must not raise."""

    endpoint: Endpoint

    def cluster_joined(self, cluster_name: str, server_id: int) -> None:
        """Called once, before any partitions."""

    def set_partitions(self, partitions: list[PartitionGeneration]) -> None:
        """Take the present partitions of this server."""


class ManagedClient(Protocol):
    """A client of this process. The calls are made in the event loop. They must be quick and must not raise."""

    def cluster_joined(self, cluster_name: str, client_id: int, partition_count: int) -> None:
        """Called once, before any endpoints."""

    def set_endpoints(self, endpoints: dict[Endpoint, list[PartitionGeneration]]) -> None:
        """Take all servers with their partitions."""

    def remove_server(self, endpoint: Endpoint) -> None:
        """A server has left the cluster."""
