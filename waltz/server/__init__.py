"""A server: it owns partitions, checks locks, orders and replicates appends, and feeds what was committed.

1. ``partition``: what requests, log and sessions of one partition have to do with each other; begin here.
2. Its decisions are pure: ``locks`` and ``admission`` (which appends get in, under which ids), ``sequencer`` (what may
   be looked at or answered now), ``registrations`` (which connection of a client counts).
3. ``appends`` in, ``feed`` (with ``feed_frames``) out; ``transaction_data``, ``data_lists`` and ``caches`` for reads.
4. ``connection`` and ``service`` bring requests from clients to partitions; ``node`` is the process.
5. ``store``: the replicated log behind a partition, which knows nothing of locks and clients.
"""
