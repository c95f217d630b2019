"""Descriptions of a storage node's metrics for Prometheus; those of the original have its names.

Pure data, from which docs/metrics.md is generated.
"""

from waltz.common.metrics.registry import Description, Kind
from waltz.storage.node.findings import MISSING_VOLUMES, MOVED_PARTITIONS, VOLUME_FREE
from waltz.storage.node.partition_metrics import HISTOGRAMS


def _node(name: str, meaning: str) -> Description:
    return Description(f"waltz_storage_{name}", _kind(name), ("value",) if name.endswith("_info") else (), meaning)


def _partition(name: str, meaning: str) -> Description:
    labels = ("partition", "quantile") if name.endswith("_seconds") else ("partition",)
    return Description(f"waltz_storage_partition_{name}", _kind(name), labels, meaning)


def _kind(name: str) -> Kind:
    return "counter" if name.endswith("_total") else "summary" if name.endswith("_seconds") else "gauge"


DESCRIPTIONS = (
    _node("free_bytes", "Free space on the disk of the storage directory."),
    _node(
        "journal_free_bytes", "Free space in the journal, with several disks in the fullest one; only with a journal."
    ),
    _node("num_damaged_partitions", "Partitions with damaged records; the other records are served."),
    _node("num_out_of_service_partitions", "Assigned partitions that are not served."),
    _node("num_partitions", "Assigned partitions."),
    _node("num_stalled_partitions", "Partitions with a file read or write that takes more than 10 seconds."),
    _node("scanned_bytes_total", "Bytes checked by the background scan."),
    _node("waltz_version_id_info", "Version of the program, in the label."),
    _partition(
        "append_latency_seconds", "Time from the start of an append request until it is durable, over the last minutes."
    ),
    _partition("append_total", "Append requests, each of one or more transactions."),
    Description(
        "waltz_storage_partition_commit_time_seconds",
        "gauge",
        ("partition",),
        "Time since 1970, by the owner's clock, by which the last entered transaction was committed; no sample before.",
    ),
    _partition("damaged_transactions", "Damaged records, which are not served."),
    _partition("flags", "Flags in the control file: 1 available, 4 assigned."),
    _partition("last_session_info_request_total", "Requests of servers that begin a store session."),
    _partition("local_low_water_mark", "Last transaction durable here when the store session began."),
    _partition("low_water_mark", "Last transaction known to be committed when the store session began."),
    _partition("max_transaction_id", "Id of the last durable transaction here; -1 without one."),
    _partition("max_transaction_request_total", "Requests for the id of the last transaction."),
    _partition("mended_index_entries", "Index entries mended by a scan."),
    _partition("process_queue_size", "Waiting requests."),
    _partition("record_header_list_request_total", "Reads of many headers."),
    _partition("record_header_request_total", "Reads of one header."),
    _partition("record_list_request_total", "Reads of many transactions."),
    _partition("record_request_total", "Reads of one transaction."),
    _partition("sequence_number", "Number of writes of the partition's entry in the control file."),
    _partition("session_id", "The store session of the low-water mark."),
    _partition("set_low_water_mark_request_total", "Recoveries of store sessions that ended here."),
    _partition("torn_cut_bytes", "Size of the torn write that was cut at the last start."),
    _partition("truncate_request_total", "Recoveries that cut uncommitted records."),
    MISSING_VOLUMES,
    MOVED_PARTITIONS,
    VOLUME_FREE,
    *HISTOGRAMS,
)
