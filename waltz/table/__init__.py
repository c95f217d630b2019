"""Tables on the log: an envelope in the data of transactions, and views that are built from them.

Servers and storages know nothing of it; a table works on any cluster, the original's included.
"""
