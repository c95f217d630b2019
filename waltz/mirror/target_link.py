"""The connection on which one partition of a target is written: in an exclusive write session, in order.

The engine of a client goes on after a broken connection, and appends what comes next while it finds out what got lost.
A mirror must not: the next transaction would take the place of a lost one. So a link has one connection and one
session, asks the server to refuse whatever would get another id than the source's, and ends with the first trouble. The
next link fences again, and begins at the end of the log that it finds.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Self, TypeVar

from waltz.common.cluster.owners import Owner
from waltz.common.consistency import Consistency
from waltz.common.errors import ConnectionClosedError, DeadlineExceededError, ProtocolError, WaltzError
from waltz.common.ids import SEQ_NUM_MASK, ReqId
from waltz.common.net.channel import Channel, connect
from waltz.common.records import Record
from waltz.common.wire.append_delays import AppendsDelayed
from waltz.common.wire.append_order import AppendOrderRequest
from waltz.common.wire.append_request import encode_append
from waltz.common.wire.client_server import (
    FlushRequest,
    LockFailure,
    Message,
    MountRequest,
    MountResponse,
    PartitionState,
    decode,
    encode,
)
from waltz.common.wire.consistency import AppendLevelRequest, ConsistencyRefused, PartitionConsistency
from waltz.common.wire.frames import CLIENT_SERVER, Bounds
from waltz.common.wire.mark_feed import MarkAdvanced, MarkFeedRequest
from waltz.common.wire.refused import NotAuthorized
from waltz.common.wire.version5 import (
    AppendFailed,
    DataListStatus,
    PartitionClosed,
    TransactionDataListRequest,
    TransactionDataListResponse,
)
from waltz.common.wire.versions import FIRST_WITH_APPEND_ORDER
from waltz.common.wire.write_sessions import (
    NO_WRITE_SESSION,
    FenceOption,
    LastTransactionIdRequest,
    LastTransactionIdResponse,
    LastTransactionStatus,
    SessionFenced,
)
from waltz.mirror.errors import MirrorError

HELLO_TEXT = "Waltz Mirror"
ANSWER_TIMEOUT_S = 30.0
"""Time limit of an answer. A healthy server answers within 10 s, even if it cannot raise the write session."""

CLOSE_TIMEOUT_S = 5.0

_NO_LOCKS = bytes(4)
_NO_MARK = -1
_Refused = AppendFailed | LockFailure | SessionFenced | ConsistencyRefused

AnswerT = TypeVar("AnswerT")


class TargetLink:
    """Made by :meth:`open`; a ``ChannelHandler``. All methods raise ``WaltzError`` when the link has ended."""

    def __init__(self, owner: Owner, partition_id: int, client_id: int, on_mark: Callable[[int], None]) -> None:
        """Use :meth:`open`."""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Fails with the first trouble."""
        self.ended.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # somebody has seen it
        self.hurry = asyncio.Event()
        """Set whenever more may be sent: for a wait that has cleared it."""
        self._owner = owner
        self._partition_id = partition_id
        self._client_id = client_id
        self._on_mark = on_mark
        self._seq_num = 0
        self._session = NO_WRITE_SESSION
        self._level: Consistency | None = None
        self._held_until_s = 0.0
        self._channel: Channel | None = None
        self._unanswered: dict[bytes, asyncio.Future[Message]] = {}

    @classmethod
    async def open(
        cls,
        owner: Owner,
        partition_id: int,
        client_id: int,
        on_mark: Callable[[int], None],
        *,
        tls: ssl.SSLContext | None,
        timeout_s: float = 10.0,
    ) -> Self:
        """Connect to the owner of the partition.

        Args:
            owner: The owner.
            partition_id: The partition.
            client_id: An id that no other client of the cluster has.
            on_mark: Called with the last committed transaction, whenever that has changed.
            tls: TLS of the connection.
            timeout_s: Time limit of the connection.

        Raises:
            ConnectFailedError: The owner does not answer.
            MirrorError: The partition has no owner, or one that is too old for a mirror.
        """
        if owner.endpoint is None:
            raise MirrorError(f"server {owner.server_id}, the owner of partition {partition_id}, has left the cluster")
        link = cls(owner, partition_id, client_id, on_mark)
        link._channel = await connect(owner.endpoint, CLIENT_SERVER, HELLO_TEXT, link, tls=tls, timeout_s=timeout_s)
        if link._channel.version < FIRST_WITH_APPEND_ORDER:
            version = link._channel.version
            await link.close()
            raise MirrorError(
                f"the server {owner.endpoint} of the target speaks version {version} of the protocol, and a mirror "
                f"needs version {FIRST_WITH_APPEND_ORDER}: upgrade the server"
            )
        return link

    async def close(self) -> None:
        """Close the connection. The exclusive session stays until another one begins."""
        if self._channel is not None:
            await self._channel.close_within(CLOSE_TIMEOUT_S)

    # Before the first append

    async def last_transaction_id(self) -> int:
        """The last transaction of the target; -1 for none. Disturbs nobody."""
        return (await self._last(FenceOption(0))).transaction_id

    async def fence(self) -> int:
        """Begin an exclusive session. Returns the last transaction before it."""
        answer = await self._last(FenceOption.FENCE | FenceOption.EXCLUSIVE)
        self._session = answer.write_session
        return answer.transaction_id

    async def release(self) -> None:
        """End the exclusive session: every client may append again."""
        await self._last(FenceOption.FENCE)

    async def record(self, transaction_id: int) -> Record:
        """One committed transaction."""
        answer = await self._ask(
            lambda req_id: TransactionDataListRequest(req_id, transaction_id, 1, 1), TransactionDataListResponse
        )
        if answer.status is not DataListStatus.OK or not answer.records:
            raise MirrorError(
                f"{self._owner.endpoint} does not deliver transaction {transaction_id} of partition "
                f"{self._partition_id}: {answer.error or answer.status.name.lower()}"
            )
        return answer.records[0]

    async def begin(self, last_id: int, connection_number: int) -> None:
        """Append from now on, behind ``last_id``. ``connection_number`` grows with the links of a client."""
        mount_id = self._req_id(self._seq_num)
        answer = await self._ask(lambda req_id: MountRequest(req_id, last_id, connection_number), MountResponse)
        if answer.state is not PartitionState.READY:
            raise MirrorError(
                f"partition {self._partition_id} is not open at {self._owner.endpoint}: {answer.state.name.lower()}"
            )
        self._send(MarkFeedRequest(mount_id, last_id))
        if self._level is not None:
            self._send(AppendLevelRequest(self._req_id(self._seq_num), self._level))
        self._send(AppendOrderRequest(self._req_id(self._seq_num), last_id + 1))

    async def _last(self, option: FenceOption) -> LastTransactionIdResponse:
        answer = await self._ask(
            lambda req_id: LastTransactionIdRequest(req_id, option, NO_WRITE_SESSION), LastTransactionIdResponse
        )
        if answer.last_transaction_status is not LastTransactionStatus.OK:
            status = answer.last_transaction_status.name.lower().replace("_", " ")
            raise MirrorError(f"partition {self._partition_id} at {self._owner.endpoint}: {status}")
        return answer

    # Appends

    @property
    def may_send(self) -> bool:
        """Whether the connection takes more, and no quota holds appends back."""
        return self.channel.writable and asyncio.get_running_loop().time() >= self._held_until_s

    def append(self, record: Record) -> None:
        """Send the header and the data of the next transaction."""
        channel = self.channel
        frame = encode_append(
            channel.version,
            self._req_id(self._seq_num),
            _NO_MARK,
            _NO_LOCKS,
            _NO_LOCKS,
            _NO_LOCKS,
            record.header,
            record.data,
            self._session,
        )
        self._seq_num = (self._seq_num + 1) & SEQ_NUM_MASK
        channel.send(frame)

    def ask_outcome(self) -> None:
        """Have the server decide all appends: servers may drop some without an answer."""
        self._send(FlushRequest(self._req_id((self._seq_num - 1) & SEQ_NUM_MASK)))

    @property
    def channel(self) -> Channel:
        """The channel. Raises the error with which the link has ended."""
        if self.ended.done():
            self.ended.result()
        if self._channel is None or self._channel.closed:
            raise ConnectionClosedError(f"the connection to server {self._owner.endpoint} is closed")
        return self._channel

    def _req_id(self, seq_num: int) -> ReqId:
        return ReqId.of(self._client_id, self._owner.generation, self._partition_id, seq_num)

    def _send(self, message: Message) -> None:
        channel = self.channel
        channel.send(encode(message, channel.version))

    async def _ask(self, make: Callable[[ReqId], Message], kind: type[AnswerT]) -> AnswerT:
        """The answer to a request with a new id."""
        req_id = self._req_id(self._seq_num)
        self._seq_num = (self._seq_num + 1) & SEQ_NUM_MASK
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._unanswered[req_id] = answer
        waits: set[asyncio.Future[Any]] = {answer, self.ended}
        try:
            self._send(make(req_id))
            done, _ = await asyncio.wait(waits, timeout=ANSWER_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
            if self.ended in done:
                self.ended.result()
            if not done:
                self.fail(DeadlineExceededError(f"{self._owner.endpoint} did not answer within {ANSWER_TIMEOUT_S:g} s"))
                self.ended.result()
            message = answer.result()
        finally:
            del self._unanswered[req_id]
        if not isinstance(message, kind):
            raise ProtocolError(f"{type(message).__name__} came in answer to a request of another kind")
        return message

    # ChannelHandler

    def channel_ready(self, channel: Channel) -> None:
        """Nothing is sent before it is asked for."""

    def frames_received(self, channel: Channel, buffer: bytes, bounds: Bounds) -> None:
        for start, end in bounds:
            self._received(decode(buffer, start, end, channel.version))

    def channel_writable(self, channel: Channel) -> None:
        self.hurry.set()

    def channel_closed(self, channel: Channel, error: Exception | None) -> None:
        reason = "" if error is None else f": {error}"
        self.fail(ConnectionClosedError(f"server {self._owner.endpoint} closed the connection{reason}"))

    def fail(self, error: WaltzError) -> None:
        """End the link with an error, unless it has ended."""
        if not self.ended.done():
            self.ended.set_exception(error)
        self.hurry.set()

    def _received(self, message: Message) -> None:
        answer = self._unanswered.get(message.req_id)
        if isinstance(message, MarkAdvanced):
            try:
                self._on_mark(message.transaction_id)
            except ValueError as error:
                self.fail(MirrorError(f"partition {self._partition_id}: {error}"))
            self.hurry.set()
        elif isinstance(message, PartitionConsistency):
            self._level = message.level
        elif isinstance(message, NotAuthorized):
            self.fail(MirrorError(f"partition {self._partition_id} at {self._owner.endpoint}: {message.text}"))
        elif isinstance(message, PartitionClosed):
            self.fail(MirrorError(f"partition {self._partition_id} has moved away from {self._owner.endpoint}"))
        elif isinstance(message, _Refused):
            where = f"{self._owner.endpoint} refused an append to partition {self._partition_id}"
            self.fail(MirrorError(f"{where}: {_reason(message)}"))
        elif isinstance(message, AppendsDelayed):
            self._hold(message.delay_ms / 1000)
        elif answer is not None and not answer.done():
            answer.set_result(message)

    def _hold(self, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._held_until_s = loop.time() + delay_s
        loop.call_later(delay_s, self.hurry.set)


def _reason(message: _Refused) -> str:
    if isinstance(message, AppendFailed):
        return message.text or message.reason.name.lower().replace("_", " ")
    if isinstance(message, SessionFenced):
        return f"another client has begun write session {message.write_session}"
    if isinstance(message, ConsistencyRefused):
        return message.text or "its consistency is not that of the partition"
    return "a lock"
