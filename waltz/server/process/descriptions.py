"""Descriptions of a server's metrics for Prometheus; those of the original have its names.

Pure data, from which docs/metrics.md is generated.
"""

from waltz.common.metrics.registry import Description, Kind
from waltz.server.partition.partition_metrics import HISTOGRAMS
from waltz.server.store import timings

_PARTITION = ("partition",)
_REPLICA = ("partition", "storage")

FEED_LAG = Description(
    "waltz_server_partition_feed_lag_transactions",
    "gauge",
    _PARTITION,
    "Requested transactions not yet sent to the connection that lags most.",
)
FEED_LAG_SECONDS = Description(
    "waltz_server_partition_feed_lag_seconds",
    "gauge",
    _PARTITION,
    "Age, since its commit, of the oldest requested transaction not yet sent to a connection; a lower bound.",
)
NODES_WITHOUT_TRIM = Description(
    "waltz_server_nodes_without_trim",
    "gauge",
    (),
    "Nodes of the cluster that cannot live with trimmed partitions, although it has the feature trim.",
)
RETENTION_HELD = Description(
    "waltz_server_partition_retention_held_seconds",
    "gauge",
    _PARTITION,
    "For how long transactions beyond the partition's retention could not be trimmed; 0 if there are none.",
)
RETENTION_TRIMMED = Description(
    "waltz_server_partition_retention_trimmed_total",
    "counter",
    _PARTITION,
    "Transactions that this server has trimmed for the partition's retention.",
)
ZOOKEEPER_STATE = Description(
    "waltz_server_zookeeper_state",
    "gauge",
    ("state",),
    "1 for the current state of the connection to ZooKeeper: connected, suspended, or lost (other servers may take the"
    " partitions).",
)
ZOOKEEPER_LOSSES = Description(
    "waltz_server_zookeeper_session_losses_total",
    "counter",
    (),
    "ZooKeeper sessions that the server lost.",
)


def _server(name: str, meaning: str) -> Description:
    return Description(f"waltz_server_{name}", _kind(name), ("value",) if name.endswith("_info") else (), meaning)


def _partition(name: str, meaning: str) -> Description:
    labels = ("partition", "quantile") if name.endswith("_seconds") else _PARTITION
    return Description(f"waltz_server_partition_{name}", _kind(name), labels, meaning)


def _kind(name: str) -> Kind:
    return "counter" if name.endswith("_total") else "summary" if name.endswith("_seconds") else "gauge"


DESCRIPTIONS = (
    _server("append_memory_bytes", "Part of server.appendMemory used by appends in flight and by lagging storages."),
    _server("cluster_name_info", "Name of the cluster, in the label."),
    _server("endpoint_info", "Address for clients, in the label."),
    _server("feed_cache_miss_total", "Feeds read from the storages; see server.feedCacheSize."),
    _server("is_closed", "1 while the server stops."),
    _server("num_partitions", "Partitions that the server owns and has opened."),
    _server("server_id", "Id of the server in the cluster, new after each start."),
    _server("transaction_cache_miss_total", "Transactions whose data were read from the storages."),
    _server("under_replicated_partitions", "Partitions of this server with a replica that does not follow the log."),
    _server("unhealthy_partitions", "Partitions of this server that cannot commit: no quorum, or no store session."),
    _server("waltz_version_id_info", "Version of the program, in the label."),
    _server("zookeeper_connected", "0 while there is no connection to ZooKeeper."),
    _partition("acknowledgements_awaited", "Connections that wait until all storages have a transaction."),
    _partition("append_queue_size", "Requests that wait for a store session, or for congestion to end."),
    _partition("catchup_feed_context_added_total", "Feeds read from the storages."),
    _partition("catchup_feed_context_removed_total", "Such feeds that have ended."),
    _partition("current_replicas", "Replicas that follow the log."),
    _partition("dropped_exclusive_total", "Appends dropped: another client holds an exclusive write session."),
    _partition("exclusive_holder", "Client id of the exclusive write session's holder; -1 for none."),
    _partition("failed_append_total", "Appends that a later store session found to be absent from the log."),
    _partition("fence_latency_seconds", "From the decision of all earlier appends to the answer of a fence."),
    _partition("fences_total", "Fences: requests that raised the write session."),
    _partition("first_available", "Id of the first transaction that is not trimmed; 0 if nothing was trimmed."),
    _partition("generation", "Grows with every change of the partition's owner."),
    _partition("high_water_mark", "Id of the last committed transaction; -1 in an empty partition."),
    _partition("is_closed", "1 while the partition is being closed."),
    _partition("level_refused_append_total", "Appends refused: their consistency is not that of the partition."),
    _partition("out_of_order_append_total", "Appends refused: their client has foreseen other ids."),
    _partition("other_generation_append_total", "Appends refused: their clients knew another generation."),
    _partition("pending_append", "Accepted appends, not yet committed."),
    _partition("real_time_feed_context_added_total", "Feeds requested by clients."),
    _partition("real_time_feed_context_removed_total", "Requested feeds that have ended."),
    _partition("refused_append_total", "Appends refused: no room to wait for the storages, or a disabled partition."),
    _partition("rejected_append_total", "Lock failures sent: a lock of the append had changed."),
    Description(
        "waltz_server_partition_replica_lag_seconds",
        "gauge",
        _REPLICA,
        "Age, since its commit, of the oldest transaction not known to be at the replica; a lower bound.",
    ),
    Description(
        "waltz_server_partition_replica_lag_transactions",
        "gauge",
        _REPLICA,
        "Committed transactions not known to be at the replica; no sample while its state is unknown.",
    ),
    Description(
        "waltz_server_partition_replica_state_info",
        "gauge",
        (*_REPLICA, "value"),
        "1 for the current state: current, lagging, copying, barred, away or refused.",
    ),
    _partition("replicas", "Replicas assigned to the partition."),
    _partition(
        "response_latency_seconds", "Time from the acceptance of an append to its commit, over the last minutes."
    ),
    _partition("session_append_total", "Appends admitted by their write session."),
    _partition("session_fenced_total", "Appends refused: not of the current write session."),
    _partition("stale_append_total", "Appends dropped: their connection was replaced by a newer one of its client."),
    _partition("successful_append_total", "Appends committed."),
    _partition("transaction_total", "Appends received."),
    _partition("write_session", "Number of the current write session."),
    FEED_LAG,
    FEED_LAG_SECONDS,
    NODES_WITHOUT_TRIM,
    RETENTION_HELD,
    RETENTION_TRIMMED,
    ZOOKEEPER_STATE,
    ZOOKEEPER_LOSSES,
    *HISTOGRAMS,
    *timings.DESCRIPTIONS,
)
