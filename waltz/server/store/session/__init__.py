"""One store session: the period in which one server writes one partition under one session id.

1. ``session``: from its recovery to its end.
2. ``settlement``: the fate of appends that the previous session left undecided.
3. ``times``: the storages are told what was committed when, and asked for it.
4. ``next_session`` takes the number of the session that follows; ``continuity`` (pure) checks that no other owner came
   between.
"""
