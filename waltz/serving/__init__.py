"""``waltz-server`` as a process: a server, and the web console at its HTTP port.

1. ``__main__``: the entry point.
2. ``console``: the server's facts about its own partitions, for the console.
"""
