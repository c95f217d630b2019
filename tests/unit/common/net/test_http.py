import asyncio
import itertools
import json
import socket
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.common.net.peers import has_ended
from tests.unit.rules import Only
from waltz.common import pieces
from waltz.common.access import Right
from waltz.common.errors import WaltzError
from waltz.common.metrics.registry import Description, Json, Readings, Registry
from waltz.common.net import http
from waltz.common.net.http import Health, HttpError, HttpServer, Request, RequestParser, Response, prefers_prometheus


async def exchange(port: int, request: bytes) -> bytes:
    """Send bytes and read to the end of the connection, however it ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return await read_to_the_end(reader)
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


async def read_to_the_end(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(60):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


async def get(port: int, target: str, headers: str = "") -> tuple[int, dict[str, str], str]:
    """Status, headers and body of a GET."""
    response = await exchange(port, f"GET {target} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode())
    head, _, body = response.decode().partition("\r\n\r\n")
    status_line, *lines = head.split("\r\n")
    received = dict(line.split(": ", 1) for line in lines)
    assert status_line.startswith("HTTP/1.1 ")
    assert int(received["Content-Length"]) == len(body.encode())
    assert received["Cache-Control"] == "must-revalidate,no-cache,no-store"
    return int(status_line.split(" ")[1]), received, body


async def start(health: Health | None = None) -> HttpServer:
    registry = Registry(lambda: 0.0)
    registry.gauge("waltz-server", "server-id", lambda: 3)
    return await HttpServer.open("127.0.0.1", 0, registry, health=health)


async def test_ping_and_build_info() -> None:
    server = await start()
    status, headers, body = await get(server.port, "/ping")
    assert (status, body) == (200, "pong\n")
    assert headers["Content-Type"].startswith("text/plain")
    status, headers, body = await get(server.port, "/buildinfo")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert json.loads(body).keys() == {"version", "service_name"}
    assert json.loads(body)["service_name"] == "Waltz"
    await server.close()


async def test_metrics_in_the_form_asked_for() -> None:
    server = await start()
    status, headers, body = await get(server.port, "/metrics")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert json.loads(body)["gauges"] == {"waltz-server.server-id": {"value": 3}}
    assert "\n" not in body
    _, _, pretty = await get(server.port, "/metrics?pretty=true")
    assert "\n" in pretty
    assert json.loads(pretty) == json.loads(body)
    for target, accept in [("/metrics/prometheus", ""), ("/metrics", "Accept: text/plain;version=0.0.4\r\n")]:
        status, headers, body = await get(server.port, target, accept)
        assert status == 200
        assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert "waltz_server_server_id 3\n" in body
    await server.close()


@pytest.mark.parametrize(("healthy", "status"), [(True, 200), (False, 500)])
async def test_health(healthy: bool, status: int) -> None:
    checks: dict[str, Json] = {"healthy": healthy, "partitions": {1: healthy}}
    server = await start(lambda: (healthy, {"server-health-check": checks}))
    received, headers, body = await get(server.port, "/health")
    assert (received, headers["Content-Type"]) == (status, "application/json")
    assert json.loads(body) == {"server-health-check": {"healthy": healthy, "partitions": {"1": healthy}}}
    _, _, pretty = await get(server.port, "/health?pretty=true")
    assert "\n" in pretty
    await server.close()


async def test_health_without_check_and_with_a_failing_one(caplog: pytest.LogCaptureFixture) -> None:
    server = await start()
    assert (await get(server.port, "/health"))[0] == 501
    await server.close()

    def fail() -> tuple[bool, Json]:
        raise RuntimeError("a defect")

    server = await start(fail)
    status, _, body = await get(server.port, "/health")
    assert status == 500
    assert "a defect" not in body
    assert any(record.exc_info for record in caplog.records)
    await server.close()


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /nothing HTTP/1.1\r\n\r\n", 404),
        (b"POST /ping HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 405),
        (b"HEAD /ping HTTP/1.1\r\n\r\n", 405),
        (b"nonsense\r\n\r\n", 400),
        (b"GET /ping WALTZ/1\r\n\r\n", 400),
        (b"GET /ping HTTP/2.0\r\n\r\n", 505),
        (b"GET /ping HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET http://[ HTTP/1.1\r\n\r\n", 400),
        (b"GET /ping?" + b"a=1&" * 20 + b" HTTP/1.1\r\n\r\n", 400),
        (b"GET /ping HTTP/1.1\r\nX: " + b"x" * 20_000, 431),
        (b"GET /ping HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", 431),
    ],
)
async def test_requests_that_are_refused(request_bytes: bytes, status: int) -> None:
    server = await start()
    response = await exchange(server.port, request_bytes)
    assert response.startswith(f"HTTP/1.1 {status} ".encode())
    assert (b"\r\nAllow: GET\r\n" in response) == (status == 405)
    await server.close()


async def test_a_process_may_have_pages_of_its_own() -> None:
    asked: list[str] = []

    def page(request: http.Request) -> http.Response:
        asked.append(request.method)
        return http.json_page({"asked": len(asked)}, request)

    more = {"GET /own": page, "POST /own": page, "POST /reset": page}
    server = await HttpServer.open("127.0.0.1", 0, Registry(), more=more)
    assert json.loads((await get(server.port, "/own"))[2]) == {"asked": 1}
    for path in ("/own", "/reset/"):
        response = await exchange(server.port, f"POST {path} HTTP/1.1\r\nContent-Length: 0\r\n\r\n".encode())
        assert response.startswith(b"HTTP/1.1 200 ")
    status, headers, body = await get(server.port, "/reset")
    assert (status, headers["Allow"], body) == (405, "POST", "only POST is allowed here\n")
    assert "/reset" in (await get(server.port, "/nothing"))[2]
    assert asked == ["GET", "POST", "POST"]
    assert (await get(server.port, "/ping"))[2] == "pong\n"
    await server.close()


async def test_a_slow_request_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "DEADLINE_S", 0.05)
    server = await start()
    assert await exchange(server.port, b"GET /ping HTTP/1.1\r\n") == b""
    await server.close()


async def test_above_the_limit_the_oldest_connections_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 2)
    server = await start()
    idle = []
    for _ in range(3):
        idle.append(await asyncio.open_connection("127.0.0.1", server.port))
        idle[-1][1].write(b"GET /ping HTTP/1.1\r\n")
        assert (await get(server.port, "/ping"))[0] == 200
    assert await read_to_the_end(idle[0][0]) == b""
    idle[2][1].write(b"\r\n")
    assert (await read_to_the_end(idle[2][0])).endswith(b"pong\n")
    await server.close()
    for _, writer in idle:
        writer.transport.abort()


async def test_close_breaks_off_open_connections() -> None:
    server = await start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /ping HTTP/1.1\r\n")
    assert (await get(server.port, "/ping"))[0] == 200  # so the first connection is accepted as well
    await server.close()
    assert await read_to_the_end(reader) == b""
    writer.transport.abort()
    await server.close()


async def test_port_in_use() -> None:
    server = await start()
    with pytest.raises(WaltzError, match="the port is in use"):
        await HttpServer.open("127.0.0.1", server.port, Registry())
    await server.close()


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", False),
        ("*/*", False),
        ("text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2", False),
        ("application/json", False),
        ("text/plain", True),
        ("text/plain, application/json", False),
        ("text/plain;q=0.5, application/json;q=0.4", True),
        ("text/plain;q=nonsense", False),
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1", True),
    ],
)
def test_who_wants_prometheus(accept: str, expected: bool) -> None:
    assert prefers_prometheus(accept) is expected


def test_a_request_in_pieces() -> None:
    parser = RequestParser()
    data = b"GET /metrics?pretty=true HTTP/1.0\r\nACCEPT:  text/plain \r\n\r\n"
    results = [parser.feed(data[at : at + 1]) for at in range(len(data))]
    assert results[:-1] == [None] * (len(data) - 1)
    request = results[-1]
    assert request is not None
    assert (request.path, request.query, request.accept) == ("/metrics", {"pretty": ["true"]}, "text/plain")


@settings(deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_no_bytes_make_the_parser_fail_otherwise(data: bytes, complete: bool) -> None:
    with suppress(HttpError):
        RequestParser().feed(b"GET " + data + (b"\r\n\r\n" if complete else b""))


def test_every_refusal_can_be_encoded() -> None:
    for status in (400, 404, 405, 431, 500, 501, 505):
        encoded = HttpError(status, "the reason").response.encode()
        assert encoded.startswith(f"HTTP/1.1 {status} ".encode())
        assert encoded.endswith(b"\r\n\r\nthe reason\n")


async def start_with(read: Callable[[], Readings]) -> HttpServer:
    registry = Registry(lambda: 0.0)
    registry.reading(Description("waltz_made", "gauge", ("number",), "Made one by one."), read)
    return await HttpServer.open("127.0.0.1", 0, registry)


async def test_others_have_their_turn_while_a_page_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "MAX_TURN_S", 0.0)
    turns, loop, made = 0, asyncio.get_running_loop(), [0]

    def turn() -> None:
        nonlocal turns
        turns += 1
        if made[0] < 1000:
            loop.call_soon(turn)

    def read() -> Readings:
        loop.call_soon(turn)
        for number in range(1000):
            made[0] = number + 1
            yield (str(number),), number

    server = await start_with(read)
    _, _, body = await get(server.port, "/metrics/prometheus")
    assert body.count("waltz_made{") == 1000
    assert turns >= 1000
    await server.close()


async def test_pages_are_made_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the turns of many that are asked for at once would add up to a long one."""
    monkeypatch.setattr(pieces, "MAX_TURN_S", 0.0)
    under_way, most = 0, 0

    def read() -> Readings:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        for number in range(50):
            yield (str(number),), number
        under_way -= 1

    server = await start_with(read)
    bodies = await asyncio.gather(*(get(server.port, "/metrics/prometheus") for _ in range(8)))
    assert {status for status, _, _ in bodies} == {200}
    assert most == 1
    await server.close()


