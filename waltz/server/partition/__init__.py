"""One partition of a server.

1. ``partition``: the mediator between requests, log and sessions; read it first.
2. Its decisions are pure: ``locks`` and ``admission`` (appends that enter the log, and their ids), ``sequencer``
   (requests that may be examined or answered now), ``registrations`` (the connection that counts for a client),
   ``write_session`` (the client that may append), ``append_rule`` (what properties say about appends),
   ``append_order`` (appends that must get the ids that their client has foreseen) and ``undecided`` (accepted appends
   without an outcome).
3. ``fencing`` drives the write session, ``confirmed_marks`` has the mark confirmed by the storages, ``times`` asks
   them for times of commits, ``write_levels`` refuses appends by their level and tells what all storages have,
   ``answers`` sends outcomes, ``replicated`` is the interface to the log.
4. ``partition_metrics``: measurements.
"""
