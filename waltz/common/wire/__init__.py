"""The protocols, without I/O.

1. ``fields``, ``frames``, ``structures``: the elements; ``catalogue``: the messages of one version of a protocol;
   ``connection``: hello and frames of one connection.
2. Clients and servers: ``client_server``, ``append_request``, ``version5``, ``write_sessions``, ``confirmed_marks``,
   ``client_times``, ``mark_feed``, ``refused``, ``append_delays``, ``consistency``, ``lags``, ``append_order``,
   ``trimmed``, ``partition_properties``; ``versions``: the first version with each feature. ``tokens``: the first
   message of a client, also to storages.
3. Servers and storages: ``storage``, ``storage_version1``, ``storage_times``, ``storage_trim``, ``fencing``. Tools and
   storages: ``admin``, ``admin_version1``.
"""
