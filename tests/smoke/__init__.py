"""The smoke test: a cluster of real processes under load while its nodes are killed, stopped, cut off and restarted.

``python -m tests.smoke`` runs it. Its parts also serve the availability tests and measurements: the workload, the
journals that its clients keep, and the checker that compares these with what the storages hold.
"""
