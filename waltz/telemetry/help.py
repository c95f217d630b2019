"""The meaning of a client's metrics, one sentence each."""

_HELP = {
    "cluster-name": "Name of the cluster.",
    "client-id": "Id of the client in the cluster.",
    "num-active-partitions": "Number of partitions that the client uses.",
    "active-partition-ids": "Ids of the partitions that the client uses.",
    "is-mounted": "1 while the server of the partition accepts appends of the client.",
    "is-partition-active": "1 while the client uses the partition.",
    "high-water-mark": "Id of the last transaction that the client has applied, or knows to be committed.",
    "num-registered-transactions": "Sent appends that are undecided.",
    "lag": "Transactions known to be in the log that the client has not read or applied yet.",
    "lag-seconds": "Minimum time for which the client has known of the oldest transaction in its lag.",
    "table-skipped-transactions": "Transactions that the view of an open table skipped because they are not envelopes.",
    "lock-failure": "Appends refused because a lock had changed.",
    "transaction-monitor-timeout": "Appends that were undecided for longer than client.longWaitThreshold.",
    "early-acknowledgement": "Appends acknowledged before their commit, at a level below the quorum.",
    "retracted-acknowledgement": "Appends lost after such an acknowledgement.",
    "send-throughput": "Appends sent.",
    "received-throughput": "Transactions received with the feed.",
    "on-completion-latency": "Time from the send of an append to the news of its commit, for a sample of appends.",
    "on-application-latency": "Time from the send of an append to its application, for a sample of appends.",
}
"""Texts by the original's names. ``lag``, ``lag-seconds``, ``table-skipped-transactions`` and
the acknowledgements are extensions."""

NAMES = frozenset(_HELP)
"""The metrics of a client."""


def help_text(metric: str) -> str:
    """The help text of a metric."""
    return _HELP.get(metric, "")
