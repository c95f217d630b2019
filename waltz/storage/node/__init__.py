"""The process that serves a storage directory, with a data port for servers and an admin port for operators.

1. ``session_rule`` (pure): the requests that a partition accepts; ``request_queue``; ``durability``: how changes
   reach the disk; ``partition``: appends are gathered, made durable and acknowledged; ``replies``.
2. ``journaled``: one journal for all partitions of a disk; ``journal_state``: the content of the journal, with
   ``debts`` (pure); ``journal_jobs``: one change of a partition; ``turns``: changes of many partitions become durable
   together; ``without_journal``: changes that no journal takes; ``checkpoints``; ``journal_start``.
3. ``disks``: the journal and the threads of each disk; ``manager``: all partitions of the directory; ``data_port`` and
   ``admin_port``; ``node``: the process.
4. ``times``: times of commits; ``scrubber``: background scans; ``findings``: known damage, for health and metrics;
   ``moving``: the copy of a partition for another disk.
5. ``partition_metrics`` and ``descriptions``: measurements.
"""
