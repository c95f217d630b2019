"""Membership of a cluster, and the owner of each partition.

1. ``policy`` (assignment of partitions), ``decisions`` (reactions to changes), ``quorum`` and ``placement`` (storages
   of partitions, by zones) are pure.
2. ``handle``: all that is needed to reach a cluster.
3. ``manager`` carries decisions out for the servers and clients of a process, which are ``managed``; ``server_nodes``
   follows the servers in ZooKeeper. ``following`` reads a part of ZooKeeper again after each change.
4. ``marks`` and ``replicas`` are rule S6 for bulk readers of the log: first the committed marks, from the ``owners``
   of the partitions, and only then the replicas that may serve.
"""
