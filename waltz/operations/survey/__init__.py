"""The combined reports of all nodes of a cluster, for commands and the web console.

1. ``survey`` asks every node; ``evidence`` adds the progress of replicas at their storages.
2. ``replica_judgement`` (pure) gives each replica its state, with cause and remedy; ``checks`` (pure) find
   contradictions.
3. ``cluster_state`` arranges the reports by partition; ``problems`` (pure) describes the problems, the worst first;
   ``zone_risks`` (pure) finds the partitions that the loss of a zone would stop.
"""
