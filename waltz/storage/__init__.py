"""A storage node, and the clients of one.

Three rooms: :mod:`~waltz.storage.disk` has files and their formats, :mod:`~waltz.storage.node` serves them to servers
and operators, :mod:`~waltz.storage.remote` has the clients for servers, Spark and tools. ``disk`` does not import
``node``, and ``remote`` imports neither. ``errors`` are those of the node.

The ladder of a node, from the top: the process with its two ports (``node.node``, ``data_port``, ``admin_port``), one
storage directory (``node.manager`` over ``disk.directory``), one partition with its queue of requests
(``node.partition``), its log (``disk.log``), a segment of that (``disk.segment``), and ``disk.files``.

The life of a damaged record:

1. found when its segment is opened (``disk.segment.segment_recovery``), if it is after the last checkpoint; the rest
   of an interrupted write is no damage, and is cut (``disk.segment.torn_write``);
2. otherwise met by a read, which fails and makes its segment a suspect (``disk.log.damage``), or found in the
   background: every record is checked once a week (``node.scrubber`` drives ``disk.segment.scan``);
3. shown in health and metrics (``node.findings``); reads of the record fail, so servers ask other replicas; all other
   requests are served;
4. ordered to be repaired by an operator (``operations.repair``, over the admin port);
5. surveyed: the intact and the missing parts of the log are determined (``disk.salvage``);
6. copied from other replicas, and staged beside the log;
7. rebuilt: the segment is written anew, checked, and put in the place of the old one, which is kept aside;
8. served again after the partition has been reopened.
"""
