"""Certificates for TLS tests."""

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

_PEM = serialization.Encoding.PEM


class Identity(NamedTuple):
    """A private key and its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


class Authority:
    """Signs certificates; its own is signed by itself."""

    def __init__(self, name: str) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = _sign(name, self.key, name, self.key, ca=True)
        self._name = name

    def issue(
        self,
        name: str,
        usages: Sequence[x509.ObjectIdentifier] = (),
        alternative_names: Sequence[x509.GeneralName] = (),
    ) -> Identity:
        """Without ``usages`` the certificate is for all purposes, without ``alternative_names`` its only one is
        ``name``.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        signed = _sign(name, key, self._name, self.key, ca=False, usages=usages, alternative_names=alternative_names)
        return Identity(key, signed)

    def below(self, name: str) -> "Authority":
        """An authority that this one has certified."""
        found = Authority(name)
        found.certificate = _sign(name, found.key, self._name, self.key, ca=True)
        return found

    def revoke(self, *revoked: Identity, age_days: int = 0, days: int = 30, delta: bool = False) -> bytes:
        """A revocation list in PEM, ``age_days`` old, that holds for ``days`` from its making on."""
        made = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=age_days, minutes=1)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(_name(self._name))
            .last_update(made)
            .next_update(made + datetime.timedelta(days=days))
        )
        if delta:
            builder = builder.add_extension(x509.DeltaCRLIndicator(1), critical=True)
        for identity in revoked:
            serial = identity.certificate.serial_number
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(made).build()
            builder = builder.add_revoked_certificate(entry)
        return builder.sign(self.key, hashes.SHA256()).public_bytes(_PEM)


def _sign(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    ca: bool,
    usages: Sequence[x509.ObjectIdentifier] = (),
    alternative_names: Sequence[x509.GeneralName] = (),
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(alternative_names or [_alternative_name(name)]), critical=False)
    )
    if usages:
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _alternative_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name.replace(" ", "-"))


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def write_pem(
    path: Path, identity: Identity | None, certificates: Sequence[x509.Certificate], password: str | None = None
) -> str:
    """Write a PEM store and return its path."""
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password.encode())
    parts = [certificate.public_bytes(_PEM) for certificate in certificates]
    if identity is not None:
        key = identity.key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, encryption)
        parts = [key, identity.certificate.public_bytes(_PEM), *parts]
    path.write_bytes(b"".join(parts))
    return str(path)


def write_pkcs12(path: Path, identity: Identity | None, certificates: Sequence[x509.Certificate], password: str) -> str:
    """Write a PKCS#12 store and return its path."""
    encryption = serialization.BestAvailableEncryption(password.encode())
    key, certificate = (None, None) if identity is None else identity
    path.write_bytes(pkcs12.serialize_key_and_certificates(b"name", key, certificate, certificates, encryption))
    return str(path)
