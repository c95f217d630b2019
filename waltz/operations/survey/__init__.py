"""The reports of all nodes of a cluster, put together for commands and for the web console.

1. ``survey`` asks every node; ``evidence`` adds the progress of replicas at their storages.
2. ``replica_judgement`` (pure) gives each replica its state, with cause and remedy; ``checks`` (pure) find
   contradictions.
3. ``cluster_state`` arranges the reports by partition; ``problems`` (pure) describes what is wrong, the worst first;
   ``zone_risks`` (pure) are what the death of a zone would stop.
"""
