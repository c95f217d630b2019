"""Programs that test a cluster during production, in a partition of their own.

1. ``bot``: the common interface; ``running``: a bot from its first operation to its end; ``opening``: its partition and
   clients; ``status``: its state over HTTP.
2. ``journal`` reports every operation, and ``history`` is the file of operations; ``troubles`` repeats failed attempts;
   ``clock`` has timestamps.
3. ``bank``: transfers between accounts, checked by ``audit`` (pure).
4. ``row_bot``: bots that know the possible values of each row (``expected``, pure): ``random_operations`` and
   ``coal_mine``.
5. ``prover``: concurrent clients, checked by ``register`` (pure).
"""
