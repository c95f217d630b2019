"""The permissions of peers: the question that every port asks, and the rule that answers it. Pure.

A *principal* is a name in the certificate or the token that a peer has proved to hold, or :data:`ANONYMOUS`. A port
asks for the rights of a principal once for each connection, and consults them at each request. Where they are
:data:`EVERYTHING`, an append costs no call.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, Protocol, Self

ANONYMOUS: Final = "anonymous"
"""The principal of a peer without a verified certificate or token."""


class Proof(StrEnum):
    """What a principal is known by."""

    CERTIFICATE = "certificate"
    """Also where nobody has to show one, over plain TCP and at HTTP ports: there peers may be :data:`ANONYMOUS`."""
    TOKEN = "token"  # noqa: S105 - the name of a kind
    NONE = "none"
    """A peer over TLS that has proved nothing, and is :data:`ANONYMOUS`."""


class Source(StrEnum):
    """A part of a certificate that names its holder."""

    SUBJECT = "subject"
    URI = "uri"
    """The only URI of the alternative names, such as a SPIFFE id."""
    DNS = "dns"
    """The first DNS name of the alternative names."""


class Right(StrEnum):
    """A kind of request; the value completes the sentence "may not ...\""""

    bit: int
    """A bit of its own, for sets of rights in one byte."""

    def __new__(cls, value: str) -> Self:
        """Members are numbered in their order."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.bit = 1 << len(cls.__members__)
        return member

    APPEND = "append to"
    READ = "read data of"
    METADATA = "follow the ids and headers of"
    """Part of :attr:`APPEND` and of :attr:`READ`: appends and feeds need a mount."""
    DESCRIBE = "describe"
    """Marks, assignments, health, metrics."""
    FENCE = "fence"
    CONFIGURE = "configure"
    """Set properties of partitions. Part of :attr:`ADMIN`."""
    ADMIN = "administer"
    CLUSTER = "replicate"
    """Requests of servers to storages."""


class Action(NamedTuple):
    """A fence or an administrative request that was permitted."""

    operation: str
    """What was asked for."""
    right: Right
    partition_ids: Sequence[int]
    """The partitions that it concerned; empty for the node itself."""
    peer: str
    """Where it came from."""
    error: str = ""
    """Why it was not done; empty if it was."""


class Passage(NamedTuple):
    """What a quota does to appends."""

    admitted: int
    """The first of the appends, which may be executed; the others are refused."""
    delay_s: float
    """The time during which the peer should send no further ones."""
    text: str
    """The reason, a sentence for the peer."""


class Throttle(Protocol):
    """The quotas of one principal."""

    def take(self, partition_id: int, sizes: Sequence[int], peer: str, now_s: float) -> Passage | None:
        """Count appends that have arrived; ``None`` if all of them may be executed and the peer may send more.

        Args:
            partition_id: Their partition, which this server owns.
            sizes: The bytes of data of each.
            peer: Where they come from.
            now_s: The time of the loop.
        """


class Rights(Protocol):
    """The rights of one principal."""

    lenient: bool
    """Whether an audit may let requests pass that the rules do not permit."""
    reduced: bool
    """Whether they have ever become fewer: what waits has to be permitted again, also if its connection has closed."""

    @property
    def throttle(self) -> Throttle | None:
        """The quotas of its appends; ``None`` without any."""

    def refusal(
        self, right: Right, partition_id: int | None, peer: str = "", count: int = 1, *, noted: bool = False
    ) -> str | None:
        """The reason against requests, a sentence for the peer and for the log; ``None`` if they may be executed.

        Args:
            right: The right that they need.
            partition_id: The partition that they concern; ``None`` for none.
            peer: Where they come from.
            count: The number of requests.
            noted: The audit has noted them already, when they arrived: it does not note them again.
        """

    def refusal_everywhere(self, right: Right, peer: str = "") -> str | None:
        """The same for one request that concerns the node itself and all partitions of the cluster."""

    def refusal_anywhere(self, right: Right, peer: str = "") -> str | None:
        """The same for one request for a list of partitions: it is refused only without the right to the node and to
        every partition. The list is for :meth:`filtered`."""

    def filtered(self, right: Right, partition_ids: Iterable[int], operation: str, peer: str = "") -> list[int]:
        """The partitions of a list that the principal may see. The audit notes those that are left out.

        Args:
            right: The right that is needed at each of them.
            partition_ids: The partitions.
            operation: What was asked for.
            peer: Where the request comes from.
        """

    def permits(self, right: Right, partition_id: int | None) -> bool:
        """Whether the rules permit a request, also where an audit would let it pass. Nothing is noted."""

    def acted(self, action: "Action") -> None:
        """Note an action for the audit log."""


class Access(Protocol):
    """The rule of a node."""

    def rights_of(self, principal: str, proof: Proof = Proof.CERTIFICATE) -> Rights:
        """The rights of a principal that is known by this proof."""

    def owns(self, partition_ids: Collection[int]) -> None:
        """The node is a server that owns these partitions now: quotas give it a share for each."""


class _Everything:
    lenient = False
    reduced = False
    throttle: Throttle | None = None

    def refusal(
        self, right: Right, partition_id: int | None, peer: str = "", count: int = 1, *, noted: bool = False
    ) -> None:
        return None

    def refusal_everywhere(self, right: Right, peer: str = "") -> None:
        return None

    def refusal_anywhere(self, right: Right, peer: str = "") -> None:
        return None

    def filtered(self, right: Right, partition_ids: Iterable[int], operation: str, peer: str = "") -> list[int]:
        return list(partition_ids)

    def permits(self, right: Right, partition_id: int | None) -> bool:
        return True

    def acted(self, action: "Action") -> None: ...


EVERYTHING: Final[Rights] = _Everything()
"""All rights."""


class _AllowAll:
    def rights_of(self, principal: str, proof: Proof = Proof.CERTIFICATE) -> Rights:
        return EVERYTHING

    def owns(self, partition_ids: Collection[int]) -> None: ...


ALLOW_ALL: Final[Access] = _AllowAll()
"""Every principal has every right, as at nodes of the original."""


def not_permitted(principal: str, right: Right, partition_id: int | None, proof: str = "") -> str:
    """A refusal without its reason; ``proof`` says how the principal is known."""
    place = "this node" if partition_id is None else f"partition {partition_id}"
    return f"principal {principal!r}{proof} may not {right} {place}"


_SHORT_NAMES = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "countryName": "C",
    "domainComponent": "DC",
    "userId": "UID",
}

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[!-~]+")
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?")
"""Neither looks like a subject, nor like a principal that rules have for everybody."""

_ESCAPED = frozenset(',+"\\<>;')


def principal_of(certificate: Mapping[str, object] | None, sources: Sequence[Source] = (Source.SUBJECT,)) -> str:
    """The name of a verified certificate: of the first of these sources that it has.

    Args:
        certificate: As :meth:`ssl.SSLSocket.getpeercert` describes it; empty or ``None`` if none was verified.
        sources: Where to look for a name.
    """
    found = certificate or {}
    for source in sources:
        if source is Source.SUBJECT:
            name: str | None = _subject(found.get("subject"))
        else:
            name = alternative_name(found.get("subjectAltName"), source)
        if name is not None:
            return name
    return ANONYMOUS


def alternative_name(names: object, source: Source) -> str | None:
    """The name of a kind among a certificate's alternative names, pairs of kind and name; ``None`` if there is none.

    A URI must be the only one, as SPIFFE demands: otherwise the peer could not be told from another one. Of names for
    DNS the first counts, in lower case.
    """
    listed = names if isinstance(names, Sequence) else ()
    found = [name for kind, name in listed if kind.lower() == source.value]
    if source is Source.URI:
        return found[0] if len(found) == 1 and _URI.fullmatch(found[0]) else None
    return found[0].lower() if found and _HOST.fullmatch(found[0]) else None


def _subject(subject: object) -> str | None:
    """A subject in the notation and order of RFC 2253."""
    if not isinstance(subject, Sequence) or not subject:
        return None
    names = ["+".join(f"{_SHORT_NAMES.get(key, key)}={_escaped(value)}" for key, value in name) for name in subject]
    return ",".join(reversed(names))


def _escaped(value: str) -> str:
    text = "".join(f"\\{character}" if character in _ESCAPED else character for character in value)
    if text.startswith((" ", "#")):
        text = f"\\{text}"
    if text.endswith(" ") and len(text) > 1 and not text.endswith("\\ "):
        text = f"{text[:-1]}\\ "
    return text
