"""Surveys happen while somebody looks, one at a time, and what was found stays."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from tests.unit.console.fakes import cluster
from waltz.common.errors import WaltzError
from waltz.console import surveyor
from waltz.console.surveyor import Seen, Surveyor
from waltz.operations.survey.cluster_state import ClusterState
from waltz.operations.survey.evidence import PARTITIONS_AT_ONCE

STATE = cluster(100)


class Cluster:
    """Answers a survey when it is let."""

    def __init__(self) -> None:
        self.befores: list[ClusterState | None] = []
        self.answers: asyncio.Queue[Exception | None] = asyncio.Queue()
        self.surveyor = Surveyor(self.look, lambda _: None)

    async def look(self, before: ClusterState | None) -> ClusterState:
        self.befores.append(before)
        error = await self.answers.get()
        if error is not None:
            raise error
        return STATE._replace(at_s=asyncio.get_running_loop().time())

    async def survey(self, error: Exception | None = None) -> Seen:
        """Look, and again when the survey that began has ended."""
        self.answers.put_nowait(error)
        async with asyncio.timeout(60):
            while self.surveyor.see().surveying:
                await asyncio.sleep(0)
        return self.surveyor.see()


@pytest.fixture
async def there(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    monkeypatch.setattr(surveyor, "INTERVAL_S", 3600.0)
    made = Cluster()
    yield made
    await made.surveyor.close()


def make_due(there: Cluster) -> None:
    there.surveyor._next_s = 0.0


async def test_nothing_is_asked_while_nobody_looks(there: Cluster) -> None:
    await asyncio.sleep(0)
    assert there.befores == []


async def test_whoever_looks_gets_what_is_known_at_once(there: Cluster) -> None:
    first = there.surveyor.see()
    assert first == Seen(0, "", None, True, None)
    seen = await there.survey()
    assert seen.number > 0
    assert len(json.loads(seen.text)["partitions"]) == 100
    assert seen.age_s is not None
    assert not seen.surveying


async def test_one_survey_at_a_time_and_not_again_at_once(there: Cluster) -> None:
    for _ in range(20):
        assert there.surveyor.see().surveying
        await asyncio.sleep(0)
    await there.survey()
    for _ in range(20):
        assert not there.surveyor.see().surveying
    assert there.befores == [None]


async def test_the_next_one_is_told_of_the_last_for_rates(there: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await there.survey()
    make_due(there)
    second = await there.survey()
    assert second.number == first.number + 1
    assert there.befores[1] is not None
    monkeypatch.setattr(surveyor, "RATE_MAX_S", -1.0)
    make_due(there)
    await there.survey()
    assert there.befores[2] is None


async def test_surveys_that_take_long_come_seldom(there: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveyor, "INTERVAL_S", 0.0)
    monkeypatch.setattr(surveyor, "PAUSE_SHARE", 1e9)
    await there.survey()
    assert not there.surveyor.see().surveying
    make_due(there)
    assert there.surveyor.see().surveying


async def test_what_was_found_stays_when_zookeeper_is_away(there: Cluster) -> None:
    found = await there.survey()
    make_due(there)
    seen = await there.survey(WaltzError("ZooKeeper is away"))
    assert seen.error == "ZooKeeper is away"
    assert (seen.number, seen.text) == (found.number, found.text)
    assert seen.age_s is not None
    assert there.surveyor.partition(99) == STATE.partitions[99]
    make_due(there)
    assert (await there.survey()).error is None


async def test_a_survey_that_never_ends_is_given_up(there: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveyor, "LIMIT_S", 0.001)
    there.surveyor.see()
    async with asyncio.timeout(60):
        while there.surveyor.see().surveying:
            await asyncio.sleep(0.001)
    assert there.surveyor.see().error == "the cluster could not be surveyed within 0.001 s"


async def test_a_defect_is_logged_and_said(there: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    await there.survey(RuntimeError("nobody thought of it"))
    await asyncio.sleep(0)
    assert there.surveyor.see().error == "the survey has failed, see the log: RuntimeError"
    assert "nobody thought of it" in caplog.text


async def test_others_have_their_turn_while_the_document_is_made(there: Cluster) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    await there.surveyor._encode(STATE)
    assert turns >= len(STATE.partitions) // PARTITIONS_AT_ONCE - 1
    counting.cancel()


async def test_closing_ends_the_survey_and_none_begins(there: Cluster) -> None:
    assert there.surveyor.see().surveying
    await there.surveyor.close()
    assert not there.surveyor.see().surveying
    assert there.surveyor.partition(0) is None
