"""The owners of the partitions, according to the reports of the cluster. Pure."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from waltz.common.ids import Endpoint


class Assigned(Protocol):
    """A partition and its generation in the lists of the cluster manager."""

    @property
    def partition_id(self) -> int:
        """The partition."""
        ...

    @property
    def generation(self) -> int:
        """Its generation."""
        ...


class Owner(NamedTuple):
    """The server of a partition, and the generation of that assignment."""

    endpoint: Endpoint
    generation: int


class Assignments:
    """The last known owner of each partition. Older reports are ignored."""

    __slots__ = ("_owners",)

    def __init__(self) -> None:
        self._owners: dict[int, Owner] = {}

    def update(self, endpoints: Mapping[Endpoint, Sequence[Assigned]]) -> dict[int, Owner]:
        """Take a new assignment. Returns the partitions whose endpoint or generation has changed."""
        changed: dict[int, Owner] = {}
        for endpoint, partitions in endpoints.items():
            for partition in partitions:
                owner = Owner(endpoint, partition.generation)
                known = self._owners.get(partition.partition_id)
                if known != owner and (known is None or owner.generation >= known.generation):
                    self._owners[partition.partition_id] = changed[partition.partition_id] = owner
        return changed

    def remove(self, endpoint: Endpoint) -> list[int]:
        """Remove a server. Returns its partitions. Their generations stay known until they have another owner."""
        gone = [partition_id for partition_id, owner in self._owners.items() if owner.endpoint == endpoint]
        for partition_id in gone:
            del self._owners[partition_id]
        return gone

    def owner(self, partition_id: int) -> Owner | None:
        """The owner, if known."""
        return self._owners.get(partition_id)
