import asyncio
import re
import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest
from cryptography.x509 import ObjectIdentifier
from cryptography.x509.oid import ExtendedKeyUsageOID
from pydantic import SecretStr

from tests.unit.common.net.certificates import Authority, write_pem, write_pkcs12
from tests.unit.common.net.peers import FAMILY, Recorder, frame
from waltz.common.config.schemas import ClientConfig, TlsConfig, from_mapping, load
from waltz.common.errors import ConfigError, ConnectFailedError, TlsRefusedError, WaltzError
from waltz.common.ids import Endpoint
from waltz.common.net.channel import connect, connect_failure, is_tls_refusal
from waltz.common.net.listener import Listener
from waltz.common.net.tls import client_context, server_context

PASSWORD = SecretStr("correct horse")


async def exchange(server_tls: ssl.SSLContext | None, client_tls: ssl.SSLContext | None) -> None:
    """Connect and have a frame echoed; raises what ``connect`` raises, or ``EOFError`` when the channel is closed."""
    server, client = Recorder(), Recorder()
    server.on_payload = lambda channel, payload: channel.send(frame(payload))
    listener = await Listener.open("127.0.0.1", 0, FAMILY, "server", lambda: server, tls=server_tls)
    try:
        endpoint = Endpoint("127.0.0.1", listener.port)
        channel = await connect(endpoint, FAMILY, "client", client, tls=client_tls, timeout_s=60)
        channel.send(frame(b"hello"))
        await client.until(lambda recorder: bool(recorder.payloads or recorder.closed))
        assert client.payloads == [b"hello"]
        channel.close()
        await channel.wait_closed()
    finally:
        await listener.close()


async def test_self_signed_and_unverified() -> None:
    await exchange(server_context(TlsConfig()), client_context(TlsConfig()))


async def test_plaintext_is_no_context() -> None:
    plaintext = TlsConfig(plaintext=True)
    assert server_context(plaintext) is None
    assert client_context(plaintext) is None


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_tls_1_2_and_1_3_are_spoken(version: ssl.TLSVersion) -> None:
    client_tls = client_context(TlsConfig())
    assert client_tls is not None
    client_tls.minimum_version = client_tls.maximum_version = version
    await exchange(server_context(TlsConfig()), client_tls)


async def test_older_versions_are_not_spoken() -> None:
    for context in (server_context(TlsConfig()), client_context(TlsConfig())):
        assert context is not None
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2


async def test_mutual_with_pem(node_pem: str, trust_pem: str) -> None:
    config = TlsConfig(key_store_location=node_pem, trust_store_location=trust_pem)
    await exchange(server_context(config), client_context(config))


async def test_mutual_with_encrypted_pem(authority: Authority, trust_pem: str, tmp_path: Path) -> None:
    store = write_pem(tmp_path / "node.pem", authority.issue("127.0.0.1"), [], PASSWORD.get_secret_value())
    config = TlsConfig(key_store_location=store, key_store_password=PASSWORD, trust_store_location=trust_pem)
    await exchange(server_context(config), client_context(config))


async def test_mutual_with_pkcs12(authority: Authority, tmp_path: Path) -> None:
    password, certificates = PASSWORD.get_secret_value(), [authority.certificate]
    config = TlsConfig(
        key_store_location=write_pkcs12(tmp_path / "node.jks", authority.issue("127.0.0.1"), certificates, password),
        key_store_password=PASSWORD,
        key_store_type="JKS",  # what configurations say; what keytool writes is PKCS#12
        trust_store_location=write_pkcs12(tmp_path / "trust.jks", None, certificates, password),
        trust_store_password=PASSWORD,
    )
    await exchange(server_context(config), client_context(config))


async def test_a_trust_store_may_hold_the_peers_own_certificate(authority: Authority, tmp_path: Path) -> None:
    node, other = authority.issue("127.0.0.1"), authority.issue("other")
    store = write_pem(tmp_path / "node.pem", node, [])
    trust = write_pem(tmp_path / "trust.pem", None, [node.certificate])
    config = TlsConfig(key_store_location=store, trust_store_location=trust)
    await exchange(server_context(config), client_context(config))
    stranger = TlsConfig(key_store_location=write_pem(tmp_path / "other.pem", other, []))
    with pytest.raises(ConnectFailedError, match="not trusted"):
        await exchange(server_context(stranger), client_context(config))


