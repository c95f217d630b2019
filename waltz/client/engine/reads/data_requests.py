"""Requests for transaction data and the high-water mark of one partition, sent to its present owner."""

import asyncio
import logging
import math
import random
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TypeVar

from waltz.client.engine.links.links import ServerLink
from waltz.client.engine.reads.data_lists import DataLists, PendingList
from waltz.client.engine.reads.last_transaction import Answer, LastTransactionQuestions
from waltz.client.engine.reads.marks import MarkQuestions
from waltz.client.engine.reads.times import TimeQuestions
from waltz.client.errors import (
    ClientClosedError,
    ClientError,
    DataChecksumError,
    NotAuthorizedError,
    RpcError,
    TrimmedError,
)
from waltz.client.options import ClientOptions
from waltz.common.errors import DeadlineExceededError, TlsRefusedError, WaltzError
from waltz.common.ids import LONG_MIN, SEQ_NUM_MASK, ReqId
from waltz.common.java_text import for_people
from waltz.common.net.backoff import Backoff
from waltz.common.wire.client_server import (
    HighWaterMarkResponse,
    TransactionDataRequest,
    TransactionDataResponse,
    encode,
)
from waltz.common.wire.client_times import TimeResponse
from waltz.common.wire.confirmed_marks import ConfirmedMarkResponse, ConfirmedMarkStatus
from waltz.common.wire.refused import NotAuthorized
from waltz.common.wire.storage_times import TimeQuestion
from waltz.common.wire.trimmed import Trimmed
from waltz.common.wire.version5 import TransactionDataListResponse
from waltz.common.wire.write_sessions import FenceOption, LastTransactionIdResponse

logger = logging.getLogger(__name__)

MAX_CHECKSUM_FAILURES = 5
"""The largest number of answers with a wrong checksum for one transaction."""

T = TypeVar("T")

_ASSUMED_SIZE_BYTES = 64 << 10
"""The assumed size of transaction data before the first answer."""


class PendingData:
    """The data of one transaction, requested once for all its readers."""

    __slots__ = ("_waiters", "checksum_failures", "created_at_s", "data", "error", "sent_at_s", "transaction_id")

    def __init__(self, transaction_id: int, now_s: float) -> None:
        self.transaction_id = transaction_id
        self.created_at_s = now_s
        self.sent_at_s = now_s
        self.checksum_failures = 0
        self.data: bytes | None = None
        self.error: WaltzError | None = None
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def done(self) -> bool:
        """Whether the outcome is known."""
        return self.data is not None or self.error is not None

    def finish(self, data: bytes | None, error: WaltzError | None) -> None:
        """Tell all waiters the outcome."""
        self.data = data
        self.error = error
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    async def wait(self) -> bytes:
        """The data. Raises the error."""
        if not self.done:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
        if self.data is None:
            assert self.error is not None
            raise self.error
        return self.data


