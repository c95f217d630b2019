"""A whole cluster on this machine, for development, tests and the demo.

1. ``cluster`` starts and stops the processes, with the configuration of ``layout``, on free ``ports``; ``zookeeper`` is
   a real ZooKeeper, on the ``java`` of the machine or of a package.
2. ``processes`` (with ``reaper``) make sure that no process outlives its owner; ``keeper`` runs a cluster in the
   background for the command line.
"""
