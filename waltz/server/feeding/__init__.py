"""Committed transactions on their way to clients.

1. ``feed``: the headers that each connection gets; ``feed_frames``: their encoded form.
2. ``transaction_data`` answers single reads, ``data_lists`` bulk reads.
3. ``caches``: recent frames and data, shared by all partitions of a server.
"""
