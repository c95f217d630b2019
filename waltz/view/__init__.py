"""``waltz-view``: a process that keeps views of partitions, and serves them over HTTP.

1. ``partitions``: which partitions are served, and their tables; ``registration``: what is said of them in ZooKeeper.
2. ``limits``: what requests may cost; ``exchange``: who asks, and the common part of requests.
3. ``reading``, ``writing``, ``watching``: the requests; ``service``: their routes, and the port.
4. ``view_metrics``; ``daemon``: the process.
"""
