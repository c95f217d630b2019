"""Clients of a storage node's ports.

1. ``connection`` with ``pending_calls``: common to all clients; ``errors``: wrong answers.
2. ``client``: the data port, with ``owed_answers`` (pure), which decides whether a slow storage is late;
   ``time_copies``: times from one storage to another.
3. ``admin_client``: the admin port.
"""
