"""Connections to a node whose peers present tokens, good ones, bad ones, late ones and none."""

import asyncio
import logging
from pathlib import Path

import pytest
from cryptography import x509

from tests.unit.common.net.certificates import Authority, write_pem
from tests.unit.common.net.peers import Recorder
from tests.unit.common.net.token_peers import TIMEOUT_S, Accepted, Proved, always, connected, listening
from waltz.common.access import ANONYMOUS, Proof, Source
from waltz.common.config.schemas import TlsConfig
from waltz.common.errors import ConnectFailedError, ProtocolError, TokenRefusedError
from waltz.common.ids import Endpoint
from waltz.common.net.channel import connect
from waltz.common.net.limits import ListenerLimits
from waltz.common.net.listener import Listener
from waltz.common.net.tls import client_context, server_context
from waltz.common.net.token_gate import MAX_CHECKED_PER_TURN, Identities
from waltz.common.net.token_problems import TokenProblem, TokenRefusal
from waltz.common.wire.frames import CLIENT_SERVER, STORAGE, STORAGE_ADMIN, Family, encode_frame
from waltz.common.wire.tokens import MAX_TOKEN_BYTES, decode_token_answer, encode_token


def frame(payload: bytes) -> bytes:
    return encode_frame(CLIENT_SERVER.magic, 6, payload)


@pytest.mark.parametrize("family", [CLIENT_SERVER, STORAGE, STORAGE_ADMIN])
async def test_a_peer_is_known_by_its_token_before_anything_else(family: Family) -> None:
    async with listening(Accepted(good="svc-a").rules, family=family) as port:
        channel, _ = await connected(port, always("good"), family)
        channel.send(encode_frame(family.magic, channel.version, b"\x01hello"))
        [handler] = port.handlers
        await handler.until(lambda found: found.payloads == [b"\x01hello"])
        assert handler.channel is not None
        assert (handler.channel.principal, handler.channel.proof) == ("svc-a", Proof.TOKEN)


