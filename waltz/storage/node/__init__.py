"""What serves a storage directory: a process with a data port for servers and an admin port for operators.

To be read in this order: ``session_rule`` (whom a partition listens to), ``request_queue``, ``partition`` (where
appends are gathered, synced and acknowledged), ``replies``; then ``manager``, the two ports and ``node``; ``scrubber``
and ``findings`` last.
"""
