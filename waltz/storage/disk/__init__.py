"""The files of a storage node, without sockets, requests or sessions.

1. ``files``: the border to the operating system, and group sync.
2. ``segment``: one segment of a log: format, opening, recovery, scan.
3. ``log``: all segments of one partition.
4. ``times``: which transactions were committed when.
5. ``journal``: what was written lazily to all segments, durable with one sync.
6. ``control_file`` and ``fence``: state of all partitions; ``clean_stop``: the note of an orderly stop.
7. ``volumes``: where the partitions are, on several disks; ``directory_copy``: a partition's files for another disk;
   ``balance`` (pure): which partitions to move.
8. ``directory``: all of it together. ``salvage`` repairs a closed partition. ``journal_set``: which journals count.
9. ``offline``: the control file without the node; ``inspection`` looks at files offline, ``draining`` leaves them
   without a journal.
"""
