"""Revocation lists (CRLs): certificates that count no more before they expire.

With a file of lists, every authority in the chain of a peer needs a list that has not expired: without one nobody whom
that authority has certified is let in. OpenSSL checks signatures, times and entries in each handshake. This module
reads the file, and finds the open connections whose certificates a new list revokes.
"""

import datetime
import os
import ssl
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from waltz.common.errors import ConfigError

if TYPE_CHECKING:
    from cryptography import x509

_MAX_FILE_BYTES: Final = 64 << 20

_PEM_BEGIN: Final = b"-----BEGIN X509 CRL-----"
_PEM_END: Final = b"-----END X509 CRL-----"

_UNTRUSTED: Final = {
    3: "there is no revocation list of its authority in the file at ssl.crl.location",
    11: "the revocation list of its authority is not valid yet: compare the clocks",
    12: "the revocation list of its authority has expired: put a new one into the file at ssl.crl.location",
    23: "it is revoked",
}
"""What OpenSSL's codes of verification mean that concern revocation lists."""


class RevocationLists(NamedTuple):
    """The lists of a file, the newest one of each authority."""

    expires: datetime.datetime
    """The first end of a list."""
    revoked: "frozenset[tuple[x509.Name, int]]"
    """Authority and serial number of revoked certificates."""
    pem: bytes
    """The lists."""

    @property
    def expired(self) -> bool:
        """Whether a list has expired."""
        return self.expires <= datetime.datetime.now(datetime.UTC)

    def revokes(self, chain: Sequence[bytes]) -> str | None:
        """The subject of the first revoked one among certificates in DER; ``None`` if none is."""
        from cryptography import x509  # only lists need it, not every connection

        for content in chain:
            certificate = x509.load_der_x509_certificate(content)
            if (certificate.issuer, certificate.serial_number) in self.revoked:
                return certificate.subject.rfc4514_string()
        return None


def read_lists(path: str) -> RevocationLists:
    """Read the revocation lists of a file: PEM, or a single one in DER.

    Raises:
        ConfigError: The file cannot be used, or a list has expired or is not valid yet; the text has a remedy.
    """
    from cryptography import x509  # only lists need it, not every connection

    try:
        with Path(path).open("rb") as file:
            content = file.read(_MAX_FILE_BYTES)
    except OSError as error:
        raise ConfigError(f"cannot read crl {path}: {error.strerror}") from error
    try:
        return _newest(path, _parsed(content))
    except (ValueError, x509.DuplicateExtension):
        raise ConfigError(f"crl {path} is damaged: it must hold revocation lists in PEM, or one in DER") from None


def _parsed(content: bytes) -> "list[x509.CertificateRevocationList]":
    from cryptography import x509  # only lists need it, not every connection

    if _PEM_BEGIN not in content and content.startswith(b"\x30"):
        return [x509.load_der_x509_crl(content)]
    parts = [part.partition(_PEM_END)[0] for part in content.split(_PEM_BEGIN)[1:]]
    return [x509.load_pem_x509_crl(_PEM_BEGIN + part + _PEM_END + b"\n") for part in parts]


def _newest(path: str, lists: "Sequence[x509.CertificateRevocationList]") -> RevocationLists:
    from cryptography import x509  # only lists need it, not every connection
    from cryptography.hazmat.primitives import serialization

    if not lists:
        raise ConfigError(f"crl {path} holds no revocation list in PEM or DER")
    newest: dict[x509.Name, x509.CertificateRevocationList] = {}
    for found in lists:
        if any(isinstance(extension.value, x509.DeltaCRLIndicator) for extension in found.extensions):
            raise ConfigError(f"crl {path} has a delta list of {_name(found)}: only complete lists can be used")
        known = newest.get(found.issuer)
        if known is None or known.last_update_utc < found.last_update_utc:
            newest[found.issuer] = found
    now = datetime.datetime.now(datetime.UTC)
    ends = [_end(path, found, now) for found in newest.values()]
    revoked = frozenset((found.issuer, entry.serial_number) for found in newest.values() for entry in found)
    pem = b"".join(found.public_bytes(serialization.Encoding.PEM) for found in newest.values())
    return RevocationLists(min(ends), revoked, pem)


def _end(path: str, found: "x509.CertificateRevocationList", now: datetime.datetime) -> datetime.datetime:
    end = found.next_update_utc
    if end is None:
        raise ConfigError(f"crl {path}: the revocation list of {_name(found)} does not say when the next one comes")
    if end <= now:
        raise ConfigError(
            f"crl {path}: the revocation list of {_name(found)} has expired on {end:%Y-%m-%d %H:%M:%S} UTC; get a new "
            "one from the authority"
        )
    if found.last_update_utc > now:
        raise ConfigError(
            f"crl {path}: the revocation list of {_name(found)} is not valid before "
            f"{found.last_update_utc:%Y-%m-%d %H:%M:%S} UTC; is the clock of this machine right?"
        )
    return end


def _name(found: "x509.CertificateRevocationList") -> str:
    return found.issuer.rfc4514_string()


def load_lists(context: ssl.SSLContext, lists: RevocationLists) -> None:
    """Let a context refuse peers with a revoked certificate in their chain, or without a list for each authority.

    Raises:
        ConfigError: OpenSSL refuses the lists.
    """
    descriptor, path = tempfile.mkstemp(prefix="waltz-", suffix=".pem")  # Python loads revocation lists from files only
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(lists.pem)
        context.load_verify_locations(cafile=path)
    except ssl.SSLError as error:
        raise ConfigError(f"OpenSSL cannot use the revocation lists: {error.reason}") from None
    finally:
        Path(path).unlink()
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN


def untrusted(error: ssl.SSLCertVerificationError) -> str:
    """Why a peer's certificate was refused, a clause."""
    return _UNTRUSTED.get(error.verify_code, error.verify_message.rstrip("."))


def verified_chain(connection: ssl.SSLObject) -> list[bytes]:
    """The verified certificates of a peer in DER, its own first; only its own after a resumption of a session."""
    public = getattr(connection, "get_verified_chain", None)  # since Python 3.13
    if public is not None:
        chain = [bytes(certificate) for certificate in public()]
    else:
        found = connection._sslobj.get_verified_chain()  # type: ignore[attr-defined]  # what the method above calls
        chain = [ssl.PEM_cert_to_DER_cert(certificate.public_bytes()) for certificate in found or ()]
    if not chain and (own := connection.getpeercert(binary_form=True)) is not None:
        chain = [own]
    return chain
