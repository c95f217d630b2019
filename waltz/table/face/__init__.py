"""The tables of applications: over a client of the log, with a view beside the process.

1. ``table``: writes through the log, reads from the view; ``partition``: one partition that is a table; ``follower``
   keeps the view up with the log; ``decoding``: large envelopes in threads; ``clock``: checks of the process's
   clock; ``configured``: properties of the partition; ``saved``: a view begins with a saved snapshot, and
   is saved; ``ranges`` (pure): the ranges of a scan; ``levels`` (pure): what a read is of; ``takes``: rows in the
   order of the log.
2. ``parts``: the rows of one prefix, also with values that are not bytes; ``several``: one table in several partitions;
   ``interface``: what these need of a table, wherever its view is.
3. ``transaction`` (pure) with ``transacting``; ``locks`` (pure): the locks of rows; ``leasing``: leases.
4. ``sweeping``: removal of old rows. ``cursors`` and ``positions``: stored progress of readers.
5. For threads: ``threads``; ``blocking_table``, the calls of a table; ``blocking_interface``, ``blocking_parts`` and
   ``blocking_several``, made of their asynchronous twins; ``blocking``.
"""
