"""Requests of a client other than appends and feeds.

1. ``data_requests``: single transactions; ``data_lists``: bulk reads; ``marks``, ``last_transaction``: the end of the
   log; ``times``: the times of commits.
2. ``prefetch``: data of transactions that a feed will need soon.
3. ``admin``: requests to servers instead of partitions.
"""
