"""What storages tell of their replicas, and nothing of those that do not."""

import json

import pytest

from tests.unit.common.cluster.fakes import SESSION
from tests.unit.survey.nodes import ORIGINAL, OURS, ROOT, STORAGES, running
from waltz.survey.replica_reports import (
    ReplicaReport,
    StorageFacts,
    ask_replicas,
    ask_storages,
    parse_storage_metrics,
)
from waltz.survey.survey import read_survey

TIMEOUT_S = 10.0


async def test_storages_tell_sessions_and_last_transactions_of_what_they_have_online() -> None:
    async with running(ORIGINAL, OURS) as nodes:
        nodes.storages[0].last_ids = {0: 4, 1: 5}
        nodes.storages[1].status[0] = False
        nodes.storages[1].session_id = 3
        await nodes.storages[2].stop()
        survey = await read_survey(nodes.zookeeper, ROOT, range(2), tls=None, timeout_s=TIMEOUT_S)
        assert await ask_replicas(nodes.zookeeper, ROOT, None, survey, range(2), TIMEOUT_S) == {
            STORAGES[0]: {0: ReplicaReport(SESSION, 4), 1: ReplicaReport(SESSION, 5)},
            STORAGES[1]: {1: ReplicaReport(3, -1)},
        }
        facts = await ask_storages(nodes.zookeeper, ROOT, None, STORAGES, TIMEOUT_S)
        assert [facts[storage].last_ids for storage in STORAGES] == [{0: 4, 1: 5}, {0: -1, 1: -1}, {}]
        await nodes.storages[0].stop()
        assert (await ask_replicas(nodes.zookeeper, ROOT, None, survey, [1], TIMEOUT_S))[STORAGES[0]] == {}


def test_what_the_metrics_of_a_storage_tell() -> None:
    gauges: dict[str, dict[str, object]] = {
        "waltz-storage.partition-3.max-transaction-id": {"value": 17},
        "waltz-storage.partition-4.max-transaction-id": {"error": "not open"},
        "waltz-storage.partition-5.session-id": {"value": 1},
    }
    assert parse_storage_metrics(json.dumps({"gauges": gauges})) == StorageFacts({3: 17}, None, None)
    gauges["waltz-storage.waltz-storage-free-bytes"] = {"value": 1 << 30}
    gauges["waltz-storage.waltz-version-id"] = {"value": "0.1.0"}
    assert parse_storage_metrics(json.dumps({"gauges": gauges})) == StorageFacts({3: 17}, 1 << 30, "0.1.0")


@pytest.mark.parametrize("text", ["", "{}", "[]", "7", '{"gauges": []}', '{"gauges": {"a": 7}}'])
def test_something_else_than_metrics(text: str) -> None:
    with pytest.raises(ValueError):
        parse_storage_metrics(text)
