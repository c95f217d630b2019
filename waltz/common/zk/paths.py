"""The paths of a cluster in the ZooKeeper tree."""

from typing import NamedTuple

from waltz.common.errors import ConfigError

SERVER_NODE_PREFIX = "s_"
"""Name of a server's ephemeral node before the ten digits that ZooKeeper appends."""


class ClusterPaths(NamedTuple):
    """The paths below one cluster root."""

    root: str

    @classmethod
    def of(cls, root: str) -> "ClusterPaths":
        """Check the configured root and make the paths.

        Raises ``ConfigError`` when the root is not absolute, is ``/`` itself, ends in a slash, or has an empty or blank
        part.
        """
        parts = root.split("/")
        if root != root.strip() or len(parts) < 2 or parts[0] or any(part in ("", ".", "..") for part in parts[1:]):
            raise ConfigError(f"cluster.root must be an absolute ZooKeeper path such as /waltz, not {root!r}")
        return cls(root)

    @property
    def server_descriptors(self) -> str:
        """Partition assignment; parent of the servers' ephemeral nodes."""
        return f"{self.root}/serverDescriptors"

    def server_descriptor(self, name: str) -> str:
        """The node of one server, by its name below :attr:`server_descriptors`."""
        return f"{self.root}/serverDescriptors/{name}"

    @property
    def ids(self) -> str:
        """Parent of the id counters."""
        return f"{self.root}/ids"

    @property
    def client_ids(self) -> str:
        """Counter of client ids."""
        return f"{self.root}/ids/client"

    @property
    def server_ids(self) -> str:
        """Counter of server ids."""
        return f"{self.root}/ids/server"

    @property
    def store(self) -> str:
        """Store parameters."""
        return f"{self.root}/store"

    @property
    def admin_lock(self) -> str:
        """The mutex of administrative changes."""
        return f"{self.root}/store/adminLock"

    @property
    def group(self) -> str:
        """Group of every storage."""
        return f"{self.root}/store/group"

    @property
    def assignment(self) -> str:
        """Partitions of every storage."""
        return f"{self.root}/store/assignment"

    @property
    def connection(self) -> str:
        """Admin port of every storage."""
        return f"{self.root}/store/connection"

    @property
    def partitions(self) -> str:
        """Parent of the partitions' metadata."""
        return f"{self.root}/store/partition"

    def partition(self, partition_id: int) -> str:
        """Metadata of one partition."""
        return f"{self.root}/store/partition/{partition_id}"

    @property
    def all_partition_properties(self) -> str:
        """Parent of the properties of partitions: our own, where the original never looks. May be missing."""
        return f"{self.root}/ext/partition"

    def partition_properties(self, partition_id: int) -> str:
        """Properties of one partition."""
        return f"{self.root}/ext/partition/{partition_id}"

    @property
    def clock(self) -> str:
        """Written to know ZooKeeper's time: our own."""
        return f"{self.root}/ext/clock"

    @property
    def features(self) -> str:
        """The features that not all nodes can live with: our own. May be missing."""
        return f"{self.root}/ext/features"

    @property
    def cursors(self) -> str:
        """Parent of the groups whose positions are in ZooKeeper. May be missing."""
        return f"{self.root}/ext/cursor"

    @property
    def consumers(self) -> str:
        """Parent of the groups whose instances share partitions. May be missing."""
        return f"{self.root}/ext/consumer"

    def cursor(self, group: str, partition_id: int) -> str:
        """Position of a group of consumers in a partition."""
        return f"{self.root}/ext/cursor/{group}/{partition_id}"

    def consumer_members(self, group: str) -> str:
        """Parent of the ephemeral nodes of a group's instances, which share partitions: our own, too."""
        return f"{self.root}/ext/consumer/{group}/member"

    def consumer_owners(self, group: str) -> str:
        """Parent of the ephemeral nodes that say which partitions are taken."""
        return f"{self.root}/ext/consumer/{group}/owner"

    def election(self, partition_id: int) -> str:
        """The ephemeral node of the leader of the partition, or of the candidate that is about to lead: our own,
        too."""
        return f"{self.root}/ext/election/{partition_id}"

    @property
    def access_rules(self) -> str:
        """The access rules: our own, too. May be missing."""
        return f"{self.root}/ext/acl"

    @property
    def applied_rules(self) -> str:
        """Parent of the ephemeral nodes that say which access rules the nodes of the cluster apply. May be missing."""
        return f"{self.root}/ext/acl/applied"

    def applied_rules_of(self, name: str) -> str:
        """The access rules that a node applies; ``name`` is ``server-HOST:PORT`` or ``storage-HOST:PORT``."""
        return f"{self.root}/ext/acl/applied/{name}"

    @property
    def partition_names(self) -> str:
        """Names of partitions in access rules. May be missing."""
        return f"{self.root}/ext/names"

    @property
    def replica_moves(self) -> str:
        """Parent of the nodes that say which replicas are being moved: our own, too. May be missing."""
        return f"{self.root}/ext/move"

    def replica_move(self, partition_id: int) -> str:
        """The move of a replica of the partition that has begun."""
        return f"{self.root}/ext/move/{partition_id}"

    @property
    def replica_moves_lock(self) -> str:
        """The mutex of the moves of replicas."""
        return f"{self.root}/ext/moveLock"

    @property
    def archive(self) -> str:
        """The address of the cluster's archive; parent of the archivers' locks: our own, too. May be missing."""
        return f"{self.root}/ext/archive"

    def archive_lock(self, partition_id: int) -> str:
        """The mutex of the archivers of a partition."""
        return f"{self.root}/ext/archive/{partition_id}"

    @property
    def mirrors(self) -> str:
        """Parent of the nodes that say of which cluster a partition is the mirror, and of the mirrors' locks: our own,
        too. May be missing."""
        return f"{self.root}/ext/mirror"

    def mirror(self, partition_id: int) -> str:
        """Of which cluster the partition is the mirror."""
        return f"{self.root}/ext/mirror/{partition_id}"

    def mirror_lock(self, partition_id: int) -> str:
        """The mutex of the processes that mirror the partition."""
        return f"{self.root}/ext/mirror/{partition_id}-lock"

    @property
    def all_storage_labels(self) -> str:
        """Parent of the labels of storages: our own, too. May be missing."""
        return f"{self.root}/ext/storage"

    def storage_labels(self, storage: str) -> str:
        """The labels of one storage, by its connect string."""
        return f"{self.root}/ext/storage/{storage}"

    @property
    def all_rings(self) -> str:
        """Parent of the rings: our own, too. May be missing."""
        return f"{self.root}/ext/ring"

    def ring(self, name: str) -> str:
        """One ring."""
        return f"{self.root}/ext/ring/{name}"

    def view_nodes(self, partition_id: int) -> str:
        """Parent of the ephemeral nodes of the view nodes that serve the partition: our own, too. May be missing."""
        return f"{self.root}/ext/view/{partition_id}"

    def view_node(self, partition_id: int, name: str) -> str:
        """One view node, ``HOST:PORT``, at a partition."""
        return f"{self.root}/ext/view/{partition_id}/{name}"
