"""Revocation lists: who is refused by them, what a file must have, and the end of open connections."""

import logging
import os
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from tests.unit.common.net.certificates import Authority, Identity, write_pem
from tests.unit.common.net.test_tls import exchange
from tests.unit.common.net.test_tls_renewal import Application, Node, Stores, node_with, stores_of
from waltz.common.config.schemas import CliConfig, TlsConfig, from_mapping
from waltz.common.errors import ConfigError, ConnectFailedError, WaltzError
from waltz.common.net import followed_files, tls_acceptor
from waltz.common.net.revocation import RevocationLists, load_lists, read_lists
from waltz.common.net.tls import client_context, server_context
from waltz.common.net.tls_renewal import FollowingContext, StoreFiles, present


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_files, "CHECK_INTERVAL_S", 0.001)


class Peers:
    """A node with a revocation list and a client, of the same authority."""

    def __init__(self, authority: Authority, node_pem: str, trust_pem: str, directory: Path) -> None:
        self.identity = authority.issue("svc-a")
        self.crl = directory / "crl.pem"
        store = write_pem(directory / "client.pem", self.identity, [])
        self.node = TlsConfig(key_store_location=node_pem, trust_store_location=trust_pem, crl_location=str(self.crl))
        self.client = TlsConfig(key_store_location=store, trust_store_location=trust_pem)


@pytest.fixture
def peers(authority: Authority, node_pem: str, trust_pem: str, tmp_path: Path) -> Peers:
    return Peers(authority, node_pem, trust_pem, tmp_path)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("takes_tokens", [False, True])
async def test_a_revoked_certificate_is_refused(
    peers: Peers,
    authority: Authority,
    caplog: pytest.LogCaptureFixture,
    takes_tokens: bool,
    version: ssl.TLSVersion,
) -> None:
    client = client_context(peers.client)
    assert client is not None
    client.minimum_version = client.maximum_version = version
    peers.crl.write_bytes(authority.revoke(authority.issue("other")))
    await exchange(server_context(peers.node, optional_certificate=takes_tokens), client)
    peers.crl.write_bytes(authority.revoke(peers.identity))
    with pytest.raises(WaltzError, match="(?i)certificate"):
        await exchange(server_context(peers.node, optional_certificate=takes_tokens), client)
    assert "its certificate is not trusted (it is revoked)" in caplog.text


async def test_a_client_refuses_a_node_with_a_revoked_certificate(
    peers: Peers, authority: Authority, tmp_path: Path
) -> None:
    node = authority.issue("127.0.0.1")
    store = write_pem(tmp_path / "revoked.pem", node, [])
    peers.crl.write_bytes(authority.revoke(node))
    with pytest.raises(ConnectFailedError, match=r"the peer's certificate is not trusted \(it is revoked\)"):
        await exchange(server_context(TlsConfig(key_store_location=store)), client_context(peers.node))


async def test_an_authority_without_a_list_lets_nobody_in(
    peers: Peers, authority: Authority, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    other = Authority("Another authority")
    trust = write_pem(tmp_path / "both.pem", None, [authority.certificate, other.certificate])
    node = peers.node.model_copy(update={"trust_store_location": trust})
    peers.crl.write_bytes(other.revoke())
    with pytest.raises(WaltzError, match="(?i)certificate|unknown_ca"):
        await exchange(server_context(node), client_context(peers.client))
    assert "there is no revocation list of its authority in the file at ssl.crl.location" in caplog.text
    peers.crl.write_bytes(other.revoke() + b"both are needed\n" + authority.revoke())
    await exchange(server_context(node), client_context(peers.client))


async def test_a_list_of_somebody_else_in_the_name_of_the_authority_lets_nobody_in(
    peers: Peers, authority: Authority
) -> None:
    name = authority.certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value
    peers.crl.write_bytes(Authority(str(name)).revoke())
    with pytest.raises(WaltzError, match="(?i)certificate|decrypt"):
        await exchange(server_context(peers.node), client_context(peers.client))


def usable(content: bytes, path: Path) -> RevocationLists:
    path.write_bytes(content)
    return read_lists(str(path))


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (lambda _: b"", "holds no revocation list"),
        (lambda authority: authority.certificate.public_bytes(Encoding.PEM), "holds no revocation list"),
        (lambda authority: authority.revoke()[:200], "is damaged"),
        (lambda authority: authority.revoke().replace(b"M", b"N"), "is damaged"),
        (lambda _: b"\x30\x03\x02\x01\x01", "is damaged"),
        (lambda authority: authority.revoke(age_days=2, days=1), "of CN=.* has expired on 20.* UTC; get a new one"),
        (lambda authority: authority.revoke(age_days=-2), "is not valid before 20.* UTC; is the clock"),
        (lambda authority: authority.revoke(delta=True), "delta list of CN=.*: only complete lists"),
    ],
)
def test_unusable_files(
    authority: Authority, tmp_path: Path, content: Callable[[Authority], bytes], error: str
) -> None:
    with pytest.raises(ConfigError, match=error):
        usable(content(authority), tmp_path / "crl")
    with pytest.raises(ConfigError, match="cannot read crl .*absent"):
        read_lists(str(tmp_path / "absent"))


def test_the_newest_list_of_an_authority_counts(authority: Authority, tmp_path: Path) -> None:
    revoked, former = authority.issue("a"), authority.issue("b")
    old, new = authority.revoke(former, age_days=9, days=1), authority.revoke(revoked)

    def found(identity: Identity, content: bytes) -> str | None:
        der = identity.certificate.public_bytes(Encoding.DER)
        return usable(content, tmp_path / "crl").revokes([der])

    for content in (old + new, new + old, ssl_der(new)):
        assert (found(revoked, content), found(former, content)) == ("CN=a", None)


