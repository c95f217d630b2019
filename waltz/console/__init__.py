"""The web console: one page at the HTTP port of each server, for looking only.

``history`` (pure) keeps what this server has measured in the last hour. ``surveyor`` asks the whole cluster, while
somebody looks and never otherwise; ``problems`` (pure) says in words what is wrong, ``document`` (pure) puts both into
JSON. ``pages`` answers requests; ``static`` holds what the browser loads. What a server knows of its own partitions it
hands in.
"""
