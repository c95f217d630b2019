"""``waltz-archive``: the process that copies what is committed to the object store.

1. ``due`` (pure): which partitions are due; ``times``: when transactions were committed, by the owners.
2. ``source``: the records of a partition from its replicas; ``copying``: objects of these; ``comparing``: replicas
   beside the archive; ``restoring``: replicas from the archive.
3. ``archiver``: all partitions, again and again; ``archive_metrics``: what it shows of them.
4. ``daemon``: the process.
"""