def ssl_der(pem: bytes) -> bytes:
    return x509.load_pem_x509_crl(pem).public_bytes(Encoding.DER)


@pytest.mark.parametrize("tls", [{}, {"plaintext": True, "trustStore.location": "/trust"}])
def test_lists_need_a_trust_store(tls: dict[str, object]) -> None:
    given = {f"ssl.{key}": value for key, value in {**tls, "crl.location": "/crl"}.items()}
    with pytest.raises(ConfigError, match=r"crl.location needs TLS and trustStore.location"):
        from_mapping({"zookeeper.connectString": "zk", "cluster.root": "/waltz", **given}, CliConfig)


class ListedStores(Stores):
    """Stores with a revocation list."""

    @property
    def crl(self) -> Path:
        return self.trust_store.with_name("crl.pem")

    @property
    def config(self) -> TlsConfig:
        return super().config.model_copy(update={"crl_location": str(self.crl)})

    def revoke(self, content: bytes) -> None:
        new = self.crl.with_name("new")
        new.write_bytes(content)
        os.replace(new, self.crl)


@pytest.fixture
def listed(authority: Authority, tmp_path: Path) -> ListedStores:
    stores = ListedStores(tmp_path / "node")
    stores.write(authority, authority)
    stores.revoke(authority.revoke())
    return stores


async def newer(node: Node, known: ssl.SSLContext) -> None:
    def is_newer(files: StoreFiles) -> bool:
        return files.present is not known and files._versions == files._look()

    await node.follows(is_newer)


async def test_an_open_connection_ends_when_its_certificate_is_revoked(
    tmp_path: Path, authority: Authority, listed: ListedStores, caplog: pytest.LogCaptureFixture
) -> None:
    names = [stores_of(tmp_path / f"client-{number}", authority) for number in range(25)]
    async with node_with(listed) as node:
        opened = [await Application(stores).connect(node) for stores in names]
        revoked = x509.load_pem_x509_certificate(names[3].key_store.read_bytes())
        known = node.context
        listed.revoke(authority.revoke(Identity(authority.key, revoked)))
        await newer(node, known)
        await opened[3][1].until(lambda recorder: bool(recorder.closed))
        assert [channel.closed for channel, _ in opened] == [number == 3 for number in range(25)]
        assert "the certificate CN=node is revoked" in caplog.text
        assert [await Application(names[at]).works(node) for at in (2, 3, 4)] == [True, False, True]
        for channel, _ in opened:
            channel.close()
            await channel.wait_closed()


async def test_an_open_connection_ends_when_the_authority_of_its_certificate_is_revoked(
    tmp_path: Path, authority: Authority, listed: ListedStores, caplog: pytest.LogCaptureFixture
) -> None:
    below = authority.below("an authority below")
    client = stores_of(tmp_path / "client", authority)
    write_pem(client.key_store, below.issue("node"), [below.certificate])
    listed.revoke(authority.revoke() + below.revoke())
    async with node_with(listed) as node:
        channel, recorder = await Application(client).connect(node)
        known = node.context
        listed.revoke(authority.revoke(Identity(below.key, below.certificate)) + below.revoke())
        await newer(node, known)
        await recorder.until(lambda each: bool(each.closed))
        await channel.wait_closed()
        assert "the certificate CN=an authority below is revoked" in caplog.text
        assert not await Application(client).works(node)


async def test_a_handshake_that_began_before_the_revocation_does_not_outlast_it(
    tmp_path: Path, authority: Authority, listed: ListedStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node still uses the former context when the handshake begins, and has the new one at its end."""
    client = stores_of(tmp_path / "client", authority)
    async with node_with(listed) as node:
        first, known = [node.context], node.context
        revoked = x509.load_pem_x509_certificate(client.key_store.read_bytes())
        listed.revoke(authority.revoke(Identity(authority.key, revoked)))
        await newer(node, known)
        monkeypatch.setattr(tls_acceptor, "present", lambda context: first.pop() if first else present(context))
        assert not await Application(client).works(node)
        assert not first


async def test_an_expired_list_does_not_replace_one_that_holds_and_is_loud(
    tmp_path: Path, authority: Authority, listed: ListedStores, caplog: pytest.LogCaptureFixture
) -> None:
    async with node_with(listed) as node:
        listed.revoke(authority.revoke(age_days=2, days=1))
        await node.follows(lambda files: files.problem is not None)
        assert node.unusable()
        errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
        assert [" has expired on " in error for error in errors] == [True]
        assert await Application(stores_of(tmp_path / "client", authority)).works(node)


async def test_a_list_that_expires_while_it_is_in_use_lets_nobody_in_and_is_loud(
    authority: Authority, listed: ListedStores, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with node_with(listed) as node:
        assert not node.unusable()
        expired = authority.revoke(age_days=2, days=1)
        end = x509.load_pem_x509_crl(expired).next_update_utc
        assert end is not None
        context = server_context(listed.config.model_copy(update={"crl_location": None}))
        assert isinstance(context, FollowingContext)
        context.revocations = RevocationLists(end, frozenset(), expired)
        load_lists(context, context.revocations)
        node.files.present = context
        assert node.unusable()
        assert not await Application(stores_of(tmp_path / "client", authority)).works(node)
        assert "has expired: put a new one into the file at ssl.crl.location" in caplog.text