@pytest.mark.parametrize("rules", [Identities(None), Accepted().rules])
async def test_bad_tokens_end_the_connection_before_its_handler_has_heard_of_it(
    rules: Identities, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(rules) as port:
        with pytest.raises(TokenRefusedError, match=r"acl.tokens.keys is not set|it is not accepted"):
            await connected(port, always("secret-token"))
        assert port.handlers[0].channel is None
        assert "the token of 127.0.0.1:" in caplog.text
        assert sum(port.listener.refused_tokens.values()) == 1
        assert "secret-token" not in caplog.text


async def test_a_peer_without_a_token_is_anonymous() -> None:
    async with listening(Accepted(good="svc-a").rules) as port:
        channel, _ = await connected(port, None)
        channel.send(frame(b"\x01a") + frame(b"\x01b"))
        [handler] = port.handlers
        await handler.until(lambda found: len(found.payloads) == 2)
        assert handler.channel is not None
        assert (handler.channel.principal, handler.channel.proof) == (ANONYMOUS, Proof.NONE)
        channel.close()
        await handler.until_closed()


async def test_a_token_after_another_message_is_none() -> None:
    async with listening(Accepted(good="svc-a").rules) as port:
        channel, _ = await connected(port, None)
        channel.send(frame(b"\x01a") + encode_token(CLIENT_SERVER, 6, "good"))
        [handler] = port.handlers
        await handler.until(lambda found: len(found.payloads) == 2)
        assert handler.payloads[1][0] == 40, "which no handler knows"
        assert handler.channel is not None
        assert handler.channel.principal == ANONYMOUS


async def test_a_node_without_access_rules_takes_any_token_for_none() -> None:
    async with listening(None) as port:
        channel, _ = await connected(port, always("anything"))
        [handler] = port.handlers
        assert handler.channel is not None, "it is told at once, as ever"
        channel.send(frame(b"\x01a"))
        await handler.until(lambda found: found.payloads == [b"\x01a"])
        assert handler.channel.principal == ANONYMOUS


@pytest.mark.parametrize("rules", [None, Accepted(good="svc-a").rules])
async def test_a_token_over_plaintext_is_refused(rules: Identities | None) -> None:
    async with listening(rules, plaintext=True) as port:
        client = Recorder()
        channel = await connect(port.endpoint, CLIENT_SERVER, "client", client, tls=None, timeout_s=TIMEOUT_S)
        channel.send(encode_token(CLIENT_SERVER, 6, "good") + frame(b"\x01a"))
        await client.until_closed()
        [payload] = client.payloads
        answer = decode_token_answer(payload, 0, len(payload))
        assert answer.error is not None
        assert "without TLS, where others may have read it: withdraw the token" in answer.error
        assert port.handlers[0].payloads == []


async def test_clients_send_no_token_over_plaintext() -> None:
    assert client_context(TlsConfig(plaintext=True), always("good")) is None


@pytest.mark.parametrize(
    "payload",
    [b"\x28", b"\x28\0\0\0\x09good", b"\x28\xff\xff\xff\xff", b"\x28\0\0\x20\x01" + b"a" * (MAX_TOKEN_BYTES + 1)],
)
async def test_a_malformed_token_message_closes_the_connection(
    payload: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(Accepted(good="svc-a").rules) as port:
        channel, client = await connected(port, None)
        channel.send(frame(payload))
        await client.until_closed()
        assert port.handlers[0].channel is None
        assert "closing the connection" in caplog.text
        assert "good" not in caplog.text


async def test_a_truncated_token_waits_for_its_rest_in_vain() -> None:
    async with listening(Accepted(good="svc-a").rules) as port:
        channel, _ = await connected(port, None)
        channel.send(encode_token(CLIENT_SERVER, 6, "good")[:-1])
        channel.close()
        await channel.wait_closed()
        assert port.handlers[0].channel is None


async def test_a_token_is_renewed_between_other_messages() -> None:
    accepted = Accepted(first="svc-a", second="svc-a")
    async with listening(accepted.rules) as port:
        channel, _ = await connected(port, always("first"))
        channel.send(frame(b"\x01a") + encode_token(CLIENT_SERVER, 6, "second") + frame(b"\x01b"))
        [handler] = port.handlers
        await handler.until(lambda found: found.payloads == [b"\x01a", b"\x01b"])
        accepted.expire("first", 0)
        accepted.rules.check_all()
        channel.send(frame(b"\x01c"))
        await handler.until(lambda found: len(found.payloads) == 3)


async def test_tokens_are_not_renewed_all_the_time(caplog: pytest.LogCaptureFixture) -> None:
    async with listening(Accepted(good="svc-a").rules) as port:
        channel, client = await connected(port, always("good"))
        channel.send(encode_token(CLIENT_SERVER, 6, "good") * 500)
        await client.until_closed()
        assert "tokens on one connection within" in caplog.text


async def test_a_connection_keeps_its_principal() -> None:
    async with listening(Accepted(first="svc-a", other="svc-b").rules) as port:
        channel, client = await connected(port, always("first"))
        channel.send(encode_token(CLIENT_SERVER, 6, "other") + frame(b"\x01b"))
        error = await client.until_closed()
        assert isinstance(error, TokenRefusedError)
        assert "the connection belongs to 'svc-a', but the token to another principal" in str(error)
        assert port.handlers[0].payloads == []


async def test_the_connection_ends_when_its_token_expires() -> None:
    accepted = Accepted(good="svc-a")
    accepted.expire("good", 0.2)
    async with listening(accepted.rules) as port:
        _, client = await connected(port, always("good"))
        error = await client.until_closed()
        assert isinstance(error, TokenRefusedError)
        assert "it is not accepted" in str(error)
        await port.handlers[0].until_closed()


async def test_the_connection_ends_when_its_token_is_withdrawn() -> None:
    accepted = Accepted(good="svc-a", other="svc-b")
    async with listening(accepted.rules) as port:
        _, client = await connected(port, always("good"))
        other, _ = await connected(port, always("other"))
        del accepted.known["good"]
        accepted.rules.check_all()
        assert isinstance(await client.until_closed(), TokenRefusedError)
        assert not other.closed
        with pytest.raises(TokenRefusedError, match="it is not accepted"):
            await connected(port, always("good"))


@pytest.mark.parametrize(
    ("sources", "principal"),
    [([Source.SUBJECT], "CN=svc-a"), ([Source.URI], "spiffe://example/svc-a"), ([Source.DNS], "svc-a.example")],
)
@pytest.mark.parametrize("family", [CLIENT_SERVER, CLIENT_SERVER._replace(versions=(0, 1, 2, 3, 4))])
async def test_a_certificate_has_the_name_that_the_node_wants(
    tmp_path: Path, sources: list[Source], principal: str, family: Family
) -> None:
    authority = Authority("authority")
    names = [x509.UniformResourceIdentifier("spiffe://example/svc-a"), x509.DNSName("svc-a.example")]
    store = write_pem(tmp_path / "client.pem", authority.issue("svc-a", alternative_names=names), [])
    trust = write_pem(tmp_path / "trust.pem", None, [authority.certificate])
    server_tls = server_context(TlsConfig(key_store_location=store, trust_store_location=trust))
    client_tls = client_context(TlsConfig(key_store_location=store, trust_store_location=trust, check_hostname=False))
    server, identities = Recorder(), Identities(None, sources)
    listener = await Listener.open(
        "127.0.0.1", 0, family, "node", lambda: server, tls=server_tls, identities=identities
    )
    try:
        endpoint = Endpoint("127.0.0.1", listener.port)
        channel = await connect(endpoint, family, "client", Recorder(), tls=client_tls, timeout_s=TIMEOUT_S)
        channel.send(encode_frame(family.magic, channel.version, b"\x01a"))
        await server.until(lambda found: bool(found.payloads))
        assert server.channel is not None
        assert (server.channel.principal, server.channel.proof) == (principal, Proof.CERTIFICATE)
    finally:
        await listener.close()


async def test_many_tokens_are_checked_a_few_in_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    accepted = Accepted(good="svc-a")
    async with listening(accepted.rules) as port:
        clients = [await connected(port, always("good")) for _ in range(2 * MAX_CHECKED_PER_TURN + 1)]
        del accepted.known["good"]
        verified: list[str] = []

        def verify(token: str) -> Proved:
            verified.append(token)
            raise TokenRefusal(TokenProblem.WITHDRAWN, "it is not accepted")

        monkeypatch.setattr(accepted, "verify", verify)
        accepted.rules.check_all()
        assert len(verified) == MAX_CHECKED_PER_TURN
        for _, client in clients:
            assert isinstance(await client.until_closed(), TokenRefusedError)
        assert len(verified) == len(clients)


async def test_older_peers_are_not_asked_for_tokens() -> None:
    old = CLIENT_SERVER._replace(versions=(0, 1, 2, 3, 4))
    async with listening(Accepted().rules, family=old) as port:
        channel, _ = await connected(port, always("good"))
        assert channel.version == 4
        [handler] = port.handlers
        await handler.until(lambda found: found.channel is not None)
        channel.send(encode_frame(CLIENT_SERVER.magic, 4, b"\x28good"))
        await handler.until(lambda found: found.payloads == [b"\x28good"])


async def test_tokens_are_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with listening(Accepted(**{"secret-token": "svc-a"}).rules) as port:
        channel, client = await connected(port, always("secret-token"))
        channel.send(encode_token(CLIENT_SERVER, 6, "secret-other"))
        error = await client.until_closed()
        with pytest.raises(ConnectFailedError) as refused:
            await connected(port, always("secret-third"))
    await asyncio.sleep(0)
    assert "secret" not in caplog.text + repr(error) + repr(refused.value) + repr(refused.value.__cause__)
    assert not isinstance(error, ProtocolError)


def _counted(principal: str, proof: Proof) -> str | None:
    """Tokens of teams count for the team; others do not count."""
    return None if proof is not Proof.TOKEN or principal == "ops" else principal.partition("/")[0]


async def test_a_principal_cannot_take_all_places(caplog: pytest.LogCaptureFixture) -> None:
    rules = Accepted(one="pay/a", two="pay/b", other="orders/a", ops="ops").rules
    async with listening(rules, limits=ListenerLimits(max_per_principal=2), name_of=_counted) as port:
        first, _ = await connected(port, always("one"))
        await connected(port, always("two"))
        late, heard = await connected(port, always("two"))
        await heard.until_closed()
        late.send(frame(b"\x01a"))
        assert port.handlers[2].channel is None, "its handler has not heard of it"
        assert port.listener.refused_count == 1
        assert "refusing 127.0.0.1:" in caplog.text
        assert "principal 'pay' already has 2 connections" in caplog.text
        for token in ("other", "ops", "ops", "ops"):
            channel, _ = await connected(port, always(token))
            channel.send(frame(b"\x01a"))
            await port.handlers[-1].until(lambda found: found.payloads == [b"\x01a"])
        for _ in range(3):
            channel, _ = await connected(port, None)
            channel.send(frame(b"\x01a"))
            await port.handlers[-1].until(lambda found: found.payloads == [b"\x01a"])
        first.close()
        await first.wait_closed()
        await port.handlers[0].until_closed()
        again, _ = await connected(port, always("two"))
        again.send(frame(b"\x01a"))
        await port.handlers[-1].until(lambda found: found.payloads == [b"\x01a"])


@pytest.mark.parametrize("version", [5, 6])
async def test_a_peer_without_a_token_counts_by_its_certificate(version: int) -> None:
    """Before version 6 from its hello on, afterwards from its first message."""
    older = CLIENT_SERVER._replace(versions=tuple(range(version + 1)))
    limits = ListenerLimits(max_per_principal=1)
    payload = encode_frame(CLIENT_SERVER.magic, version, b"\x01a")
    async with listening(Identities(None), limits=limits, name_of=lambda principal, proof: principal) as port:
        first, _ = await connected(port, None, older)
        first.send(payload)
        await port.handlers[0].until(lambda found: found.payloads == [b"\x01a"])
        second, heard = await connected(port, None, older)
        second.send(payload)
        await heard.until_closed()
        assert port.handlers[1].payloads == []
        assert port.handlers[1].channel is None
        assert port.listener.refused_count == 1
