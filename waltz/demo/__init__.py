"""The bank: a small application that shows the use of the log, from submitted transfers to a Spark DataFrame.

``teller`` is the application (with ``transfers`` and its database, the ``ledger``) and worth reading first; ``bank``
runs two of them. ``pipeline`` and ``analysis`` are the Spark side of it, ``progress`` its reports.
"""
