"""``waltz-archive``: the process that copies committed transactions to the object store.

1. ``due`` (pure): the rule for partitions that are due; ``times``: times of commits, from the owners.
2. ``source``: the records of a partition from its replicas; ``copying``: objects from records; ``comparing``: replicas
   against the archive; ``restoring``: replicas from the archive.
3. ``archiver``: the loop over all partitions; ``archive_metrics``: its metrics.
4. ``daemon``: the process.
"""
