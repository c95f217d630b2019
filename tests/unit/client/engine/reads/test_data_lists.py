"""Bulk reads of a client: attempts, answers and ends."""

import itertools
from types import SimpleNamespace
from typing import cast

import pytest

from waltz.client.engine.links.links import ServerLink
from waltz.client.engine.reads.data_lists import DataLists, PendingList
from waltz.common.errors import DeadlineExceededError
from waltz.common.ids import ReqId
from waltz.common.records import Record
from waltz.common.wire.client_server import decode
from waltz.common.wire.frames import FRAME_HEADER_SIZE_BYTES
from waltz.common.wire.version5 import DataListStatus, TransactionDataListRequest, TransactionDataListResponse

RESEND_S = 5.0
LIFETIME_S = 60.0
RECORD = Record(7, ReqId.of(1, 0, 0, 7), 0, b"data", 0)


class Reads:
    """Bulk reads over a connection that never answers by itself."""

    def __init__(self) -> None:
        self.attempts: list[bytes] = []
        """The request id of each attempt."""
        self.now_s = 0.0
        numbers = itertools.count()
        self.lists = DataLists(lambda: ReqId.of(1, 0, 0, next(numbers)))
        channel = SimpleNamespace(version=6, send=self._sent)
        self._link = cast("ServerLink", SimpleNamespace(channel=channel, expect_answer=lambda: None))

    def _sent(self, frame: bytes) -> None:
        message = decode(frame, FRAME_HEADER_SIZE_BYTES, len(frame), 6)
        assert isinstance(message, TransactionDataListRequest)
        self.attempts.append(message.req_id)

    def request(self) -> PendingList:
        request = PendingList(7, 1, 1 << 20, self.now_s)
        self.lists.add(request)
        self.send()
        return request

    def send(self) -> None:
        self.lists.send(self._link, self.now_s)

    def wait_until(self, now_s: float, receiving_at_s: float = 0.0) -> None:
        while self.now_s < now_s:
            self.now_s += 0.5
            self.lists.sweep(self.now_s, receiving_at_s, RESEND_S, LIFETIME_S)
            self.send()

    def answer(self, attempt: int) -> None:
        message = TransactionDataListResponse(self.attempts[attempt], 7, DataListStatus.OK, 7, [RECORD], None)
        self.lists.response(message)


async def test_attempts_bear_one_id_and_the_first_answer_counts() -> None:
    """Else answers that need longer than the pause between two attempts are all in vain, and fill the line."""
    reads = Reads()
    request = reads.request()
    reads.wait_until(16.0)
    assert reads.attempts == [reads.attempts[0]] * 3
    reads.answer(0)
    assert request.done
    assert await request.wait() == [RECORD]
    assert reads.lists.idle
    reads.answer(0)  # a second answer is ignored


async def test_pauses_between_attempts_double() -> None:
    reads = Reads()
    reads.request()
    counts = []
    for now_s in (4.5, 5.0, 14.5, 15.0, 34.5, 35.0):
        reads.wait_until(now_s)
        counts.append(len(reads.attempts))
    assert counts == [1, 2, 2, 3, 3, 4]


async def test_no_attempt_while_a_large_message_arrives() -> None:
    reads = Reads()
    reads.request()
    reads.wait_until(200.0, receiving_at_s=199.0)
    assert len(reads.attempts) == 1


async def test_unanswered_reads_end() -> None:
    reads = Reads()
    request = reads.request()
    reads.wait_until(LIFETIME_S)
    with pytest.raises(DeadlineExceededError, match="no transactions from 7 on within 60 s"):
        await request.wait()
    assert reads.lists.idle


async def test_a_new_connection_begins_anew() -> None:
    """Each read is sent once over it, and answers to attempts over the former one do not count."""
    reads = Reads()
    request = reads.request()
    reads.wait_until(6.0)
    reads.lists.unsend()
    reads.send()
    assert len(reads.attempts) == 3
    reads.answer(0)
    done = [request.done]
    reads.answer(2)
    done.append(request.done)
    assert done == [False, True]
    assert await request.wait() == [RECORD]
