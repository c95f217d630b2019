"""The replicated log behind one partition: what is accepted is on a quorum of storages before it is called committed.

1. ``interface``: what a log and its user say to each other; ``log``: one session after the other, for ever.
2. ``recovery`` (with ``recovery_effects``) and ``voting``: how a session begins, and what a quorum is. Both are pure;
   ``replica_states`` is what they leave in the metadata.
3. ``session`` and ``replica``: the I/O of one session; ``ring``: its batches; ``settlement``: what it decides about the
   appends of its predecessor.
4. ``reader``, ``router``, ``copying``: reading from replicas, and bringing one up to date from the others.
"""
