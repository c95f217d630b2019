"""A server process.

1. ``node``: start, order of start and stop, health; ``service``: its partitions and the requests to them.
2. ``replica_watch`` follows the storages of each partition, ``property_watch`` which appends they take;
   ``property_setting`` sets properties for clients.
3. ``replica_rounds`` and ``replica_journal`` tell operators about replicas; ``descriptions`` explains the metrics.
"""
