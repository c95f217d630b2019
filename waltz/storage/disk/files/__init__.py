"""The border to the operating system.

1. ``files``: the narrow interface to files, its implementation, and group sync.
2. ``disk_threads``: threads for blocking calls; ``disk_pace``: whether the disk is fast enough to do without them.
3. ``tail_file``: a file whose end may wait in memory. ``descriptors``: open descriptors of segments.
4. ``slot_file``: a file with two slots for each partition.
"""