async def test_a_page_that_fails_half_way_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    def read() -> Readings:
        yield ("0",), 0
        raise RuntimeError("a defect")

    server = await start_with(read)
    status, _, body = await get(server.port, "/metrics/prometheus")
    assert (status, body) == (500, "internal error; see the log\n")
    assert "a page could not be made" in caplog.text
    assert (await get(server.port, "/ping"))[0] == 200
    await server.close()


async def test_a_page_for_somebody_who_has_left_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "MAX_TURN_S", 0.0)
    begun, made = asyncio.Event(), 0

    def read() -> Readings:
        nonlocal made
        begun.set()
        for number in itertools.count():
            made += 1
            yield (str(number),), number

    server = await start_with(read)
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /metrics/prometheus HTTP/1.1\r\n\r\n")
    async with asyncio.timeout(60):
        await begun.wait()
        await server.close()
    for _ in range(3):
        await asyncio.sleep(0)
    made_until_then = made
    for _ in range(100):
        await asyncio.sleep(0)
    assert made == made_until_then
    writer.transport.abort()


async def test_pages_of_readers_who_lack_the_right() -> None:
    rule = Only(Right.DESCRIBE)
    reset: list[str] = []

    def page(request: Request) -> Response:
        reset.append(request.path)
        return Response(200, "text/plain", "done")

    server = await HttpServer.open("127.0.0.1", 0, Registry(), more={"POST /reset": page}, access=rule)
    assert (await get(server.port, "/metrics"))[0] == 200
    answer = await exchange(server.port, b"POST /reset HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert answer.endswith(b"principal 'anonymous' may not administer this node\n")
    assert reset == []
    await server.close()


async def test_close_ends_a_connection_however_little_of_it_is_accepted() -> None:
    for turns in range(8):
        server = await start()
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
            for _ in range(turns):
                await asyncio.sleep(0)
            await server.close()
            assert has_ended(client), turns


@pytest.mark.parametrize(
    ("headers", "token"),
    [
        ("Authorization: Bearer a.b.c\r\n", "a.b.c"),
        ("authorization:bearer   a.b.c  \r\n", "a.b.c"),
        ("Authorization: Bearer\r\n", ""),
        ("Authorization: Basic dXNlcjpzZWNyZXQ=\r\n", None),
        ("Proxy-Authorization: Bearer a.b.c\r\n", None),
        ("", None),
    ],
)
def test_the_token_of_a_request(headers: str, token: str | None) -> None:
    request = RequestParser().feed(f"GET /metrics HTTP/1.1\r\n{headers}\r\n".encode())
    assert request is not None
    assert (None if request.token is None else request.token.get_secret_value()) == token
    assert "a.b.c" not in repr(request), "it is in no log"


def test_two_tokens_are_none() -> None:
    twice = b"Authorization: Bearer a\r\nauthorization: Bearer b\r\n"
    with pytest.raises(HttpError, match="two Authorization headers"):
        RequestParser().feed(b"GET /metrics HTTP/1.1\r\n" + twice + b"\r\n")
