"""One partition of the stream half of an engine.

1. ``partition``: the mediator.
2. ``mount`` with ``mount_states`` (pure): the registration on the server that owns the partition.
3. ``appends``: submissions and their outcomes, with ``places`` (admission), ``monitor`` (undecided appends),
   ``deferred`` (outcomes that wait for the feed), ``guarantees`` (commits that wait for all storages) and ``probe`` (an
   append that tests the server).
4. ``feed``: committed transactions, applied in order.
5. ``write_session`` (a state machine) and ``partition_session`` (its requests): the right to append.
"""
