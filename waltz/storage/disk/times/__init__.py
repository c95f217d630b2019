"""The time index of one partition: the times at which transactions were committed.

1. ``time_format`` (pure): bytes of the files, and the search in them.
2. ``time_index``: the files of a partition.
"""
