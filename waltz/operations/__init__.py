"""Everything that moves, repairs and surveys a cluster, without a command line: for commands, console and programs.

1. ``survey``: the state of a cluster, as all its nodes report it.
2. ``storages``: assignment, validation, copies; ``copying``: records from one storage to another; ``filling``: a new
   replica; ``repair``: damaged records restored from other replicas.
3. ``partition_moves`` (pure) plans which partitions move between servers, ``partition_moving`` moves them.
4. ``write_sessions``: write sessions as owners report them, and fences.
5. ``placing``: storages for new replicas. ``replica_moves`` (pure) decides the next step of a replica that moves
   between storages, ``replica_moving`` takes it, ``clearing`` deletes its old files; ``replica_rebalancing`` moves
   them until they are spread and even.
6. ``lost_replicas`` (pure) decides which transactions a partition keeps that has lost a majority for good,
   ``accepting_loss`` writes the decision down.
7. ``protecting``: access control lists for the tree in ZooKeeper.
"""
