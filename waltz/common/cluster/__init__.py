"""Membership of a cluster, and the owner of each partition.

1. ``policy`` (assignment of partitions), ``decisions`` (reactions to changes), ``quorum`` and ``placement`` (storages
   of partitions, by zones) are pure.
2. ``handle``: all that is needed to reach a cluster.
3. ``manager`` carries out decisions for the ``managed`` servers and clients of a process; ``server_nodes`` follows the
   servers in ZooKeeper; ``following`` reads a part of ZooKeeper again after each change.
4. ``marks`` and ``replicas`` carry out rule S6 for bulk readers of the log: first the committed marks are read from the
   ``owners`` of the partitions, and only then replicas are chosen.
"""