class RpcPartition:
    """Requests of one partition. They wait for its server, follow the partition to another server, and are repeated
    while unanswered."""

    def __init__(
        self,
        partition_id: int,
        client_id: int,
        options: ClientOptions,
        random_source: random.Random,
        find_link: Callable[[int], ServerLink | None],
    ) -> None:
        """``find_link`` returns the link to the server of a partition, if the server is known."""
        self.generation = -1
        self.link: ServerLink | None = None
        self._partition_id = partition_id
        self._client_id = client_id
        self._options = options
        self._random = random_source
        self._loop = asyncio.get_running_loop()
        self._pending: dict[int, PendingData] = {}
        self._unsent: deque[PendingData] = deque()
        self._sent: dict[int, PendingData] = {}
        self._average_size_bytes = float(_ASSUMED_SIZE_BYTES)
        self._last_data_at_s = 0.0
        self._last_seq_num = 0
        self._closed = False
        self._lists = DataLists(self._next_req_id)
        self._questions = LastTransactionQuestions(partition_id, self._next_req_id)
        self._find_link = find_link
        self._marks, self._confirmed_marks = (
            MarkQuestions(
                partition_id,
                confirmed=confirmed,
                resend_s=options.mark_resend_s,
                next_req_id=self._next_req_id,
                present_link=self._present_link,
            )
            for confirmed in (False, True)
        )
        self._times = TimeQuestions(
            partition_id,
            resend_s=options.mark_resend_s,
            next_req_id=self._next_req_id,
            present_link=self._present_link,
        )

    @property
    def idle(self) -> bool:
        """Whether there is no request."""
        marks_idle = self._marks.idle and self._confirmed_marks.idle and self._times.idle
        return not self._pending and marks_idle and self._lists.idle and self._questions.idle

    @property
    def obstacle(self) -> WaltzError | None:
        """The known reason why requests cannot be sent at present."""
        if self.link is None:
            return ClientError("no server is known to own the partition")
        return self.link.failure

    # Many transactions at once

    def request_list(self, first_id: int, max_count: int, max_bytes: int) -> PendingList:
        """Request the transactions from an id on, without a wait. The limits of the server apply, too."""
        request = PendingList(first_id, max_count, max_bytes, self._loop.time())
        if self._closed:
            request.finish(ClientClosedError())
            return request
        self._lists.add(request)
        self._send()
        return request

    def list_response(self, message: TransactionDataListResponse) -> None:
        """Take the answer to a bulk read."""
        self._lists.response(message)

    # The last transaction, possibly after a fence

    def ask_last(self, fence: FenceOption, expected_session: int) -> Answer:
        """Ask for the last transaction. The result is awaitable. See :class:`LastTransactionQuestions`."""
        answer = self._questions.add(fence, expected_session)
        if self._closed:
            self._questions.close()
        self._send()
        return answer

    def has_asked(self, answer: Answer) -> bool:
        """Whether the question may have reached the server."""
        return self._questions.sent(answer)

    def last_response(self, message: LastTransactionIdResponse) -> None:
        """Take the answer to a question for the last transaction."""
        self._questions.response(message)

    # Transaction data

    def request(self, transaction_id: int) -> PendingData:
        """Request the data of a transaction, or join an open request for the same data."""
        request = self._pending.get(transaction_id)
        if request is None:
            request = PendingData(transaction_id, self._loop.time())
            if self._closed:
                request.finish(None, ClientClosedError())
                return request
            self._pending[transaction_id] = request
            self._unsent.append(request)
            self._send()
        return request

    @property
    def request_limit(self) -> int:
        """The largest number of open requests for data: the larger recent data was, the smaller."""
        options = self._options
        fitting = int(options.data_in_flight_bytes / (self._average_size_bytes + 1))
        return max(1, min(options.data_in_flight_maximum, fitting))

    async def read(self, transaction_id: int, timeout_s: float, first: PendingData | None = None) -> bytes:
        """The data of a transaction. After errors of the server the request is repeated until ``timeout_s`` has passed.

        Raises ``DeadlineExceededError``, ``DataChecksumError``, ``TrimmedError`` and ``ClientClosedError``.
        """
        pending = first or self.request(transaction_id)
        if pending.data is not None:
            return pending.data
        backoff: Backoff | None = None
        text, failure = "no answer", self.obstacle
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    try:
                        return await pending.wait()
                    except RpcError as error:
                        text, failure = str(error), error
                    if backoff is None:
                        options = self._options
                        backoff = Backoff(options.data_retry_initial_s, options.data_retry_maximum_s, self._random)
                        logger.warning(
                            "partition %d: no data of transaction %d: %s; trying again",
                            self._partition_id,
                            transaction_id,
                            text,
                        )
                    await asyncio.sleep(backoff.next_delay_s())
                    pending = self.request(transaction_id)
        except TimeoutError:
            raise DeadlineExceededError(
                f"no data of transaction {transaction_id} of partition {self._partition_id} "
                f"within {timeout_s:g} s: {text}"
            ) from failure

    def data_response(self, message: TransactionDataResponse) -> None:
        """Take the answer to a request for data."""
        request = self._take(message.transaction_id)
        if request is None:
            return
        if message.data is None:
            request.finish(None, RpcError(for_people(message.error or "the server gave no reason")))
        else:
            self._average_size_bytes += (len(message.data) - self._average_size_bytes) / 8
            request.finish(message.data, None)
        self._send()

    def not_authorized(self, message: NotAuthorized) -> None:
        """The client lacks the right to a request. The id may be that of a request for data: then no request for data
        has the right."""
        error = NotAuthorizedError(message.text)
        asked = (self._lists, self._questions, self._marks, self._confirmed_marks, self._times)
        if any(each.refused(message.req_id, error) for each in asked):
            return
        for transaction_id in list(self._sent):
            request = self._take(transaction_id)
            if request is not None:
                request.finish(None, error)
        self._send()

    def trimmed(self, message: Trimmed) -> None:
        """A request was for transactions that are trimmed, and so were all others before the first available one."""
        error = TrimmedError(self._partition_id, message.transaction_id)
        if self._lists.refused(message.req_id, error):
            return
        for transaction_id in [each for each in self._sent if each < message.transaction_id]:
            request = self._take(transaction_id)
            if request is not None:
                request.finish(None, error)
        self._send()

    def data_damaged(self, transaction_id: int) -> None:
        """An answer has a wrong checksum. The request is sent again, over another connection, a few times."""
        request = self._pending.get(transaction_id)
        if request is None:
            return
        request.checksum_failures += 1
        if request.checksum_failures >= MAX_CHECKSUM_FAILURES:
            self._take(transaction_id)
            request.finish(
                None,
                DataChecksumError(
                    f"the data of transaction {transaction_id} of partition {self._partition_id} came "
                    f"{MAX_CHECKSUM_FAILURES} times with a wrong checksum"
                ),
            )

    def _take(self, transaction_id: int) -> PendingData | None:
        self._last_data_at_s = self._loop.time()
        self._sent.pop(transaction_id, None)
        return self._pending.pop(transaction_id, None)

    def _send(self) -> None:
        if not (self._unsent or self._lists.unsent or self._questions.unsent):
            return
        link = self._present_link()
        if link is None or link.channel is None:
            return
        self._lists.send(link, self._loop.time())
        self._questions.send(link)
        limit = self.request_limit
        channel = link.channel
        while self._unsent and len(self._sent) < limit:
            request = self._unsent.popleft()
            if request.done:
                continue
            request.sent_at_s = self._loop.time()
            self._sent[request.transaction_id] = request
            channel.send(encode(TransactionDataRequest(self._next_req_id(), request.transaction_id), channel.version))
            link.expect_answer()

    def _unsend(self) -> None:
        self._unsent.extendleft(reversed(self._sent.values()))
        self._sent.clear()

    # High-water mark

    async def high_water_mark(self, timeout_s: float, *, confirmed: bool) -> int:
        """The committed high-water mark of the partition, according to the server that this client knows as the owner.

        With ``confirmed``, a quorum of the storages has confirmed the ownership after the call.

        Raises ``DeadlineExceededError``, ``ConfirmedMarkNotSupportedError`` and ``ClientClosedError``.
        """
        if self._closed:
            raise ClientClosedError
        kind = "confirmed " if confirmed else ""
        asking = (self._confirmed_marks if confirmed else self._marks).mark()
        return await self._in_time(asking, f"{kind}high-water mark", timeout_s)

    async def time_entry(self, question: TimeQuestion, value: int, timeout_s: float) -> tuple[int, int]:
        """A transaction and the time of its commit, according to the server of the partition; both -1 when unknown.

        Raises ``DeadlineExceededError``, ``TimesNotSupportedError`` and ``ClientClosedError``.
        """
        if self._closed:
            raise ClientClosedError
        return await self._in_time(self._times.entry(question, value), "time", timeout_s)

    async def _in_time(self, asking: Coroutine[None, None, T], what: str, timeout_s: float) -> T:
        try:
            async with asyncio.timeout(timeout_s):
                return await asking
        except (TimeoutError, TlsRefusedError) as error:
            text = f"no {what} of partition {self._partition_id}"
            if isinstance(error, TlsRefusedError):  # another attempt would have the same end
                raise DeadlineExceededError(f"{text}: {error}") from error
            text = f"{text} within {timeout_s:g} s"
            obstacle = self.obstacle
            raise DeadlineExceededError(text if obstacle is None else f"{text}: {obstacle}") from obstacle

    def mark_response(self, message: HighWaterMarkResponse) -> None:
        """Take an answer. The smallest integer means that the server does not know the mark yet (a defect of the
        original)."""
        mark = None if message.transaction_id == LONG_MIN else message.transaction_id
        self._marks.answered(message.req_id, mark)

    def confirmed_mark_response(self, message: ConfirmedMarkResponse) -> None:
        """Take the answer to a question for a confirmed mark."""
        confirmed = message.confirmed_mark_status is ConfirmedMarkStatus.OK
        self._confirmed_marks.answered(message.req_id, message.transaction_id if confirmed else None)

    def time_response(self, message: TimeResponse) -> None:
        """Take the answer to a question about times."""
        self._times.answered(message)

    # The connection

    def _present_link(self) -> ServerLink | None:
        if self.link is None:
            self.link = self._find_link(self._partition_id)
        return self.link

    def set_link(self, link: ServerLink | None) -> None:
        """Ask this server from now on."""
        if link is not self.link:
            self.link = link
            self.resend()

    def resend(self) -> None:
        """The connection is a new one, or there is none: all unanswered requests have to be sent again."""
        self._unsend()
        self._lists.unsend()
        self._questions.unsend()
        self._send()
        self._marks.resend()
        self._confirmed_marks.resend()
        self._times.resend()

    def sweep(self) -> None:
        """Repeat requests that will never be answered, and end requests that are too old. Called regularly.

        Time before the arrival of a part of a large message does not count: that message, or a later one, may be the
        answer.
        """
        now_s = self._loop.time()
        options = self._options
        receiving_at_s = -math.inf if self.link is None else self.link.receiving_at_s
        self._lists.sweep(now_s, receiving_at_s, options.rpc_resend_s, options.data_request_lifetime_s)
        silent_s = options.rpc_resend_s
        if self._sent and now_s - max(self._last_data_at_s, receiving_at_s) >= silent_s:
            oldest = next(iter(self._sent.values()))
            if now_s - oldest.sent_at_s >= silent_s:
                self._unsend()
        expired = [
            request
            for request in self._pending.values()
            if now_s - max(request.created_at_s, receiving_at_s) >= options.data_request_lifetime_s
        ]
        for request in expired:
            self._pending.pop(request.transaction_id)
            self._sent.pop(request.transaction_id, None)
            request.finish(
                None,
                DeadlineExceededError(
                    f"no data of transaction {request.transaction_id} of partition {self._partition_id} came within "
                    f"{options.data_request_lifetime_s:g} s"
                ),
            )
        self._send()
        self._marks.sweep(now_s)
        self._confirmed_marks.sweep(now_s)
        self._times.sweep(now_s)

    def close(self) -> None:
        """End all requests with ``ClientClosedError``."""
        self._closed = True
        self._lists.close()
        self._questions.close()
        pending, self._pending = self._pending, {}
        self._unsent.clear()
        self._sent.clear()
        for request in pending.values():
            request.finish(None, ClientClosedError())
        self._marks.close()
        self._confirmed_marks.close()
        self._times.close()

    def _next_req_id(self) -> ReqId:
        self._last_seq_num = (self._last_seq_num + 1) & SEQ_NUM_MASK
        return ReqId.of(self._client_id, self.generation, self._partition_id, self._last_seq_num)
