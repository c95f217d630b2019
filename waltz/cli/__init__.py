"""The command line: ``waltz NOUN VERB``.

1. ``main``: the entry point; ``nouns``: the commands and their modules; ``session``: common options and the connection
   to a cluster; ``output`` and ``progress``: results and the progress of long work;
   ``completion``: completion by shells.
2. The cluster: ``cluster``, ``zookeeper`` (with ``protecting``), ``acl`` (access rules), ``status``, ``config``,
   ``local``, ``demo``.
3. Nodes: ``server`` (with ``server_metrics``), ``storage``, ``disk``; moves of partitions (``moving``) and replicas
   (``replica_moving``, ``replica_rebalancing``); the loss of a majority (``loss``); labels and rings of storages
   (``labels``); the disks of a storage (``disk_balancing``).
4. Data: ``partition`` (with ``trimming``), ``transactions``, ``table`` (with ``table_files``, ``table_snapshots`` and
   ``table_text``), ``consistency`` (their levels), ``write_sessions``, ``archive``, ``mirror``.
5. Checks and loads: ``client`` (with ``validation``), ``performance`` (with ``load`` and ``load_report``), ``bot``.
"""