@pytest.mark.parametrize(
    ("usages", "is_client"),
    [
        ([], True),
        ([ExtendedKeyUsageOID.CLIENT_AUTH], True),
        ([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH], True),
        ([ExtendedKeyUsageOID.SERVER_AUTH], False),
        ([ExtendedKeyUsageOID.CODE_SIGNING], False),
    ],
)
@pytest.mark.parametrize("takes_tokens", [False, True])
async def test_a_certificate_that_is_not_for_clients_is_no_identity_of_one(
    authority: Authority,
    node_pem: str,
    trust_pem: str,
    tmp_path: Path,
    takes_tokens: bool,
    usages: list[ObjectIdentifier],
    is_client: bool,
) -> None:
    store = write_pem(tmp_path / "client.pem", authority.issue("svc-a", usages), [])
    config = TlsConfig(key_store_location=node_pem, trust_store_location=trust_pem)
    server = server_context(config, optional_certificate=takes_tokens)
    client = client_context(TlsConfig(key_store_location=store, trust_store_location=trust_pem))
    if is_client:
        await exchange(server, client)
    else:
        with pytest.raises(WaltzError, match="certificate"):
            await exchange(server, client)


async def test_a_node_that_takes_tokens_needs_no_certificate_but_trusts_no_others(
    node_pem: str, trust_pem: str, tmp_path: Path
) -> None:
    server = server_context(
        TlsConfig(key_store_location=node_pem, trust_store_location=trust_pem), optional_certificate=True
    )
    await exchange(server, client_context(TlsConfig(trust_store_location=trust_pem)))
    store = write_pem(tmp_path / "client.pem", Authority("Another authority").issue("svc-a"), [])
    with pytest.raises(WaltzError, match="certificate"):
        await exchange(server, client_context(TlsConfig(key_store_location=store, trust_store_location=trust_pem)))


async def test_a_server_signed_by_another_authority_is_refused(node_pem: str, tmp_path: Path) -> None:
    trust = write_pem(tmp_path / "other.pem", None, [Authority("Another authority").certificate])
    client_tls = client_context(TlsConfig(trust_store_location=trust))
    with pytest.raises(ConnectFailedError, match=r"TLS failure: the peer's certificate is not trusted \("):
        await exchange(server_context(TlsConfig(key_store_location=node_pem)), client_tls)
    with pytest.raises(ConnectFailedError, match=r"TLS failure: the peer's certificate is not trusted \("):
        await exchange(server_context(TlsConfig()), client_tls)


async def test_host_names_are_checked_with_a_trust_store(
    authority: Authority, node_pem: str, trust_pem: str, tmp_path: Path
) -> None:
    other = write_pem(tmp_path / "other.pem", authority.issue("other"), [])
    other_tls = server_context(TlsConfig(key_store_location=other))
    checked = TlsConfig(trust_store_location=trust_pem)
    with pytest.raises(ConnectFailedError, match=r"not trusted \(.*127\.0\.0\.1"):
        await exchange(other_tls, client_context(checked))
    await exchange(server_context(TlsConfig(key_store_location=node_pem)), client_context(checked))
    unchecked = TlsConfig(trust_store_location=trust_pem, check_hostname=False)
    await exchange(other_tls, client_context(unchecked))
    with pytest.raises(ConfigError, match=r"trustStore\.location"):
        client_context(TlsConfig(check_hostname=True))


