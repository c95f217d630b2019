"""Stores of views. A store knows bytes and their order, and nothing of clients.

1. ``interface``: the contract; ``registry``: stores by name.
2. ``sorted_keys`` (pure), ``key_space``: entries in memory; ``memory``, and ``noop``: stores without files.
3. ``ordered``: a store over an ``engine``; ``snapshots`` of it; ``zones`` (pure): where there is something to sweep.
4. The engines ``sqlite``, ``lmdb`` and ``rocksdb``; ``sealing``: checksums around them; ``directory``: the directory of
   a store.
"""
