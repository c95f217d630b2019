"""The engine of a client. Each face of the client supplies submissions and an applier.

1. ``submission`` and ``partition.feed.Applier``: the interface of a face. ``environment``, ``settings`` and ``tasks``:
   the surroundings of an engine.
2. ``engine`` joins the cluster (``joining``) and owns two halves: ``stream`` (appends and feeds) and ``rpc`` (all other
   requests). ``sessions``: write sessions of all partitions. ``metrics``: the counters of the engine.
3. ``partition``: one partition of the stream.
4. ``reads``: requests of the other half.
5. ``links``: the connections below both.
"""