async def test_host_names_are_not_checked_with_a_file_of_the_original(
    authority: Authority, trust_pem: str, tmp_path: Path
) -> None:
    other = write_pem(tmp_path / "other.pem", authority.issue("other"), [])
    other_tls = server_context(TlsConfig(key_store_location=other))
    keys = {
        "zookeeper.connectString": "zk:2181",
        "zookeeper.sessionTimeout": 1000,
        "cluster.root": "/waltz",
        "client.ssl.trustStore.location": trust_pem,
    }
    path = tmp_path / "client.yml"
    path.write_text("".join(f"{key}: {value}\n" for key, value in keys.items()))
    await exchange(other_tls, client_context(load(path, ClientConfig).tls))
    with pytest.raises(ConnectFailedError, match="not trusted"):
        await exchange(other_tls, client_context(from_mapping(keys, ClientConfig).tls))
    path.write_text(path.read_text() + "client.ssl.checkHostname: true\n")
    with pytest.raises(ConnectFailedError, match="not trusted"):
        await exchange(other_tls, client_context(load(path, ClientConfig).tls))


UNTRUSTED = "the peer's certificate is not trusted"
NO_CERTIFICATE = "does the server require a trusted certificate\\? A client's is set by client\\.ssl\\.keyStore"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    ("server", "client", "told"),
    [
        ({"key": "node"}, None, re.escape("closed before the hello; is this the right port? Does it use TLS?")),
        (None, {}, "TLS failure: the peer does not use TLS; is this the right port"),
        ({"key": "node"}, {"trust": "stranger"}, rf"{UNTRUSTED} \(self-signed certificate in certificate chain\)"),
        ({}, {"trust": "trust"}, rf"{UNTRUSTED} \(self-signed certificate\); see ssl\.trustStore\.location"),
        ({"key": "elsewhere"}, {"trust": "trust"}, rf"{UNTRUSTED} \(IP address mismatch, .* '127\.0\.0\.1'\)"),
        ({"key": "node", "trust": "trust"}, {"trust": "trust"}, NO_CERTIFICATE),
        ({"key": "node", "trust": "trust"}, {"key": "stranger"}, NO_CERTIFICATE),
    ],
    ids=[
        "a plain client",
        "a plain server",
        "another authority",
        "a self-signed server",
        "another host",
        "no certificate",
        "an untrusted certificate",
    ],
)
async def test_a_mistake_of_tls_is_told_at_once_with_its_cause(
    server: Mapping[str, str] | None,
    client: Mapping[str, str] | None,
    told: str,
    version: ssl.TLSVersion,
    authority: Authority,
    node_pem: str,
    trust_pem: str,
    tmp_path: Path,
) -> None:
    stranger = Authority("Another authority")
    stores = {
        "node": node_pem,
        "trust": trust_pem,
        "elsewhere": write_pem(tmp_path / "elsewhere.pem", authority.issue("elsewhere"), []),
        "stranger": write_pem(tmp_path / "stranger.pem", stranger.issue("stranger"), [stranger.certificate]),
    }

    def config(named: Mapping[str, str] | None) -> TlsConfig:
        if named is None:
            return TlsConfig(plaintext=True)
        key, trust = (stores[named[what]] if what in named else None for what in ("key", "trust"))
        return TlsConfig(key_store_location=key, trust_store_location=trust)

    client_tls = client_context(config(client))
    if client_tls is not None:
        client_tls.maximum_version = version
    with pytest.raises(ConnectFailedError, match=told) as raised:  # long before the time-out of a minute
        await exchange(server_context(config(server)), client_tls)
    assert isinstance(raised.value, TlsRefusedError) == ("TLS failure" in str(raised.value))


def test_what_may_end_otherwise_at_the_next_attempt_is_no_refusal() -> None:
    torn = ssl.SSLError(1, "[SSL: UNEXPECTED_EOF_WHILE_READING]")
    torn.reason = "UNEXPECTED_EOF_WHILE_READING"
    assert not is_tls_refusal(torn)
    assert not is_tls_refusal(ConnectionResetError())


@pytest.mark.parametrize("name", ["TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_HANDSHAKE_FAILURE"])
def test_what_peers_say_that_miss_a_certificate(name: str) -> None:
    error = ssl.SSLError(1, f"[SSL: {name}]")
    error.reason = name
    told = connect_failure(error, uses_tls=True, opened=True)
    assert re.match(rf"TLS failure: {name}; {NO_CERTIFICATE}", told)


