"""The partitions' view of one client connection."""

import asyncio
import math
from collections import deque
from collections.abc import Hashable, Sequence
from typing import Final, Protocol

from waltz.common.access import EVERYTHING, Action, Right, Rights
from waltz.common.errors import WaltzError
from waltz.common.ids import ReqId
from waltz.common.wire.append_delays import AppendsDelayed
from waltz.common.wire.client_server import Message, TransactionDataRequest, encode
from waltz.common.wire.refused import NotAuthorized
from waltz.common.wire.version5 import TransactionDataListRequest
from waltz.common.wire.versions import FIRST_WITH_APPEND_DELAYS, FIRST_WITH_NOT_AUTHORIZED

DataRequest = TransactionDataRequest | TransactionDataListRequest
"""Requests with large answers."""

MAX_UNREAD_S: Final = 1.0
"""The longest time for which a client is not read because of a quota: its requests to other partitions wait, too."""
_QUOTA: Final = "a quota"


class LinkChannel(Protocol):
    """The part of a channel that answers need."""

    version: int
    writable: bool
    closed: bool
    peer: str

    @property
    def unsent_bytes(self) -> int:
        """Bytes taken by :meth:`send` that the operating system has not taken yet."""

    def send(self, frame: bytes) -> None:
        """Take whole frames for sending, in order; dropped when closed."""

    def pause_reading(self) -> None:
        """Stop taking bytes from the peer."""

    def resume_reading(self) -> None:
        """Take bytes from the peer again."""

    def close(self) -> None:
        """Send the bytes taken so far, then close."""

    def abort(self, error: Exception | None = None) -> None:
        """Close at once."""


class Resumable(Protocol):
    """A sender that paused because the channel of its link was not writable."""

    def writable(self, link: "ClientLink") -> None:
        """The channel is writable again."""


class ParkedList(Protocol):
    """A bulk read that waits until others of its link have ended."""

    size_bytes: int
    """Upper bound of the size of the answer."""

    def resume(self) -> None:
        """Begin the bulk read: there is room for it."""


class MountedPartition(Protocol):
    """A partition that keeps state of a link."""

    def forget(self, link: "ClientLink") -> None:
        """The link has closed."""

    def rights_lost(self, link: "ClientLink") -> None:
        """The client of the link has fewer rights than before."""


class ClientLink:
    """Identity and state of one client connection, shared by the connection's handler and all partitions.

    Compared by identity: two connections are two links, whatever sequence numbers their client gives.
    """

    __slots__ = (
        "_delay",
        "_reasons_to_hold",
        "channel",
        "client_id",
        "list_bytes",
        "mounts",
        "number",
        "parked_lists",
        "paused",
        "postponed",
        "rights",
        "seq_num",
    )

    def __init__(self, channel: LinkChannel, number: int, rights: Rights = EVERYTHING) -> None:
        self.channel = channel
        self.number = number
        """Grows with every connection that the server accepts."""
        self.rights = rights
        """The rights of the client."""
        self.client_id: int | None = None
        """From the first message of the connection, as the original has it: later ones may bear other ids."""
        self.seq_num: int | None = None
        """From the first mount request of the connection."""
        self.mounts: dict[MountedPartition, bool] = {}
        """Partitions that the client has ever asked to mount; whether the audit has noted a missing right to that."""
        self.postponed: list[tuple[DataRequest, bool]] = []
        """Requests to be looked at again when the channel is writable: their answers are large. With each whether the
        audit has noted it."""
        self.paused: dict[Resumable, None] = {}
        """Feeds and reads to resume when the channel is writable."""
        self.list_bytes = 0
        """Upper bound of the size of its bulk reads in progress, over all partitions."""
        self.parked_lists: deque[ParkedList] = deque()
        """Bulk reads of all partitions that wait for room; only while some are being read."""
        self._reasons_to_hold: set[Hashable] = set()
        self._delay: asyncio.TimerHandle | None = None

    def send(self, message: Message) -> None:
        """Encode and send one message in the version of the channel."""
        if not self.channel.closed:
            self.channel.send(encode(message, self.channel.version))

    def refuse(self, req_id: bytes, text: str) -> bool:
        """Tell the client that it lacks the right to a request; false if its version has no message for that."""
        told = self.channel.version >= FIRST_WITH_NOT_AUTHORIZED
        if told:
            self.send(NotAuthorized(req_id, text))
        return told

    def refusal(self, right: Right, partition_id: int | None, count: int = 1, *, noted: bool = False) -> str | None:
        """The reason against requests of the client, as :meth:`~waltz.common.access.Rights.refusal` says."""
        return self.rights.refusal(right, partition_id, self.channel.peer, count, noted=noted)

    def passes_audit(self, right: Right, partition_id: int | None) -> bool:
        """Whether a request that passes is one that the audit notes."""
        return self.rights.lenient and not self.rights.permits(right, partition_id)

    def acted(self, operation: str, right: Right, partition_ids: Sequence[int], error: str = "") -> None:
        """Note an action of the client for the audit log; ``error`` is the reason if it was not done."""
        self.rights.acted(Action(operation, right, partition_ids, self.channel.peer, error))

    def hold(self, reason: Hashable) -> None:
        """Stop reading from the client until every reason given here has been released."""
        self._reasons_to_hold.add(reason)
        self.channel.pause_reading()

    def release(self, reason: Hashable) -> None:
        """Release one reason; reading continues when none is left."""
        self._reasons_to_hold.discard(reason)
        if not self._reasons_to_hold:
            self.channel.resume_reading()

    def delay_appends(self, req_id: bytes, delay_s: float) -> None:
        """Ask the client to send no appends to the partition of a request for a while. A client whose version has no
        message for that is not read meanwhile, for :data:`MAX_UNREAD_S` at most."""
        if self.channel.version >= FIRST_WITH_APPEND_DELAYS:
            self.send(AppendsDelayed(req_id, min(math.ceil(1000 * delay_s), 2**31 - 1)))
            return
        loop = asyncio.get_running_loop()
        until_s = loop.time() + min(delay_s, MAX_UNREAD_S)
        if self._delay is None or self._delay.when() < until_s:
            self.end_delay()
            self._delay = loop.call_at(until_s, self.end_delay)
            self.hold(_QUOTA)

    def end_delay(self) -> None:
        """Read from the client again, as far as quotas are concerned."""
        if self._delay is not None:
            self._delay.cancel()
            self._delay = None
            self.release(_QUOTA)

    def postpone(self, request: DataRequest) -> None:
        """Keep a request for data until the channel is writable; reading stops until then."""
        noted = self.passes_audit(Right.READ, ReqId(request.req_id).partition_id)
        self.postponed.append((request, noted))
        self.hold(self)

    def take_postponed(self) -> list[tuple[DataRequest, bool]]:
        """The postponed requests, to be handled now, and whether the audit has noted them."""
        requests, self.postponed = self.postponed, []
        self.release(self)
        return requests

    def resume_paused(self) -> None:
        """Tell paused senders that the channel is writable."""
        paused, self.paused = self.paused, {}
        for resumable in paused:
            resumable.writable(self)

    def fail(self, error: WaltzError) -> None:
        """Close the connection because of an earlier message."""
        self.channel.abort(error)
