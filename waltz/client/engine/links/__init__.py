"""Connections from a client to servers.

1. ``links``: connections that are reopened for ever.
2. ``assignments`` (pure): the server of each partition.
3. ``silence`` (pure): decides whether a server is silent.
"""
