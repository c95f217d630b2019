"""One store session: the period in which one server writes one partition under one session id.

1. ``session``: from its recovery to its end.
2. ``settlement``: the fate of appends that the previous session left undecided.
3. ``times``: the times of commits are reported to the storages, and asked of them.
4. ``next_session`` takes the number of the following session; ``continuity`` (pure) checks that no other owner came in
   between.
"""
