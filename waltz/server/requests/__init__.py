"""Connections of clients, and requests and appends on their way to a partition.

1. ``connection`` reads frames of one client; ``link`` is the partitions' view of the connection.
2. ``appends``: append requests between the connection and the log; ``failures`` reports appends that are known to be
   absent.
3. ``permission``: the right that each request needs; ``pending``: a request that waits, and its reason; ``deadlines``:
   requests that are answered in time either way.
"""
