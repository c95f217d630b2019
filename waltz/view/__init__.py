"""``waltz-view``: a process that keeps views of partitions, and serves them over HTTP.

1. ``partitions``: which partitions are served, and their tables; ``registration``: what is said of them in ZooKeeper.
2. ``limits``: what requests may cost; ``exchange``: who asks, and the common part of requests.
3. ``routes`` (pure): the requests; ``openapi`` (pure): their description; ``reading``, ``writing``, ``watching``: their
   handlers; ``service``: the port.
4. ``view_metrics``; ``daemon``: the process.
"""
