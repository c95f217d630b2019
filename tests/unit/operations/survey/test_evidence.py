"""How far replicas have come, as storages tell it, and what is given a moment."""

import asyncio
import json

import pytest

from tests.unit.operations.survey.nodes import ORIGINAL, OURS, STORAGES, Nodes, running
from waltz.common.storage_health import StorageHealth
from waltz.common.wire.client_server import HighWaterMarkRequest
from waltz.operations.survey import evidence
from waltz.operations.survey.evidence import Evidence, parse_storage_metrics, read_evidence
from waltz.operations.survey.replica_judgement import StorageFacts, judge_replicas

TIMEOUT_S = 10.0


async def ask(nodes: Nodes, floor: dict[int, int] | None = None) -> Evidence:
    return await read_evidence(nodes.session.cluster, range(2), timeout_s=TIMEOUT_S, floor=floor)


def states(found: Evidence) -> list[str]:
    return [each.state for each in judge_replicas(found.survey, 0, found.told)]


async def test_what_is_only_late_is_given_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(ORIGINAL, OURS) as nodes:
        for _ in range(3):
            nodes.logs[0].add(b"")
        for storage, last_id in zip(nodes.storages, (2, 2, 1), strict=True):
            storage.last_ids[0] = last_id
        waited = []

        async def catch_up(delay_s: float) -> None:
            waited.append(delay_s)
            if delay_s:
                nodes.storages[2].last_ids[0] = 2

        monkeypatch.setattr(asyncio, "sleep", catch_up)
        assert states(await ask(nodes)) == ["current"] * 3
        assert evidence.LATE_S in waited


async def test_what_was_committed_at_the_look_before_needs_no_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(ORIGINAL, OURS) as nodes:
        monkeypatch.setattr(evidence, "LATE_S", 3600.0)
        for _ in range(9):
            nodes.logs[0].add(b"")
        for storage, last_id in zip(nodes.storages, (8, 5, 3), strict=True):
            storage.last_ids[0] = last_id
        found = await ask(nodes, {0: 4})
        assert states(found) == ["current", "current", "lagging"]
        assert [each.lag for each in judge_replicas(found.survey, 0, found.told)] == [0, 0, 5]


async def test_a_storage_that_does_not_tell_says_why() -> None:
    async with running(ORIGINAL, OURS) as nodes:
        nodes.storages[1].confused = True
        found = await ask(nodes, {})
        replicas = judge_replicas(found.survey, 0, found.told)
        assert [each.state for each in replicas] == ["current"] * 3
        assert str(replicas[1].cause).startswith("did not tell what it holds: ")
        spared = await read_evidence(
            nodes.session.cluster, range(2), timeout_s=TIMEOUT_S, floor={}, choose=lambda _: STORAGES[1:]
        )
        assert STORAGES[0] not in spared.told.facts


async def test_marks_may_not_be_known(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(ORIGINAL, OURS) as nodes:
        monkeypatch.setattr(evidence, "MARK_TIMEOUT_S", 0.05)
        tell = nodes.servers[0].filter
        for server in nodes.servers:
            server.filter = lambda connection, message: (
                isinstance(message, HighWaterMarkRequest) or tell(connection, message)
            )
        found = await ask(nodes)
        assert found.unknown_marks.keys() == {0, 1}
        assert states(found) == ["current"] * 3


def test_what_the_metrics_of_a_storage_tell() -> None:
    gauges: dict[str, dict[str, object]] = {
        "waltz-storage.partition-3.max-transaction-id": {"value": 17},
        "waltz-storage.partition-4.max-transaction-id": {"error": "not open"},
        "waltz-storage.partition-5.session-id": {"value": 1},
    }
    assert parse_storage_metrics(json.dumps({"gauges": gauges})) == StorageFacts({3: 17}, None, None, {5: 1})
    gauges["waltz-storage.waltz-storage-free-bytes"] = {"value": 1 << 30}
    gauges["waltz-storage.partition-3.flags"] = {"value": 5}
    gauges["waltz-storage.partition-4.flags"] = {"value": 4}
    health = StorageHealth(damaged={3: "transactions 30 to 30"})
    gauges["waltz-storage.waltz-storage-health"] = {"value": health.problems()}
    gauges["waltz-storage.waltz-version-id"] = {"value": "0.1.0"}
    assert parse_storage_metrics(json.dumps({"gauges": gauges})) == StorageFacts(
        {3: 17}, 1 << 30, "0.1.0", {5: 1}, {3: True, 4: False}, health
    )


@pytest.mark.parametrize("text", ["", "{}", "[]", "7", '{"gauges": []}', '{"gauges": {"a": 7}}'])
def test_something_else_than_metrics(text: str) -> None:
    with pytest.raises(ValueError):
        parse_storage_metrics(text)
