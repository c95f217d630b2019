"""``waltz-server`` as a process: a server, the web console at its HTTP port, and the retention of partitions.

1. ``__main__``: the entry point.
2. ``console``: the server's facts about its own partitions, for the console.
3. ``retention``: trims the server's partitions by their properties.
"""
