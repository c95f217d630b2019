"""The HTTP port with TLS: who readers are, stores that change, large pages, silent peers, and the end."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.unit.common.acl.tokens import part
from tests.unit.common.net.certificates import Authority, write_pem
from tests.unit.common.net.token_peers import Accepted
from tests.unit.rules import Only
from waltz.common.access import ANONYMOUS, Access, Right
from waltz.common.acl.claims import claimed_principal
from waltz.common.config.schemas import TlsConfig
from waltz.common.errors import WaltzError
from waltz.common.metrics.exposition import prometheus_text
from waltz.common.metrics.registry import Registry
from waltz.common.net import followed_files, http
from waltz.common.net.http import HttpServer, Page, Request, Response
from waltz.common.net.port_metrics import watch_ports
from waltz.common.net.tls import client_context, server_context
from waltz.common.net.token_gate import Identities, RefusedToken

TIMEOUT_S = 60.0


@asynccontextmanager
async def serving(
    config: TlsConfig, access: Access, identities: Identities | None, more: dict[str, Page] | None = None
) -> AsyncIterator[HttpServer]:
    """A port with TLS that asks for certificates and does not need them."""
    server = await HttpServer.open(
        "127.0.0.1",
        0,
        Registry(),
        more=more,
        access=access,
        tls=server_context(config, optional_certificate=True),
        identities=identities,
    )
    try:
        yield server
    finally:
        await server.close()


async def get(
    server: HttpServer, path: str, tls: ssl.SSLContext | None, token: str | None = None
) -> tuple[int, str, str]:
    """Status, head and body."""
    lines = [f"GET {path} HTTP/1.1", *([] if token is None else [f"Authorization: Bearer {token}"])]
    async with asyncio.timeout(TIMEOUT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=tls)
        try:
            writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
            head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        finally:
            writer.transport.abort()
    return int(head.split(" ")[1]), head, body


def node(node_pem: str, trust_pem: str) -> TlsConfig:
    return TlsConfig(key_store_location=node_pem, trust_store_location=trust_pem)


async def test_readers_are_known_by_certificates_and_by_tokens(
    authority: Authority, node_pem: str, trust_pem: str, tmp_path: Path
) -> None:
    own = write_pem(tmp_path / "own.pem", authority.issue("svc-a"), [])
    rule, noted = Only(Right.DESCRIBE), list[RefusedToken]()
    known = Accepted(good="svc-t")
    identities = Identities(lambda: known, claimed=claimed_principal, note=noted.append)
    async with serving(node(node_pem, trust_pem), rule, identities) as server:
        anonymous = client_context(TlsConfig(trust_store_location=trust_pem))
        certified = client_context(TlsConfig(key_store_location=own, trust_store_location=trust_pem))
        for tls, token in ((anonymous, None), (certified, None), (anonymous, "good"), (certified, "good")):
            assert (await get(server, "/metrics", tls, token))[0] == 200
        assert rule.principals == [ANONYMOUS, "CN=svc-a", "svc-t"], "their rights are kept for further requests"
        claim = f"{part({})}.{part({'sub': 'svc-x'})}.{part('nothing')}"
        for token, claimed in (("bad", None), (claim, "svc-x")):
            status, head, body = await get(server, "/metrics", certified, token)
            assert (status, body) == (401, "it is not accepted\n")
            assert 'WWW-Authenticate: Bearer error="invalid_token"' in head
            assert token not in head + body
            refused = noted.pop()
            assert (refused.claimed, refused.port, str(refused.refusal)) == (claimed, server.port, "it is not accepted")
            assert refused.peer.startswith("127.0.0.1:")
        registry = Registry()
        watch_ports(registry, {}, server)
        assert 'waltz_tokens_refused_total{port="http",reason="wrong_signature"} 2' in prometheus_text(registry)
        assert 'waltz_tokens_refused_total{port="http",reason="expired"} 0' in prometheus_text(registry)
        assert (await get(server, "/ping", anonymous, "bad"))[0] == 200, "nobody is asked there"


async def test_a_certificate_of_another_authority_is_refused(node_pem: str, trust_pem: str, tmp_path: Path) -> None:
    foreign = write_pem(tmp_path / "foreign.pem", Authority("another").issue("svc-a"), [])
    async with serving(node(node_pem, trust_pem), Only(Right.DESCRIBE), None) as server:
        tls = client_context(TlsConfig(key_store_location=foreign, trust_store_location=trust_pem))
        with pytest.raises((OSError, IndexError)):  # the handshake fails, or nothing is answered
            await get(server, "/ping", tls)
        while not server.failed_handshakes:
            await asyncio.sleep(0)
        registry = Registry()
        watch_ports(registry, {}, server)
        assert 'waltz_tls_handshake_failures_total{port="http"} 1' in prometheus_text(registry)
        assert "reason=" not in prometheus_text(registry).replace('reason="no_tls"', "")


async def test_plain_http_is_no_answer_there_and_a_token_is_refused_over_it(node_pem: str, trust_pem: str) -> None:
    async with serving(node(node_pem, trust_pem), Only(Right.DESCRIBE), None) as server:
        with pytest.raises((OSError, IndexError)):
            await get(server, "/ping", None)
    plain = await HttpServer.open(
        "127.0.0.1", 0, Registry(), access=Only(Right.DESCRIBE), identities=Accepted(good="svc-t").rules
    )
    status, _, body = await get(plain, "/metrics", None, "good")
    assert (status, body.count("without TLS, where others may have read it: withdraw the token")) == (401, 1)
    assert (await get(plain, "/metrics", None))[0] == 200
    await plain.close()


async def test_changed_certificates_count_for_new_connections(
    authority: Authority, node_pem: str, trust_pem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed_files, "CHECK_INTERVAL_S", 0.001)
    other = Authority("another")
    async with serving(node(node_pem, trust_pem), Only(Right.DESCRIBE), None) as server:
        trusts_other = client_context(
            TlsConfig(trust_store_location=write_pem(tmp_path / "other.pem", None, [other.certificate]))
        )
        with pytest.raises(ssl.SSLError):
            await get(server, "/ping", trusts_other)
        os.replace(write_pem(tmp_path / "new.pem", other.issue("127.0.0.1"), []), node_pem)
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                try:
                    assert (await get(server, "/ping", trusts_other))[0] == 200
                    break
                except ssl.SSLError:
                    await asyncio.sleep(0.01)
        registry = Registry()
        watch_ports(registry, {}, server)
        assert 'waltz_tls_stores_unusable{port="http"} 0' in prometheus_text(registry)
        Path(node_pem).write_text("damaged")
        async with asyncio.timeout(TIMEOUT_S):
            while 'waltz_tls_stores_unusable{port="http"} 1' not in prometheus_text(registry):
                await asyncio.sleep(0.01)
        assert (await get(server, "/ping", trusts_other))[0] == 200, "the former certificate is in use"


async def test_a_large_page_arrives_whole(node_pem: str, trust_pem: str) -> None:
    text = "0123456789abcdef" * (1 << 19)

    def page(_: Request) -> Response:
        return Response(200, "text/plain", text)

    async with serving(node(node_pem, trust_pem), Only(Right.DESCRIBE), None, {"GET /large": page}) as server:
        tls = client_context(TlsConfig(trust_store_location=trust_pem))
        assert (await get(server, "/large", tls))[2] == text


async def test_peers_without_a_handshake_make_room_and_are_closed_with_the_port(
    node_pem: str, trust_pem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 2)
    async with serving(node(node_pem, trust_pem), Only(Right.DESCRIBE), None) as server:
        silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(4)]
        tls = client_context(TlsConfig(trust_store_location=trust_pem))
        assert (await get(server, "/ping", tls))[0] == 200
        async with asyncio.timeout(TIMEOUT_S):
            for reader, _ in silent[:3]:
                assert await _rest(reader) == b""
        last = silent[3][0]
    async with asyncio.timeout(TIMEOUT_S):
        assert await _rest(last) == b""
    for _, writer in silent:
        writer.transport.abort()


async def _rest(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


async def test_a_port_that_is_taken(node_pem: str, trust_pem: str) -> None:
    async with serving(node(node_pem, trust_pem), Only(), None) as server:
        with pytest.raises(WaltzError, match="the port is in use"):
            await HttpServer.open("127.0.0.1", server.port, Registry(), tls=server_context(TlsConfig()))
