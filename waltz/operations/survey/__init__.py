"""The reports of all nodes of a cluster, put together for commands and for the web console.

1. ``survey`` asks every node; ``replica_reports`` asks storages about their replicas.
2. ``checks`` (pure) find contradictions.
3. ``cluster_state`` arranges the reports by partition.
"""
