"""One storage in one store session, and reads from storages.

1. ``replica``: connect, recover, follow the batches of the session; ``replica_stages`` (pure) its states;
   ``replica_session`` its view of the session; ``replica_view`` (pure) the operators' view of it.
2. ``copying`` brings a replica up to date from the others; ``sizing`` (pure) chooses the size of a read.
3. ``reader`` reads committed records; ``router`` (pure) chooses the replica.
"""
