"""Agreements between the processes of a cluster: identities, records, wire formats, ZooKeeper layouts.

1. ``ids``, ``records`` and ``checksum``; ``errors``: the root of all errors that are raised on purpose;
   ``partition_ids``: the check of a partition's id; ``keys``: the partition of a key; ``serializers``: values as bytes;
   ``access``: the permissions of peers; ``consistency``: levels of acknowledgements; ``machine``: tables of states and
   events; ``replica_states`` and ``storage_health``: troubles of replicas and storages in words, with their remedies;
   ``mark_ages``: how old a lag is; ``trim_point``: where a trimmed log begins; ``retention``: how much of a log is
   kept.
2. ``config``: the settings of every process; ``metrics``: its measurements.
3. ``wire``: bytes without I/O; ``net``: connections and HTTP endpoints; ``zk``: ZooKeeper; ``cluster``: owners of
   partitions; ``acl``: access rules.
4. Life of a process: ``daemon``, ``loops``, ``tasks``, ``polling``, ``progress_timer``, ``wall_clock``; its
   logs: ``json_log``, ``quiet_log``; ``version``.
5. Texts and pieces: ``brief``, ``iso_time``, ``java_text``, ``pieces``.
"""
