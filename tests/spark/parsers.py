"""Functions that turn payloads into columns, as an application would have them."""

import json
import time
from pathlib import Path

GATE_TIMEOUT_S = 240.0


def place(payload: bytes) -> tuple[int, int]:
    """Partition and transaction id, which the records of a fake cluster have as their payload."""
    partition_id, transaction_id = payload.split(b"/")
    return int(partition_id), int(transaction_id)


def gated(payload: bytes) -> tuple[int]:
    """The number in a payload; one that names a gate makes the read wait there until the test has opened it."""
    document = json.loads(payload)
    if "gate" in document:
        gate = Path(document["gate"])
        (gate / "reached").touch()
        deadline_s = time.monotonic() + GATE_TIMEOUT_S
        while not (gate / "open").exists():
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"nobody opens {gate}")
            time.sleep(0.01)
    return (document["number"],)
