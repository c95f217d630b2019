"""The first version of the protocol between clients and servers with each feature.

A connection speaks the highest version that both ends offer. Compare the version with these constants, never with a
number. Versions 0 to 4 are the original's; 5 and 6 are extensions of this implementation.
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
"""The answer to a mount distinguishes "not ready" from "client ahead"."""

FIRST_WITH_HEALTH = 4
"""A server tells which of its partitions are healthy."""

FIRST_WITH_WRITE_SESSION = 5
"""Appends carry a write session or "none", and there are messages to learn it and to raise it."""

FIRST_WITH_DATA_LISTS = 5
"""A server sends the data of many consecutive transactions in one answer."""

FIRST_WITH_APPEND_FAILED = 5
"""A server names the appends that are certainly not in the log. Clients of older versions find out by a flush."""

FIRST_WITH_PARTITION_CLOSED = 5
"""A server tells when a partition leaves it."""

FIRST_WITH_PARTIAL_MOUNTS = 5
"""A server may answer a mount with READY after it has fed ``MAX_FEED_COUNT`` transactions of a larger gap. The client
asks for the rest with feed requests, as far as the client has room."""

FIRST_WITH_CONFIRMED_MARK = 6
"""A server can have a quorum of the storages confirm that it still owns a partition before it answers with the mark."""

FIRST_WITH_TIME = 6
"""A server finds transactions by the time of their commit, and the time of a commit by transaction."""

FIRST_WITH_MARK_FEED = 6
"""A server sends marks instead of the headers of transactions, on request of a connection."""

FIRST_WITH_NOT_AUTHORIZED = 6
"""A server names the right that a client lacks."""

FIRST_WITH_TOKENS = 6
"""The first message of a client may be a token."""

FIRST_WITH_LAGS = 6
"""A server tells the lags of its partitions' replicas and feeds, in transactions and milliseconds."""

FIRST_WITH_APPEND_DELAYS = 6
"""A server tells how long a client should send no appends to a partition."""

FIRST_WITH_CONSISTENCY = 6
"""Appends have a level of consistency, and a server knows which transactions are on all storages of a partition."""

FIRST_WITH_TRIM = 6
"""A server tells the first available transaction to a client that asks for trimmed ones."""

FIRST_WITH_PROPERTIES = 6
"""A server sets the properties of a partition for a client."""

FIRST_WITH_APPEND_ORDER = 6
"""Appends enter the log at the ids that their client has foreseen, or not at all."""
