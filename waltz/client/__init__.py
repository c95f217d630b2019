"""The client library: append transactions, receive every committed transaction in order, read their data.

One engine, and faces on top of it that know nothing of each other's ways; another face would be a folder beside them.

1. ``engine``: a member of the cluster that appends what faces submit and follows the partitions; begin there.
2. ``context``, ``builder``, ``transaction``, ``callbacks``: the face of the original. ``database`` keeps a database up
   to date with it.
3. ``plain``: the face without callbacks, which ``waltz.blocking`` offers to threads.
4. ``awaited``, ``decisions``: what faces share: appends whose outcome is awaited, and decisions that are made again.
5. ``mock``: stands in for a cluster, below the engine.
"""
