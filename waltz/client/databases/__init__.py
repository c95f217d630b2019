"""A database of the application that is kept up to date with the log, exactly once.

1. ``marks``: the statements about the table that says how far something is; ``kinds``: the kinds of databases.
2. ``batches``: many transactions in one database transaction; ``callbacks``: for the face of the original.
"""
