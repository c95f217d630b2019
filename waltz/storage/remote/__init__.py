"""The other end of a storage node's ports: clients, and what operators do with them.

To be read in this order: ``connection`` with ``pending_calls`` (what all clients have in common), ``client`` with
``owed_answers`` (the data port, and when a storage that is slow is late), ``admin_client``; then ``operations`` and
``repair``.
"""
