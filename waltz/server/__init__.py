"""A server: it owns partitions, checks locks, orders and replicates appends, and feeds committed transactions.

The rooms, from the bottom up:

1. ``store``: the replicated log behind a partition, without locks and clients.
2. ``requests``: connections of clients, with their requests and appends.
3. ``feeding``: committed transactions on their way out: feed, bulk reads, single reads.
4. ``partition``: locks, order of requests, write sessions; the mediator of one partition. Read it first.
5. ``process``: the partitions of one server, its watches, its place in the cluster. :mod:`waltz.serving` starts it.
"""
