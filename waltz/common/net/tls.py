"""TLS contexts from the original's key store and trust store keys.

Stores are PEM or PKCS#12 files. Their content decides, since the type keys of existing configurations say ``JKS`` even
where keytool wrote PKCS#12. Java's own JKS format is not supported; the error names the command for a conversion.

Rules of all Waltz protocols: TLS 1.2 or later; without a key store, a self-signed certificate; with a trust store, the
peer's chain is verified, also against revocation lists, and servers require one. The configuration decides whether host
names are checked.
"""

import datetime
import enum
import os
import secrets
import socket
import ssl
import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import pkcs12
from pydantic import SecretStr

from waltz.common.config.schemas import TlsConfig
from waltz.common.errors import ConfigError
from waltz.common.net.revocation import load_lists, read_lists
from waltz.common.net.tls_renewal import FollowingContext, following
from waltz.common.net.token_sender import TokenSource, file_source

_MAX_STORE_BYTES = 16 << 20
_JAVA_MAGICS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")  # JKS, JCEKS
_SELF_SIGNED_KEY_BITS = 2048
_SELF_SIGNED_LIFE = datetime.timedelta(days=3650)


class _Format(enum.Enum):
    PEM = enum.auto()
    PKCS12 = enum.auto()


@dataclass(frozen=True, slots=True)
class _Store:
    """The encrypted content of a store file."""

    name: str
    """``keyStore`` or ``trustStore``."""
    path: str
    content: bytes = field(repr=False)
    format: _Format
    password: SecretStr | None


def server_context(config: TlsConfig, *, optional_certificate: bool = False) -> ssl.SSLContext | None:
    """The context for listeners; follows its files.

    Reads files and may generate a key: call it at the start, once per process and configuration.

    Args:
        config: The configuration.
        optional_certificate: Accept peers without a certificate. If a peer has one, the certificate must be valid.

    Returns:
        The context; ``None`` for plaintext.

    Raises:
        ConfigError: A store is unusable.
    """
    if config.plaintext:
        return None
    return following(lambda: _server_context(config, optional_certificate), _locations(config))


def _server_context(config: TlsConfig, optional_certificate: bool) -> FollowingContext:
    context = _new_context(ssl.PROTOCOL_TLS_SERVER)
    store = _read_store("keyStore", config.key_store_location, config.key_store_password)
    if store is None:
        _load_self_signed(context)
    else:
        _load_key_store(context, store)
    if _load_trust_store(context, config):
        context.verify_mode = ssl.CERT_OPTIONAL if optional_certificate else ssl.CERT_REQUIRED
    return context


def client_context(config: TlsConfig, token: TokenSource | None = None) -> ssl.SSLContext | None:
    """The context for outgoing connections; follows its files.

    Without a trust store no certificate is verified, and a check of host names is an error. A client without a key
    store offers no certificate. (The original offers a self-signed one; no peer would trust it.)

    Args:
        config: The configuration.
        token: The token that connections present; ``None`` for that of the configuration.

    Returns:
        The context; ``None`` for plaintext.

    Raises:
        ConfigError: A store is unusable.
    """
    if config.plaintext:
        return None
    context = following(lambda: _client_context(config), _locations(config))
    context.token = token or configured_token(config)
    return context


def configured_token(config: TlsConfig) -> TokenSource | None:
    """The token of a configuration, if there is one."""
    if config.token is not None:
        return TokenSource(config.token.get_secret_value, "token.value")
    if config.token_location is None:
        return None
    return file_source(config.token_location)


def _locations(config: TlsConfig) -> list[str]:
    locations = (config.key_store_location, config.trust_store_location, config.crl_location)
    return [path for path in locations if path is not None]


def _client_context(config: TlsConfig) -> FollowingContext:
    context = _new_context(ssl.PROTOCOL_TLS_CLIENT)
    store = _read_store("keyStore", config.key_store_location, config.key_store_password)
    if store is not None:
        _load_key_store(context, store)
    context.check_hostname = False
    if _load_trust_store(context, config):
        context.verify_mode = ssl.CERT_REQUIRED
        context.check_hostname = config.check_hostname
    elif config.check_hostname and "check_hostname" in config.model_fields_set:
        raise ConfigError("host names can be checked only with a trust store; set trustStore.location")
    else:
        context.verify_mode = ssl.CERT_NONE
    return context


def _new_context(protocol: int) -> FollowingContext:
    context = FollowingContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


