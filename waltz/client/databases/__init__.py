"""A database of the application that follows the log, exactly once.

1. ``marks``: the statements about the table of marks; ``kinds``: the kinds of databases.
2. ``batches``: many transactions in one database transaction; ``callbacks``: for the face of the original.
"""
