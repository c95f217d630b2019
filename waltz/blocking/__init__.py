"""The plain client for threads and notebooks: every call blocks until it is done.

    import waltz.blocking

    with waltz.blocking.connect("client.yml") as client:
        transaction_id = client.append(0, b"hello")
        for transaction in client.feed(0, after=-1, until=transaction_id):
            print(transaction.data)

All clients of a process share one event loop on its own thread, which ends when the last client is closed. Any number
of threads may use a client at a time. Calls have the deadlines of the asynchronous client.

Reading order: ``loop``, the thread with the loop, and calls to it; ``feeds`` and ``merged``, the feeds; ``plain``,
the calls of the plain face; ``election``; ``values``, the same for values; ``client``, with databases and tables.
"""

from waltz.blocking.client import Client, connect
from waltz.blocking.election import Election
from waltz.blocking.feeds import BatchFeed, TransactionFeed
from waltz.blocking.merged import Consumer, MergedFeed
from waltz.blocking.plain import Acknowledgement
from waltz.blocking.values import ValueClient

__all__ = [
    "Acknowledgement",
    "BatchFeed",
    "Client",
    "Consumer",
    "Election",
    "MergedFeed",
    "TransactionFeed",
    "ValueClient",
    "connect",
]
