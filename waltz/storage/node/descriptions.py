"""What the metrics of a storage node are, as Prometheus shows them; those of the original have its names.

Pure data: docs/metrics.md is made of it.
"""

from waltz.common.metrics.registry import Description, Kind
from waltz.storage.node.partition_metrics import HISTOGRAMS


def _node(name: str, meaning: str) -> Description:
    return Description(f"waltz_storage_{name}", _kind(name), ("value",) if name.endswith("_info") else (), meaning)


def _partition(name: str, meaning: str) -> Description:
    labels = ("partition", "quantile") if name.endswith("_seconds") else ("partition",)
    return Description(f"waltz_storage_partition_{name}", _kind(name), labels, meaning)


def _kind(name: str) -> Kind:
    return "counter" if name.endswith("_total") else "summary" if name.endswith("_seconds") else "gauge"


DESCRIPTIONS = (
    _node("free_bytes", "Room on the disk of the storage directory."),
    _node("num_damaged_partitions", "Partitions that are served but for records that are damaged."),
    _node("num_out_of_service_partitions", "Partitions that are assigned here and not served."),
    _node("num_partitions", "Partitions that are assigned here."),
    _node("num_stalled_partitions", "Partitions at which a read or write of files has not ended for over 10 seconds."),
    _node("scanned_bytes_total", "What the scan in the background has checked."),
    _node("waltz_version_id_info", "The version of the program is the label value."),
    _partition("append_latency_seconds", "From taking up an append request to its being durable, of the last minutes."),
    _partition("append_total", "Append requests, each of one or more transactions."),
    _partition("damaged_transactions", "Records that cannot be served, because they are damaged."),
    _partition("flags", "Of the control file: 1 is available, 4 is assigned to this node."),
    _partition("last_session_info_request_total", "Questions of servers that begin a session."),
    _partition("local_low_water_mark", "The last transaction that was durable here when the session began."),
    _partition("low_water_mark", "The last transaction that was known to be committed when the session began."),
    _partition("max_transaction_id", "Id of the last transaction that is durable here; -1 without one."),
    _partition("max_transaction_request_total", "Questions for the last transaction."),
    _partition("mended_index_entries", "Index entries that a scan has written anew."),
    _partition("process_queue_size", "Requests that wait."),
    _partition("record_header_list_request_total", "Reads of many headers."),
    _partition("record_header_request_total", "Reads of one header."),
    _partition("record_list_request_total", "Reads of many transactions."),
    _partition("record_request_total", "Reads of one transaction."),
    _partition("sequence_number", "How often the partition's entry in the control file was written."),
    _partition("session_id", "The store session that the low-water mark belongs to."),
    _partition("set_low_water_mark_request_total", "How often a session ended its recovery here."),
    _partition("torn_cut_bytes", "Size of the torn write that was cut at the last start."),
    _partition("truncate_request_total", "How often a recovery cut the log to what is committed."),
    *HISTOGRAMS,
)
