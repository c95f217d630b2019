"""Requests of a client that are no appends and no feeds.

1. ``data_requests``: single transactions; ``data_lists``: bulk reads; ``marks``, ``last_transaction``: its end.
2. ``prefetch``: transactions that a feed will need soon.
3. ``admin``: requests to servers instead of partitions.
"""
