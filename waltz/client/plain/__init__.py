"""The plain face: append and wait for the outcome, read feeds in a loop.

1. ``client``: the calls of applications; ``append``: the submissions of the client;
   ``acknowledgement``: what appends below the quorum return; ``values``: the client for values
   that a serializer turns into bytes.
2. ``feed``: one partition in a loop; ``merged``: several partitions; ``consumer``: several partitions, behind stored
   positions; ``to_database``: feeds that are applied to a database.
3. ``reader``: the source of feeds (for servers without bulk reads, an engine that applies).
4. ``transact``: the steps of a decision on the basis of feeds.
"""
