"""One segment of a partition's log.

1. ``segment_format`` (pure): its bytes.
2. ``segment``: the open segment; ``segment_opening``: its files at creation and opening.
3. ``segment_recovery`` with ``torn_write`` (pure): the decision about the end of the last segment.
4. ``scan``: the check of all records, piece by piece.
"""
