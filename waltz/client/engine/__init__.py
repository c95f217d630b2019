"""The engine of a client, which takes submissions and appliers of any face.

1. ``submission`` and ``partition.feed.Applier``: the interface of a face. ``environment``, ``settings`` and ``tasks``:
   the surroundings of an engine.
2. ``engine`` joins the cluster (``joining``) and owns two halves: ``stream`` (appends and feeds) and ``rpc`` (all other
   requests). ``sessions``: write sessions of all partitions. ``metrics``: its counters.
3. ``partition``: one partition of the stream.
4. ``reads``: requests of the other half.
5. ``links``: the connections below both.
"""
