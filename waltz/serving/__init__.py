"""``waltz-server`` as a process: a server, and the web console at its HTTP port.

1. ``__main__``: the entry point.
2. ``console``: what the server knows of its own partitions, for the console.
"""
