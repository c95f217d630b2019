"""What nodes of every version tell, and what is said of those that tell nothing."""

from tests.unit.client.fake_server import Connection
from tests.unit.operations.survey.nodes import ORIGINAL, OURS, STORAGES, Nodes, running
from waltz.common.cluster.owners import OwnerConnection
from waltz.common.wire.client_server import (
    CheckStorageConnectivityRequest,
    CheckStorageConnectivityResponse,
    Message,
    ServerPartitionsAssignmentRequest,
    ServerPartitionsAssignmentResponse,
)
from waltz.common.wire.lags import LagsRequest, PartitionLags
from waltz.operations.survey.survey import ServerReport, Survey, _ask, ask_server, read_survey

TIMEOUT_S = 30.0


async def survey_of(nodes: Nodes) -> Survey:
    return await read_survey(nodes.session.cluster, range(2), timeout_s=TIMEOUT_S)


async def test_everything_is_told() -> None:
    async with running(ORIGINAL, OURS) as nodes:
        nodes.reached[STORAGES[2]] = False
        nodes.storages[1].status = {0: False}
        survey = await survey_of(nodes)
    reached = {STORAGES[0]: True, STORAGES[1]: True, STORAGES[2]: False}
    assert survey.partition_count == 2
    assert survey.owners == {0: (1,), 1: (2,)}
    assert survey.storages == dict.fromkeys(range(2), frozenset(STORAGES))
    assert survey.server_reports == {
        1: ServerReport(4, frozenset({0}), reached, {0: True}),
        2: ServerReport(5, frozenset({1}), reached, {1: True}),
    }
    everything = {0: True, 1: True}
    assert list(survey.storage_reports.values()) == [everything, {0: False}, everything]


async def test_a_partition_that_is_given_to_two_servers_has_two_owners() -> None:
    async with running(ORIGINAL, OURS) as nodes:
        await nodes.assign({2: (0, 1), 1: (0,)})
        assert (await survey_of(nodes)).owners == {0: (1, 2), 1: (2,)}


async def test_whoever_cannot_be_reached_is_named() -> None:
    async with running(ORIGINAL, OURS) as nodes:
        await nodes.servers[0].close()
        await nodes.storages[2].stop()
        survey = await survey_of(nodes)
        report = survey.server_reports[1]
        assert report.version is None
        for answer in (report.partitions, report.storages, report.healthy):
            assert str(nodes.servers[0].endpoint) in str(answer)
        assert survey.server_reports[2].version == 5
        answer = survey.storage_reports[STORAGES[2]]
        assert isinstance(answer, str)
        assert str(nodes.storages[2].admin_port) in answer


async def test_servers_of_version_6_tell_the_lags_of_their_partitions() -> None:
    async with running(OURS, (*OURS, 6)) as nodes:
        nodes.servers[1].lags = [PartitionLags(1, 7, 1500, [])]
        older, newer = [await ask_server(server.endpoint, None, TIMEOUT_S) for server in nodes.servers]
        assert (older.lags, newer.lags) == ({}, {1: PartitionLags(1, 7, 1500, [])})
        assert not any(isinstance(message, LagsRequest) for message in nodes.servers[0].received)


async def test_old_servers_are_not_asked_what_they_do_not_know() -> None:
    async with running((0, 1), (0, 1, 2)) as nodes:
        oldest, older = [await ask_server(server.endpoint, None, TIMEOUT_S) for server in nodes.servers]
        assert isinstance(oldest.storages, dict)
        for answer in (oldest.partitions, oldest.healthy, older.healthy):
            assert isinstance(answer, str)
            assert " cannot tell: " in answer
        assert older.partitions == frozenset({1})
        kinds = [type(message) for server in nodes.servers for message in server.received]
        assert sorted(kinds, key=str) == [
            CheckStorageConnectivityRequest,
            CheckStorageConnectivityRequest,
            ServerPartitionsAssignmentRequest,
        ]


async def test_one_missing_answer_does_not_hide_the_others() -> None:
    async with running(ORIGINAL, OURS) as nodes:
        silent, confused = nodes.servers
        silent.hold(CheckStorageConnectivityRequest)
        connection = await OwnerConnection.open(silent.endpoint, tls=None, timeout_s=TIMEOUT_S)
        silence = await _ask(
            connection, CheckStorageConnectivityRequest, CheckStorageConnectivityResponse, timeout_s=0.01
        )
        assert silence == f"{silent.endpoint} did not send CheckStorageConnectivityResponse within 0.01 s"
        told = await _ask(connection, ServerPartitionsAssignmentRequest, ServerPartitionsAssignmentResponse, TIMEOUT_S)
        assert isinstance(told, ServerPartitionsAssignmentResponse)
        await connection.close()

        def confuse(connection: Connection, message: Message) -> bool:
            connection.send(ServerPartitionsAssignmentResponse(message.req_id, (7,)))
            return True

        confused.filter = confuse
        report = await ask_server(confused.endpoint, None, TIMEOUT_S)
        assert report.partitions == frozenset({7})
        expected = "sent ServerPartitionsAssignmentResponse in place of ServerPartitionsHealthStatResponse"
        assert report.healthy == f"{confused.endpoint} {expected}"


async def test_a_server_that_hangs_up() -> None:
    async with running(ORIGINAL, OURS) as nodes:
        nodes.servers[0].refuse_all()
        report = await ask_server(nodes.servers[0].endpoint, None, TIMEOUT_S)
        assert str(nodes.servers[0].endpoint) in str(report.partitions)
