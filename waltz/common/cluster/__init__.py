"""Who is in a cluster, who owns which partition, and who is told of it.

1. ``policy`` (which server gets which partition) and ``decisions`` (what to do about what was read) are pure.
2. ``manager`` carries them out for the servers and clients of a process, which are ``managed``.
3. ``marks`` and ``replicas`` are rule S6, for everyone who reads the log in bulk: first the committed marks, from the
   ``owners`` of the partitions, and only after that the replicas that may serve.
"""
