"""The requested bulk reads of one partition (version 5)."""

import asyncio
from collections.abc import Callable

from waltz.client.engine.links.links import ServerLink
from waltz.client.errors import BulkReadsNotSupportedError, ClientClosedError, RpcError
from waltz.common.errors import DeadlineExceededError, WaltzError
from waltz.common.java_text import for_people
from waltz.common.records import Record
from waltz.common.wire.client_server import encode
from waltz.common.wire.version5 import DataListStatus, TransactionDataListRequest, TransactionDataListResponse
from waltz.common.wire.versions import FIRST_WITH_DATA_LISTS


class PendingList:
    """One bulk read. The result may have fewer records than requested, but at least one if the log has it."""

    __slots__ = (
        "_error",
        "_waiter",
        "created_at_s",
        "done",
        "first_id",
        "high_water_mark",
        "max_bytes",
        "max_count",
        "records",
        "req_id",
        "resend_s",
        "sent_at_s",
    )

    def __init__(self, first_id: int, max_count: int, max_bytes: int, now_s: float) -> None:
        self.first_id = first_id
        self.max_count = max_count
        self.max_bytes = max_bytes
        self.created_at_s = now_s
        self.sent_at_s = now_s
        self.req_id: bytes | None = None
        """The id of all attempts over the present connection; ``None`` before the first one."""
        self.resend_s = 0.0
        """The pause after the last attempt."""
        self.records: list[Record] = []
        self.high_water_mark = -1
        """The server's committed high-water mark at the time of the answer."""
        self.done = False
        self._error: WaltzError | None = None
        self._waiter: asyncio.Future[None] | None = None

    def finish(self, error: WaltzError | None = None) -> None:
        """The answer has arrived."""
        self.done = True
        self._error = error
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> list[Record]:
        """The records. Their checksums are not verified yet.

        Raises ``RpcError`` when the server could not read, ``BulkReadsNotSupportedError``, ``DeadlineExceededError``
        and ``ClientClosedError``. Only one caller may wait.
        """
        if not self.done:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self._error is not None:
            raise self._error
        return self.records


class DataLists:
    """Sends bulk reads, and matches the answers by request id. Interrupted requests are sent again.

    An unanswered request is repeated over its connection with the same id, after pauses that double. So the answer to
    the first attempt still counts, which may take longer than a pause on a slow line. A server that still works on the
    request drops the repeat.
    """

    def __init__(self, next_req_id: Callable[[], bytes]) -> None:
        self.unsent: list[PendingList] = []
        self._next_req_id = next_req_id
        self._sent: dict[bytes, PendingList] = {}

    @property
    def idle(self) -> bool:
        """Whether there is no request."""
        return not (self.unsent or self._sent)

    def add(self, request: PendingList) -> None:
        """Add a request to be sent."""
        self.unsent.append(request)

    def send(self, link: ServerLink, now_s: float) -> None:
        """Send waiting requests. With a server without bulk reads all of them fail."""
        channel = link.channel
        assert channel is not None
        unsent, self.unsent = self.unsent, []
        for request in unsent:
            if request.done:
                continue
            if channel.version < FIRST_WITH_DATA_LISTS:
                request.finish(BulkReadsNotSupportedError(f"{link.endpoint} speaks version {channel.version}"))
                continue
            if request.req_id is None:
                request.req_id = self._next_req_id()
            request.sent_at_s = now_s
            self._sent[request.req_id] = request
            message = TransactionDataListRequest(request.req_id, request.first_id, request.max_count, request.max_bytes)
            channel.send(encode(message, channel.version))
            link.expect_answer()

    def unsend(self) -> None:
        """There is a new connection: all requests have to be sent again."""
        self.unsent = list(dict.fromkeys((*self._sent.values(), *self.unsent)))
        self._sent.clear()
        for request in self.unsent:
            request.req_id, request.resend_s = None, 0.0

    def response(self, message: TransactionDataListResponse) -> None:
        """Take an answer of the server. An answer without a waiting request is ignored."""
        request = self._sent.pop(message.req_id, None)
        if request is None:
            return
        if message.status is DataListStatus.OK:
            request.records = message.records
            request.high_water_mark = message.high_water_mark
            request.finish()
        elif message.status is DataListStatus.NOT_READY:
            request.finish(RpcError("partition not ready"))
        else:
            request.finish(RpcError(for_people(message.error or "the server gave no reason")))

    def refused(self, req_id: bytes, error: WaltzError) -> bool:
        """The client lacks the right to read, or what it wants is trimmed. False if that concerns another request."""
        request = self._sent.pop(req_id, None)
        if request is not None:
            request.finish(error)
        return request is not None

    def sweep(self, now_s: float, receiving_at_s: float, resend_s: float, lifetime_s: float) -> None:
        """Repeat unanswered requests, and end requests that are too old. Time before ``receiving_at_s`` does not count.

        At that time a part of a large answer has arrived.
        """
        for request in (*self._sent.values(), *self.unsent):
            if not request.done and now_s - max(request.created_at_s, receiving_at_s) >= lifetime_s:
                text = f"no transactions from {request.first_id} on within {lifetime_s:g} s"
                request.finish(DeadlineExceededError(text))
        self._sent = {req_id: request for req_id, request in self._sent.items() if not request.done}
        self.unsent = [request for request in self.unsent if not request.done]
        for request in self._sent.values():
            request.resend_s = request.resend_s or resend_s
            if request not in self.unsent and now_s - max(request.sent_at_s, receiving_at_s) >= request.resend_s:
                request.resend_s *= 2
                self.unsent.append(request)

    def close(self) -> None:
        """End all requests with ``ClientClosedError``."""
        for request in dict.fromkeys((*self._sent.values(), *self.unsent)):
            request.finish(ClientClosedError())
        self._sent.clear()
        self.unsent.clear()
