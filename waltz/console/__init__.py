"""The web console: one page at the HTTP port of each server, for looking only.

``history`` (pure) keeps this server's measurements of the last hour. ``surveyor`` asks the whole cluster, only while
somebody watches; ``problems`` (pure) describes what is wrong, ``document`` (pure) puts both into JSON. ``pages``
answers requests; ``static`` holds the browser's files. The server hands in the facts about its own partitions.
"""
