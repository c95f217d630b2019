"""Requests of a client other than appends and feeds.

1. ``data_requests``: single transactions; ``data_lists``: bulk reads; ``marks``, ``last_transaction``: the log's end;
   ``times``: which transaction was committed when.
2. ``prefetch``: transactions that a feed will need soon.
3. ``admin``: requests to servers instead of partitions.
"""
