"""The client library: append transactions, receive every committed transaction in order, read their data.

One engine, and independent faces on top of it; another face would be a folder beside them.

1. ``engine``: a member of the cluster that appends the submissions of faces and follows partitions; read it first.
2. The face of the original: ``context``, ``builder``, ``transaction``, ``callbacks``, ``retry_policy``.
   ``databases``: a database that is kept up to date with the log.
3. ``plain``: the face without callbacks, which ``waltz.blocking`` offers to threads. ``positions`` and ``sharing``:
   stored progress of its consumers, and partitions shared by several of them.
4. Common to faces: ``configuration`` and ``options``, ``locks``, ``events``, ``errors``, ``arguments`` (checks),
   ``awaited`` (appends with a deadline), ``decisions`` (decisions that are repeated), ``opening``; ``election``;
   ``partition_calls``: the calls that all faces have.
5. ``mock``: stands in for a cluster, below the engine; ``pytest_plugin``: a fixture with it.
"""
