"""ZooKeeper: the interface that everything is written against, and what a cluster keeps there.

1. ``client``: the interface and its rules; ``kazoo_client`` fills it for a real ensemble.
2. ``paths``, ``znodes``: where things lie in the tree, and their bytes. Both are the original's.
3. ``store_admin``: making, changing and reading all of it; ``ensure``: making what is missing.
4. ``mutex``, ``session``: a lock, and a view of a client that ends with its session.
"""
