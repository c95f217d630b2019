"""``waltz-mirror``: the process that copies the partitions of one cluster into another, with equal ids.

1. ``comparing``: the first difference of two logs; ``window`` (pure): what is in flight;
   ``lag`` (pure): how far and for how long the target is behind.
2. ``claims``: whether a partition of the target is a mirror, and of which cluster, in the target's ZooKeeper.
3. ``source_log``: the source as a client reads it, beside the target. ``target_link``: the one connection on which a
   mirror appends, in its exclusive write session, in order.
4. ``attempts``: one attempt after the other, and the lock. ``partition_mirror``: one partition, from its end on;
   ``promotion``: the end of a mirror.
5. Tables that both clusters write: ``origins`` (pure): where rows come from, in the log; ``merging`` (pure): which row
   has to win; ``table_mirror``: one such table.
6. ``mirror``: all partitions, and their lags.
7. ``mirror_metrics``, ``daemon``: the process. ``errors``: what can be wrong.
"""
