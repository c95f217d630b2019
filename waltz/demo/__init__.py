"""The bank: a small application that shows what the log is for, from submitted transfers to a Spark DataFrame.

``teller`` is the application (with ``transfers`` and its database, the ``ledger``) and worth reading first; ``bank``
runs two of them, ``pipeline`` and ``analysis`` are what Spark makes of the log.
"""
