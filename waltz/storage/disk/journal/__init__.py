"""The journal: changes of all partitions become durable with one sync; their segments are synced later.

1. ``entries`` (pure): one change of a partition, as bytes; ``groups`` (pure): the entries of one sync.
2. ``ring``: the files, used in turn; ``journal``: the open journal, to which groups are appended.
3. ``reading``: the contents of a journal after a stop of any kind; ``replay``: the contents are written to the files
   where they belong.
"""
