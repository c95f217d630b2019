"""What storages tell of their replicas, and nothing of those that do not."""

from tests.unit.common.cluster.fakes import SESSION, make_log
from tests.unit.operations.survey.nodes import ORIGINAL, OURS, STORAGES, running
from waltz.operations.survey.checks import ReplicaReport, find_stragglers
from waltz.operations.survey.replica_reports import ask_replicas
from waltz.operations.survey.survey import read_survey

TIMEOUT_S = 10.0


async def test_storages_tell_sessions_and_whether_they_have_what_is_committed() -> None:
    async with running(ORIGINAL, OURS) as nodes:

        async def ask(marks: dict[int, int]) -> dict[str, dict[int, ReplicaReport | str]]:
            return await ask_replicas(nodes.session.cluster, survey, range(2), marks, timeout_s=TIMEOUT_S)

        nodes.storages[0].logs = {0: make_log(0, 5), 1: make_log(1, 4)}
        nodes.storages[1].status[0] = False
        nodes.storages[1].session_id = 3
        await nodes.storages[2].stop()
        survey = await read_survey(nodes.session.cluster, range(2), timeout_s=TIMEOUT_S)
        assert await ask({0: 4, 1: 4}) == {
            STORAGES[0]: {0: ReplicaReport(SESSION, True), 1: ReplicaReport(SESSION, False)},
            STORAGES[1]: {1: "Partition:1 is not assigned."},
        }
        assert await ask({0: 4, 1: -1}) == {
            STORAGES[0]: {0: ReplicaReport(SESSION, True), 1: ReplicaReport(SESSION, True)},
            STORAGES[1]: {1: ReplicaReport(3, True)},
        }
        assert (await ask({0: 4}))[STORAGES[1]] == {1: ReplicaReport(3, None)}
        await nodes.storages[0].stop()
        silent = (await ask({}))[STORAGES[0]]
        assert silent.keys() == {0, 1}
        assert all(isinstance(reason, str) and reason for reason in silent.values())


async def test_a_report_that_is_cut_short_says_so() -> None:
    async with running(ORIGINAL, OURS) as nodes:
        for storage in nodes.storages:
            storage.logs = {0: make_log(0, 5), 1: make_log(1, 5)}
        nodes.storages[1].hang_up_after = 1
        survey = await read_survey(nodes.session.cluster, range(2), timeout_s=TIMEOUT_S)
        marks = {0: 4, 1: 4}
        reports = await ask_replicas(nodes.session.cluster, survey, range(2), marks, timeout_s=TIMEOUT_S)
        assert reports[STORAGES[0]] == {each: ReplicaReport(SESSION, True) for each in range(2)}
        told = reports[STORAGES[1]]
        assert set(told) == {0, 1}
        assert told[0] == ReplicaReport(SESSION, True)
        assert find_stragglers(survey, 0, reports) == []
        assert find_stragglers(survey, 1, reports) == [f"storage {STORAGES[1]} did not tell what it holds: {told[1]}"]
