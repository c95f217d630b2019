"""The reports of all nodes of a cluster, put together for commands and for the web console.

1. ``survey`` asks every node; ``evidence`` adds how far replicas have come at their storages.
2. ``replica_judgement`` (pure) gives each replica its state, with the cause and what mends it; ``checks`` (pure) find
   contradictions.
3. ``cluster_state`` arranges the reports by partition; ``problems`` (pure) says in words what is
   wrong, the worst first.
"""
