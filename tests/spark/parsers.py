"""A function that turns payloads into columns, as an application would have one."""


def place(payload: bytes) -> tuple[int, int]:
    """Partition and transaction id, which the records of a fake cluster have as their payload."""
    partition_id, transaction_id = payload.split(b"/")
    return int(partition_id), int(transaction_id)