def key_store(path: str, password: SecretStr | None = None) -> TlsConfig:
    return TlsConfig(key_store_location=path, key_store_password=password)


def trust_store(path: str, password: SecretStr | None = None) -> TlsConfig:
    return TlsConfig(trust_store_location=path, trust_store_password=password)


@pytest.mark.parametrize("magic", ["feedfeed", "cececece"])
def test_java_key_stores_are_refused_with_the_command_that_converts_them(tmp_path: Path, magic: str) -> None:
    store = tmp_path / "node.jks"
    store.write_bytes(bytes.fromhex(magic) + bytes(100))
    command = f"keytool -importkeystore -srckeystore {store} -destkeystore {tmp_path}/node.p12 -deststoretype PKCS12"
    with pytest.raises(ConfigError, match=command):
        server_context(key_store(str(store), PASSWORD))
    with pytest.raises(ConfigError, match=command):
        client_context(trust_store(str(store), PASSWORD))


def test_a_missing_password(authority: Authority, tmp_path: Path) -> None:
    node, password = authority.issue("127.0.0.1"), PASSWORD.get_secret_value()
    p12 = write_pkcs12(tmp_path / "node.p12", node, [authority.certificate], password)
    pem = write_pem(tmp_path / "node.pem", node, [], password)
    with pytest.raises(ConfigError, match=r"^keyStore\.password is missing for the PKCS#12 file "):
        server_context(key_store(p12))
    with pytest.raises(ConfigError, match=r"^trustStore\.password is missing for the PKCS#12 file "):
        client_context(trust_store(p12))
    with pytest.raises(ConfigError, match=r"^keyStore\.password is missing for the encrypted key in "):
        server_context(key_store(pem))


def test_a_wrong_password_is_not_shown(authority: Authority, tmp_path: Path) -> None:
    node, password, wrong = authority.issue("127.0.0.1"), PASSWORD.get_secret_value(), SecretStr("hunter2-sesame")
    p12 = write_pkcs12(tmp_path / "node.p12", node, [authority.certificate], password)
    pem = write_pem(tmp_path / "node.pem", node, [], password)
    for config in (key_store(p12, wrong), key_store(pem, wrong), trust_store(p12, wrong)):
        with pytest.raises(ConfigError, match=r"cannot be decrypted: wrong (key|trust)Store\.password") as caught:
            server_context(config)
        assert "sesame" not in str(caught.value)
        assert "sesame" not in repr(config)


def test_stores_that_hold_nothing_useful(authority: Authority, tmp_path: Path, trust_pem: str) -> None:
    password = PASSWORD.get_secret_value()
    only_trust = write_pkcs12(tmp_path / "trust.p12", None, [authority.certificate], password)
    with pytest.raises(ConfigError, match="holds no private key with a certificate"):
        server_context(key_store(only_trust, PASSWORD))
    with pytest.raises(ConfigError, match="must hold a private key and its certificate chain"):
        server_context(key_store(trust_pem))
    empty = tmp_path / "empty.pem"
    empty.write_text("-----BEGIN NOTHING-----\n")
    with pytest.raises(ConfigError, match="holds no certificate"):
        client_context(trust_store(str(empty)))
    empty.write_text("not a store")
    with pytest.raises(ConfigError, match="is neither PEM nor PKCS#12"):
        client_context(trust_store(str(empty)))
    with pytest.raises(ConfigError, match="^cannot read keyStore .*: No such file or directory$"):
        server_context(key_store(str(tmp_path / "absent.p12"), PASSWORD))


def test_a_key_that_is_not_that_of_the_certificate(authority: Authority, tmp_path: Path) -> None:
    node, other = authority.issue("127.0.0.1"), authority.issue("other")
    store = write_pem(tmp_path / "mixed.pem", node._replace(certificate=other.certificate), [])
    with pytest.raises(ConfigError, match="the first certificate is not that of the key"):
        server_context(key_store(store))


async def test_no_key_stays_in_the_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    server_context(TlsConfig())
    assert await asyncio.to_thread(lambda: list(tmp_path.iterdir())) == []
