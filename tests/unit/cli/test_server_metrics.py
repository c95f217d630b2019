"""What is read of write sessions in the metrics of servers."""

import argparse
import asyncio
from collections.abc import Callable, Coroutine

import pytest

from waltz.cli.server_metrics import ServerMetrics, SessionMetrics, add_http_option, parse_metrics, read_metrics
from waltz.common.errors import WaltzError
from waltz.common.ids import Endpoint
from waltz.common.metrics.exposition import http_document, to_json
from waltz.common.metrics.registry import Registry
from waltz.common.net.http import HttpServer
from waltz.common.net.listener import close_server
from waltz.common.quiet_log import QuietLog
from waltz.server.partition import fencing
from waltz.server.partition.fencing import Fencing
from waltz.server.partition.partition_metrics import SERVER_GROUP, PartitionMetrics

NOTHING = SessionMetrics(None, 0, 0, 0, 0)


def server_registry(endpoint: str) -> tuple[Registry, dict[int, Fencing], dict[int, PartitionMetrics]]:
    """The metrics of a server with partitions 0 and 12."""
    registry = Registry()
    registry.gauge(SERVER_GROUP, "endpoint", lambda: endpoint)
    metrics = {partition_id: PartitionMetrics(registry, partition_id) for partition_id in (0, 12)}
    sessions = {
        partition_id: Fencing(partition_id, each, 0.0, 0, QuietLog(fencing.logger))
        for partition_id, each in metrics.items()
    }
    for partition_id, each in metrics.items():
        each.add_gauges(sessions[partition_id].gauges())
    return registry, sessions, metrics


def test_what_a_server_tells_of_write_sessions_is_found() -> None:
    registry, sessions, metrics = server_registry("host:1")
    sessions[12].session.begin(6, holder=0)
    metrics[12].session_append.mark(5)
    metrics[12].fences.mark(4)
    metrics[12].session_fenced.mark(3)
    metrics[12].dropped_exclusive.mark(2)
    found = parse_metrics(to_json(http_document(registry)))
    assert found == ServerMetrics("host:1", {0: NOTHING, 12: SessionMetrics(0, 5, 4, 3, 2)})


@pytest.mark.parametrize(
    ("metrics", "in_use"),
    [
        (NOTHING, False),
        (NOTHING._replace(exclusive_holder=0), True),
        (NOTHING._replace(appends=1), True),
        (NOTHING._replace(fences=1), True),
        (NOTHING._replace(fenced_appends=1), True),
    ],
)
def test_any_of_them_shows_that_sessions_are_in_use(metrics: SessionMetrics, in_use: bool) -> None:
    assert metrics.in_use is in_use


def test_a_server_of_the_original_tells_nothing_of_them() -> None:
    text = '{"gauges": {"waltz-server.endpoint": {"value": "host:1"}, "waltz-server.partition-0.generation": {}}, '
    assert parse_metrics(text + '"meters": {}}') == ServerMetrics("host:1", {})


@pytest.mark.parametrize("text", ["pong", "[]", "{}", '{"gauges": {}, "meters": {}}', '{"gauges": 1, "meters": 1}'])
def test_what_are_no_metrics_of_a_server(text: str) -> None:
    with pytest.raises(WaltzError, match="these are not the metrics of a server"):
        parse_metrics(text)


def test_how_http_ports_are_given(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_http_option(parser, "for tests")
    assert parser.parse_args([]).http == []
    assert parser.parse_args(["--http", "80", "--http", "host:81"]).http == [80, Endpoint("host", 81)]
    with pytest.raises(SystemExit):
        parser.parse_args(["--http", "host"])
    assert "argument --http: not a whole number: 'host'" in capsys.readouterr().err


async def test_servers_are_known_by_the_endpoints_that_they_tell() -> None:
    one, two, stranger = (server_registry(f"localhost:{port}")[0] for port in (1, 2, 3))
    servers = [await HttpServer.open("127.0.0.1", 0, each) for each in (one, two, stranger)]
    storage = await HttpServer.open("127.0.0.1", 0, Registry())
    known = [Endpoint("localhost", 1), Endpoint("localhost", 2)]
    addresses = [Endpoint("127.0.0.1", each.port) for each in servers]
    found, failures = await read_metrics([*addresses, Endpoint("127.0.0.1", storage.port)], known, 30, None)
    assert {endpoint: each.endpoint for endpoint, each in found.items()} == {each: str(each) for each in known}
    assert list(failures) == [Endpoint("127.0.0.1", storage.port)]
    found, failures = await read_metrics([servers[1].port], [Endpoint("127.0.0.1", 5), *known], 30, None)
    assert list(found) == [known[1]]
    for each in (*servers, storage):
        await each.close()
    found, failures = await read_metrics([servers[1].port], known, 30, None)
    assert not found
    assert list(failures) == [Endpoint("localhost", servers[1].port)]
    assert "Connect call failed" in failures[Endpoint("localhost", servers[1].port)]


async def test_what_answers_something_else_is_named() -> None:
    handlers: list[asyncio.Task[None]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    async def keep_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    def begun_by(handler: Callable[..., Coroutine[None, None, None]]) -> Callable[..., None]:
        return lambda *streams: handlers.append(asyncio.create_task(handler(*streams)))

    servers = [await asyncio.start_server(begun_by(each), "127.0.0.1", 0) for each in (answer, keep_silent)]
    other, silent = [Endpoint("127.0.0.1", each.sockets[0].getsockname()[1]) for each in servers]
    assert (await read_metrics([other], [], 30, None))[1] == {other: "it answered 'HTTP/1.1 404 Not Found'"}
    assert (await read_metrics([silent], [], 0.01, None))[1] == {silent: "no answer within 0.01 s"}
    for each in servers:
        await close_server(each)
        await each.wait_closed()
    await asyncio.gather(*handlers, return_exceptions=True)
