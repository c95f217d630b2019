"""ZooKeeper: the interface that everything is written against, and the data of a cluster there.

1. ``client``: the interface and its rules; ``kazoo_client`` implements it for a real ensemble, ``kazoo_log`` condenses
   its log, ``session_clock`` knows when a session may have ended; ``addresses`` checks connect strings,
   ``configured`` knows the user and the TLS of a process, ``tls_handler`` is TLS for kazoo.
2. ``paths``, ``znodes``: places in the tree, and their bytes. Both are the original's.
3. ``store_admin``: creation, changes and reads of a cluster; ``ensure``: creation of the missing parts;
   ``storage_labels``: where storages are, and rings of them; ``archive_address``: where the archive is;
   ``trim_points``: where trimmed logs begin; ``features``: what nodes of the original cannot live with.
4. ``mutex``, ``session``: a lock, and a view of a client that ends with its ZooKeeper session.
5. ``protection`` (pure): who may do what at each node; ``protected``: creations with these rights.
6. ``tree``: the nodes of an ensemble in memory, for mocks.
"""
