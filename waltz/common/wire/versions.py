"""The first version of the protocol between clients and servers with each feature.

A connection speaks the highest version that both ends offered; compare it with these, never with a number. Versions 0
to 4 are the original's, 5 and 6 are ours.
"""

FIRST_WITH_READ_LOCKS = 1
"""Appends carry read locks."""

FIRST_WITH_CONNECTIVITY = 1
"""A server tells which storages it reaches."""

FIRST_WITH_APPEND_LOCKS = 2
"""Appends carry append locks."""

FIRST_WITH_ASSIGNMENT = 2
"""A server tells which partitions it owns."""

FIRST_WITH_PREFERENCES = 2
"""A server takes preferences for the partitions that it should own."""

FIRST_WITH_PARTITION_STATE = 3
"""The answer to a mount tells "not ready" and "client ahead" apart."""

FIRST_WITH_HEALTH = 4
"""A server tells which of its partitions are healthy."""

FIRST_WITH_WRITE_SESSION = 5
"""Appends carry a write session or "none", and there are messages to learn it and to raise it."""

FIRST_WITH_DATA_LISTS = 5
"""A server sends the data of many consecutive transactions in one answer."""

FIRST_WITH_APPEND_FAILED = 5
"""A server tells which appends are known not to be in the log; clients of older versions find out by a flush."""

FIRST_WITH_PARTITION_CLOSED = 5
"""A server tells when a partition leaves it."""

FIRST_WITH_PARTIAL_MOUNTS = 5
"""A server may answer a mount with READY when it has fed ``MAX_FEED_COUNT`` transactions of a larger gap. The client
asks for the rest with feed requests, as far as it has room."""

FIRST_WITH_CONFIRMED_MARK = 6
"""A server tells a high-water mark after a quorum of the storages has confirmed that it still owns the partition."""

FIRST_WITH_TIME = 6
"""A server tells which transactions were committed at a time, and when a transaction was."""

FIRST_WITH_MARK_FEED = 6
"""A server tells marks, instead of the headers of transactions, to a connection that asks for them."""

FIRST_WITH_NOT_AUTHORIZED = 6
"""A server tells which right a client lacks."""

FIRST_WITH_TOKENS = 6
"""The first message of a client may be a token."""

FIRST_WITH_LAGS = 6
"""A server tells the lags of its partitions' replicas and feeds, in transactions and milliseconds."""

FIRST_WITH_APPEND_DELAYS = 6
"""A server tells how long a client should send no appends to a partition."""

FIRST_WITH_CONSISTENCY = 6
"""Appends have a level of consistency, and a server tells what is on all storages of a partition."""

FIRST_WITH_APPEND_ORDER = 6
"""Appends enter the log at the ids that their client has foreseen, or not at all."""
