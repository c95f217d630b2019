"""Connections from a client to servers.

1. ``links``: connections that are always reopened.
2. ``assignments`` (pure): the server of each partition.
3. ``silence`` (pure): the judgement that a server is silent.
"""
