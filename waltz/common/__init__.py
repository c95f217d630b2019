"""What two processes of a cluster must agree on: identities, records, wire formats, ZooKeeper layouts.

Begin with ``ids`` and ``records``, which everything else speaks of, and ``errors``, the root of what is raised on
purpose. ``config`` holds the settings of every process, ``daemon`` and ``tasks`` what long-lived processes and tasks
owe their owners, ``metrics``, ``exposition`` and ``quiet_log`` what operators see. The folders: ``wire`` (bytes without
I/O), ``net`` (connections, HTTP endpoints), ``zk`` (ZooKeeper), ``cluster`` (who owns what).
"""
