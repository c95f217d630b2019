"""The replicated log behind one partition: an append is committed when a quorum of storages has made it durable.

The quorum itself is :mod:`waltz.common.cluster.quorum`.

1. ``interface``: the contract between a log and its user.
2. ``recovery`` (pure): the beginning of a session.
3. ``replica``: one storage in one session; ``session``: the I/O of one session over its replicas.
4. ``log``: an endless sequence of sessions.
5. Shared by all of these: ``ring`` (the batches of a session), ``memory`` (the account of all partitions),
   ``metadata_node`` (the znode of a partition), ``connections`` (to the storages) and ``timings`` (latencies of
   storages).
"""
