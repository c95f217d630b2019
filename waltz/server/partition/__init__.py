"""One partition of a server.

1. ``partition``: the mediator between requests, log and sessions; read it first.
2. Its decisions are pure: ``locks`` and ``admission`` (appends that enter the log, and their ids), ``sequencer``
   (requests that may be examined or answered now), ``registrations`` (the connection that counts for a client),
   ``write_session`` (the client that may append) and ``undecided`` (accepted appends without an outcome).
3. ``fencing`` drives the write session, ``confirmed_marks`` asks the storages to confirm the mark, ``times`` asks the
   storages for times of commits, ``answers`` sends outcomes, ``replicated`` is the interface to the log.
4. ``partition_metrics`` and ``mark_ages`` (pure): measurements.
"""
