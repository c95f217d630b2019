"""The log of one partition: ordered segments, the last of which grows.

1. ``log``: appends, reads, truncation; ``log_view``: the log as readers see it.
2. ``group_encoder`` (pure): a group of appends as bytes, divided among segments.
3. ``log_opening``: the segments that are found at start. ``damage``: known damage.
   ``trim_point``: where a trimmed log begins.
"""
