"""What all nodes of a cluster say of it, put together for commands and for the web console.

``survey`` asks everybody, ``checks`` (pure) find what does not fit together, ``cluster_state`` has it by partition.
"""
