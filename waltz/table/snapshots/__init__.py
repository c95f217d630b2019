"""Saved snapshots of tables: all rows as they were after one transaction, as Parquet files in an object store.

1. ``manifest``: what says which files are a snapshot, of which state of which log. Pure.
2. ``place``: where the snapshots of a partition are in the store, which there are, their creation and removal.
3. ``parquet``: rows as columns of Parquet files, and back. Needs pyarrow.
4. ``writing`` and ``loading``: from the view of a table to a snapshot, and from a snapshot to rows that were checked.
"""
