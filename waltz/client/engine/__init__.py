"""The engine of a client. It knows submissions and appliers, and nothing of the faces that make them.

1. ``submission`` and ``feed.Applier``: all that a face has to implement. ``environment``: what an engine is given.
2. ``engine``: joins the cluster and owns the two halves, ``stream`` (appends and feeds) and ``rpc`` (everything else).
3. ``partition``: a partition of the stream is its ``mount`` (with ``mount_states``), its ``appends`` (with ``places``,
   ``monitor`` and ``deferred``: how many, which are undecided, what is decided too early) and its ``feed``.
4. ``data_requests``, ``data_lists``, ``prefetch``, ``admin``: what is asked over the other half.
5. ``links`` (with ``assignments`` and ``silence``): the connections below both.
"""
