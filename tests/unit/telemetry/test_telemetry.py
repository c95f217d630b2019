"""The metrics as JSON."""

import json

import waltz
from waltz.client.mock import MockDriver
from waltz.telemetry import document


async def test_the_document_is_json_with_the_names_of_the_original() -> None:
    async with waltz.connect(MockDriver(1)) as client:
        await client.append(0, b"a")
        shown = json.loads(json.dumps(document(client.metrics)))
    group = f"waltz-client-{client_id(shown)}.partition-0"
    assert shown["gauges"][f"{group}.high-water-mark"] == {"value": 0}
    assert shown["meters"][f"{group}.send-throughput"]["count"] == 1
    assert shown["timers"][f"{group}.on-application-latency"]["duration_units"] == "seconds"


def client_id(shown: dict[str, dict[str, dict[str, int]]]) -> int:
    return shown["gauges"]["waltz-client.client-id"]["value"]
