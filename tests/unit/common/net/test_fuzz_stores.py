"""Damaged key stores, trust stores and revocation lists: refused with one line, whatever is wrong with them."""

from contextlib import suppress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from tests.fuzz.mutations import damaged
from tests.unit.common.net.certificates import Authority, write_pem, write_pkcs12
from waltz.common.config.schemas import TlsConfig
from waltz.common.errors import ConfigError
from waltz.common.net.tls import client_context, server_context

PASSWORD = SecretStr("open-sesame")
QUICK = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def use(path: Path, content: bytes) -> None:
    """Use the bytes as key store and trust store of client and server."""
    path.write_bytes(content)
    store = str(path)
    for config in (
        TlsConfig(key_store_location=store, key_store_password=PASSWORD),
        TlsConfig(key_store_location=store),
        TlsConfig(trust_store_location=store, trust_store_password=PASSWORD),
    ):
        with suppress(ConfigError):
            client_context(config)
    with suppress(ConfigError):
        server_context(TlsConfig(key_store_location=store, key_store_password=PASSWORD))


def test_damaged_pem(authority: Authority, tmp_path: Path) -> None:
    node, path = authority.issue("node"), tmp_path / "store"
    seeds = [
        Path(write_pem(tmp_path / "plain.pem", node, [authority.certificate])).read_bytes(),
        Path(write_pem(tmp_path / "encrypted.pem", node, [], PASSWORD.get_secret_value())).read_bytes(),
        Path(write_pem(tmp_path / "trust.pem", None, [authority.certificate])).read_bytes(),
    ]
    QUICK(given(damaged(seeds))(lambda content: use(path, content)))()


def test_damaged_revocation_lists(authority: Authority, tmp_path: Path) -> None:
    trust = write_pem(tmp_path / "trust.pem", None, [authority.certificate])
    path, pem = tmp_path / "crl", authority.revoke(authority.issue("node"))
    config = TlsConfig(trust_store_location=trust, crl_location=str(path))

    @QUICK
    @given(damaged([pem, x509.load_pem_x509_crl(pem).public_bytes(Encoding.DER)]))
    def check(content: bytes) -> None:
        path.write_bytes(content)
        with suppress(ConfigError):
            client_context(config)

    check()


def test_damaged_pkcs12(authority: Authority, tmp_path: Path) -> None:
    """The end is damaged only: damage at the beginning may ask for millions of rounds of hashing, as it may say."""
    node, path, password = authority.issue("node"), tmp_path / "store", PASSWORD.get_secret_value()
    seed = Path(write_pkcs12(tmp_path / "node.p12", node, [authority.certificate], password)).read_bytes()

    @QUICK
    @given(st.integers(0, len(seed)), st.binary(max_size=8))
    def check(size: int, end: bytes) -> None:
        use(path, seed[:size] + end)

    check()
