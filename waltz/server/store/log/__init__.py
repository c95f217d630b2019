"""The log that a partition writes to, over a sequence of store sessions.

1. ``log``: the driver; ``log_states`` (pure) its states.
2. ``batching`` (pure): accepted appends become batches; ``pacing`` (pure): renewals of a session;
   ``replica_change``: checks that another set of replicas can take over.
3. ``log_reader``: reads through the current session or the next one.
"""
