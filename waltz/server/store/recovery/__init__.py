"""The beginning of a store session. Pure.

1. ``recovery``: the state machine; ``recovery_effects``: its effects.
2. ``replica_states``: the replicas in the metadata, and their changes by a session.
"""
