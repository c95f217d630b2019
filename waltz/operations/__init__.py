"""Moves, repairs and surveys of clusters, without a command line: for commands, console and programs.

1. ``survey``: the state of a cluster, as all its nodes report it.
2. ``storages``: assignment, validation, copies; ``copying``: records from one storage to another; ``filling``: a new
   replica; ``repair``: damaged records restored from other replicas; ``times``: their times.
3. ``partition_moves`` (pure) plans which partitions move between servers, ``partition_moving`` moves them.
4. ``write_sessions``: write sessions as owners report them, and fences.
5. ``placing``: storages for new replicas. ``replica_moves`` (pure) decides the next step of a move of a replica between
   storages, ``replica_moving`` takes the steps, ``clearing`` deletes the old files; ``replica_rebalancing`` moves
   replicas until they are evenly spread.
6. ``lost_replicas`` (pure) decides which transactions a partition keeps after the permanent loss of a majority,
   ``accepting_loss`` records the decision.
7. ``trimming``: how far a partition may be trimmed, and who would be hurt; ``features``: the nodes that stand in the
   way; ``archived``: how far the archive goes; ``retention``: trims by the properties of a partition.
8. ``protecting``: access control lists for the tree in ZooKeeper.
"""
