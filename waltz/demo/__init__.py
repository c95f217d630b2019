"""The bank: a small application that shows the use of the log, from submitted transfers to a Spark DataFrame.

Read ``teller`` first, the application (with ``transfers`` and its database, the ``ledger``); ``bank`` runs two tellers.
``pipeline`` and ``analysis`` are the Spark side, ``progress`` makes the reports.
``history`` is a demo of its own: the archive, read when no node runs.
"""
