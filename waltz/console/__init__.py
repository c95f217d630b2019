"""The web console: one read-only page at the HTTP port of each server.

``history`` (pure) keeps this server's measurements of the last hour. ``surveyor`` asks the whole cluster, but only
while somebody watches. ``document`` (pure) makes the JSON of the page. ``pages`` answers requests; ``static`` has the
files of the browser. The server passes in the facts about its own partitions.
"""
