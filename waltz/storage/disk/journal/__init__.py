"""The journal: what was written lazily to the segments of all partitions, durable with one sync for all of them.

1. ``entries`` (pure): what one change of a partition is, and its bytes; ``groups`` (pure): the entries of one sync.
2. ``ring``: the files, used again and again; ``journal``: the open journal, which appends groups.
3. ``reading``: what is in a journal after a stop of any kind; ``replay``: it is put where it belongs.
"""
