"""``waltz-mirror``: the process that copies the partitions of one cluster into another, with equal ids.

1. ``comparing``: the first difference of two logs; ``window`` (pure): what is in flight;
   ``lag`` (pure): how far and for how long the target is behind.
2. ``claims``: whether a partition of the target is a mirror, and of which cluster, in the target's ZooKeeper.
3. ``source_log``: the source as a client reads it, beside the target. ``target_link``: the one connection on which a
   mirror appends, in its exclusive write session, in order.
4. ``attempts``: one after the other, with the lock; ``partition_mirror``: one partition, from its end on; ``mirror``:
   all of them, and their lags;
   ``promotion``: the end of a mirror.
5. ``mirror_metrics``, ``daemon``: the process. ``errors``: what can be wrong.
"""
