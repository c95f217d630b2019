"""What a server tells of its storages over HTTP, and preferred partitions at servers that answer as the test wants."""

import argparse
import json

import pytest

from tests.unit.client.fake_server import Connection
from tests.unit.operations.survey.nodes import ORIGINAL, OURS, prefer, running
from waltz.cli import server
from waltz.cli.main import main, parser
from waltz.common.errors import WaltzError
from waltz.common.wire.client_server import (
    AddPreferredPartitionRequest,
    AddPreferredPartitionResponse,
    Message,
    RemovePreferredPartitionRequest,
)


def metrics(info: object) -> str:
    gauges = {
        "waltz-server.waltz-server-num-partitions": {"value": 2},
        "waltz-server.replica-info": {"value": info},
    }
    return json.dumps({"gauges": gauges})


def test_replicas_in_metrics() -> None:
    found = server.parse_replicas(metrics({"10": ["b:1", "a:1"], "9": []}))
    assert found == (2, {9: [], 10: ["a:1", "b:1"]})


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"gauges": {}}', metrics(None), metrics({"x": []})])
def test_other_metrics_are_refused(text: str) -> None:
    with pytest.raises(WaltzError, match="not the metrics of a server"):
        server.parse_replicas(text)


def test_a_server_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["server", "list", "-s", "127.0.0.1:1"]) == 1
    assert capsys.readouterr().err.startswith("Error: the metrics at 127.0.0.1:1 cannot be read: ")


def options(*arguments: str) -> argparse.Namespace:
    return parser().parse_args(["server", *arguments, "-c", "unused.yml"])


@pytest.mark.parametrize("version", [OURS, ORIGINAL])
async def test_preferences_are_added_and_removed(version: tuple[int, ...], capsys: pytest.CaptureFixture[str]) -> None:
    async with running(version, OURS) as nodes:
        name = str(nodes.servers[0].endpoint)
        await server._add(options("add-preferred-partition", "-s", name, "-p", "0-1"), nodes.session)
        assert capsys.readouterr().out == f"partitions 0-1 were added to the preferences of {name}\n"
        await server._remove(options("remove-preferred-partition", "-s", name, "-p", "1", "--json"), nodes.session)
        assert json.loads(capsys.readouterr().out) == {"server": name, "partitions": [1]}
        asked = [
            (type(each), each.partition_ids)
            for each in nodes.servers[0].received
            if isinstance(each, AddPreferredPartitionRequest | RemovePreferredPartitionRequest)
        ]
        assert asked == [(AddPreferredPartitionRequest, (0, 1)), (RemovePreferredPartitionRequest, (1,))]


async def test_other_servers_that_prefer_the_same_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    async with running(OURS, OURS) as nodes:
        await prefer(nodes, 0)
        first, second = (str(each.endpoint) for each in nodes.servers)
        await server._add(options("add-preferred-partition", "-s", second, "-p", "0-1"), nodes.session)
        added, warning = capsys.readouterr().out.splitlines()
        assert added == f"partitions 0-1 were added to the preferences of {second}"
        assert warning == (
            f"several servers prefer partition 0: {first}, {second}; the first one gets them. To move them take its "
            f"preference back: waltz server remove-preferred-partition -s {first} -p 0"
        )
        await server._add(options("add-preferred-partition", "-s", second, "-p", "0", "--json"), nodes.session)
        assert json.loads(capsys.readouterr().out)["preferred_by"] == {"0": [first, second]}


async def test_what_is_refused_is_said() -> None:
    async with running((0, 1), OURS) as nodes:
        old, ours = (str(each.endpoint) for each in nodes.servers)

        def refuse(connection: Connection, message: Message) -> bool:
            if not isinstance(message, AddPreferredPartitionRequest):
                return False
            connection.send(AddPreferredPartitionResponse(message.req_id, False))
            return True

        nodes.servers[1].filter = refuse
        for where, partitions, text in (
            (old, "0", "partition 0 was not added to .*version"),
            (ours, "0", "partition 0 was not added to .*: the server refused"),
            (ours, "0-2", "there is no partition 2; the cluster has 2"),
            ("elsewhere:1", "0", "there is no server elsewhere:1 in the cluster at /waltz; its servers: 127"),
        ):
            with pytest.raises(WaltzError, match=text):
                await server._add(options("add-preferred-partition", "-s", where, "-p", partitions), nodes.session)