def _read_store(name: str, location: str | None, password: SecretStr | None) -> _Store | None:
    if location is None:
        return None
    try:
        with Path(location).open("rb") as file:
            content = file.read(_MAX_STORE_BYTES)
    except OSError as error:
        raise ConfigError(f"cannot read {name} {location}: {error.strerror}") from error
    if content.startswith(_JAVA_MAGICS):
        raise ConfigError(
            f"{name} {location} is a Java key store, and that format is not supported; convert it with: "
            f"keytool -importkeystore -srckeystore {location} -destkeystore {Path(location).with_suffix('.p12')} "
            f"-deststoretype PKCS12"
        )
    if b"-----BEGIN " in content:
        return _Store(name, location, content, _Format.PEM, password)
    if not content.startswith(b"\x30"):
        raise ConfigError(f"{name} {location} is neither PEM nor PKCS#12")
    if password is None:
        raise ConfigError(f"{name}.password is missing for the PKCS#12 file {location}")
    return _Store(name, location, content, _Format.PKCS12, password)


def _unreadable(store: _Store) -> ConfigError:
    """The error for an unreadable store. The library's text is left out, since it may depend on the password."""
    return ConfigError(f"{store.name} {store.path} cannot be decrypted: wrong {store.name}.password or damaged file")


def _load_key_store(context: ssl.SSLContext, store: _Store) -> None:
    if store.format is _Format.PKCS12:
        key, chain = _open_pkcs12(store)
        if key is None or not chain:
            raise ConfigError(f"{store.name} {store.path} holds no private key with a certificate")
        _load_key(context, key, chain)
        return
    if b"PRIVATE KEY-----" not in store.content or b"-----BEGIN CERTIFICATE-----" not in store.content:
        raise ConfigError(f"{store.name} {store.path} must hold a private key and its certificate chain")
    if store.password is None and (b"ENCRYPTED PRIVATE KEY" in store.content or b",ENCRYPTED" in store.content):
        raise ConfigError(f"{store.name}.password is missing for the encrypted key in {store.path}")
    secret = "" if store.password is None else store.password.get_secret_value()
    try:
        context.load_cert_chain(store.path, password=secret)  # never None: OpenSSL would ask for one on the terminal
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(f"{store.name} {store.path}: the first certificate is not that of the key") from None
        raise _unreadable(store) from None


def _load_trust_store(context: FollowingContext, config: TlsConfig) -> bool:
    """Trust the certificates of the configured trust store; ``False`` if there is none."""
    store = _read_store("trustStore", config.trust_store_location, config.trust_store_password)
    if store is None:
        return False
    if store.format is _Format.PKCS12:
        certificates = _open_pkcs12(store)[1]
    else:
        try:
            certificates = x509.load_pem_x509_certificates(store.content)
        except ValueError:
            certificates = []
    if not certificates:
        raise ConfigError(f"{store.name} {store.path} holds no certificate")
    context.load_verify_locations(cadata=b"".join(map(_der, certificates)))
    # As in Java, every certificate in the trust store is an anchor: a root, an intermediate or a peer's own one.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if config.crl_location is not None:
        context.revocations = read_lists(config.crl_location)
        load_lists(context, context.revocations)
    return True


def _der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.DER)


def _open_pkcs12(store: _Store) -> tuple[PrivateKeyTypes | None, list[x509.Certificate]]:
    """The private key, if any, and the certificates; the certificate of the key comes first."""
    assert store.password is not None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # older programs write BER instead of DER
            content = pkcs12.load_pkcs12(store.content, store.password.get_secret_value().encode())
    except UnsupportedAlgorithm:
        raise ConfigError(
            f"{store.name} {store.path} uses an outdated encryption; write it again with a current keytool or openssl"
        ) from None
    except ValueError:
        raise _unreadable(store) from None
    others = [additional.certificate for additional in content.additional_certs]
    if content.cert is None:
        return content.key, others
    return content.key, _chain(content.cert.certificate, others)


def _chain(certificate: x509.Certificate, others: list[x509.Certificate]) -> list[x509.Certificate]:
    """The certificate, its issuer, and so on, in the order of TLS; certificates outside the chain come last."""
    chain = [certificate]
    rest = list(others)
    while issuer := next((other for other in rest if other.subject == chain[-1].issuer), None):
        rest.remove(issuer)
        chain.append(issuer)
    return chain + rest


def _load_key(context: ssl.SSLContext, key: PrivateKeyTypes, chain: list[x509.Certificate]) -> None:
    """Load the key from a temporary file, encrypted with a random password: Python loads keys from files only."""
    password = secrets.token_bytes(32).hex().encode()
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password),
    )
    pem += b"".join(certificate.public_bytes(serialization.Encoding.PEM) for certificate in chain)
    descriptor, path = tempfile.mkstemp(prefix="waltz-", suffix=".pem")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(pem)
        context.load_cert_chain(path, password=password)
    finally:
        Path(path).unlink()


def _load_self_signed(context: ssl.SSLContext) -> None:
    """Load a new self-signed certificate: it proves nothing, but allows encryption."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=_SELF_SIGNED_KEY_BITS)
    host = socket.gethostname()[:64]  # the longest common name that X.509 allows
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host or "waltz")])
    now = datetime.datetime.now(datetime.UTC)  # validity is calendar time
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + _SELF_SIGNED_LIFE)
        .sign(key, hashes.SHA256())
    )
    _load_key(context, key, [certificate])
