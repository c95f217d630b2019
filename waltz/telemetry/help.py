"""The meaning of a client's metrics, one sentence each."""

_HELP = {
    "cluster-name": "Name of the cluster.",
    "client-id": "Id of the client in the cluster.",
    "num-active-partitions": "Partitions that the client takes part in.",
    "active-partition-ids": "The partitions that the client takes part in.",
    "is-mounted": "1 while the server of the partition takes appends of the client.",
    "is-partition-active": "1 while the client takes part in the partition.",
    "high-water-mark": "Id of the last transaction that the client has applied, or knows to be committed.",
    "num-registered-transactions": "Appends that were sent and are undecided.",
    "lag": "Transactions that are known to be in the log and have not been read or applied here.",
    "lag-seconds": "For how long at least the client has known of the oldest of these transactions.",
    "table-skipped-transactions": "Transactions that the view of an open table skipped: they were no envelopes.",
    "lock-failure": "Appends that were refused because a lock had changed.",
    "transaction-monitor-timeout": "How often an append was undecided for client.longWaitThreshold.",
    "send-throughput": "Appends sent.",
    "received-throughput": "Transactions received with the feed.",
    "on-completion-latency": "From sending an append to knowing that it is committed, for a sample of them.",
    "on-application-latency": "From sending an append to its having been applied, for a sample of them.",
}
"""By the original's names; ``lag``, ``lag-seconds`` and ``table-skipped-transactions`` are our own."""

NAMES = frozenset(_HELP)
"""The metrics of a client."""


def help_text(metric: str) -> str:
    """The help text of a metric."""
    return _HELP.get(metric, "")
