"""Stored progress of consumers.

``interface`` is the contract; ``file`` keeps positions in a file, ``sql`` in a table of a database.
"""
