"""What storages tell of their replicas, and nothing of those that do not."""

import json

import pytest

from tests.unit.cli.nodes import ORIGINAL, OURS, ROOT, STORAGES, running
from tests.unit.common.cluster.fakes import SESSION
from waltz.cli.replica_reports import ReplicaReport, ask_last_ids, ask_replicas, parse_last_ids
from waltz.cli.survey import read_survey

TIMEOUT_S = 10.0


async def test_storages_tell_sessions_and_last_transactions_of_what_they_have_online() -> None:
    async with running(ORIGINAL, OURS) as nodes:
        nodes.storages[0].last_ids = {0: 4, 1: 5}
        nodes.storages[1].status[0] = False
        nodes.storages[1].session_id = 3
        await nodes.storages[2].stop()
        survey = await read_survey(nodes.zookeeper, ROOT, range(2), tls=None, timeout_s=TIMEOUT_S)
        assert await ask_replicas(nodes.session, survey, range(2), TIMEOUT_S) == {
            STORAGES[0]: {0: ReplicaReport(SESSION, 4), 1: ReplicaReport(SESSION, 5)},
            STORAGES[1]: {1: ReplicaReport(3, -1)},
        }
        assert await ask_last_ids(nodes.session, survey, TIMEOUT_S) == {
            STORAGES[0]: {0: 4, 1: 5},
            STORAGES[1]: {0: -1, 1: -1},
        }
        await nodes.storages[0].stop()
        assert (await ask_replicas(nodes.session, survey, [1], TIMEOUT_S))[STORAGES[0]] == {}


def test_last_ids_in_metrics() -> None:
    gauges = {
        "waltz-storage.partition-3.max-transaction-id": {"value": 17},
        "waltz-storage.partition-4.max-transaction-id": {"error": "not open"},
        "waltz-storage.partition-5.session-id": {"value": 1},
    }
    assert parse_last_ids(json.dumps({"gauges": gauges})) == {3: 17}
    with pytest.raises(ValueError):
        parse_last_ids("")
