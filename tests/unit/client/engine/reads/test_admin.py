"""Administrative requests whose answers do not come in time."""

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import cast

import pytest
import pytest_asyncio

from tests.unit.client.fake_server import until
from waltz.client.engine.links.links import ServerLink
from waltz.client.engine.reads.admin import AdminCalls
from waltz.client.engine.tasks import TaskOwner
from waltz.common.errors import ConnectionClosedError, DeadlineExceededError
from waltz.common.ids import ReqId
from waltz.common.net.guard import MIN_PROGRESS_BYTES
from waltz.common.wire.client_server import ServerPartitionsAssignmentRequest, ServerPartitionsAssignmentResponse

REQUEST = ServerPartitionsAssignmentRequest(ReqId.of(1, 0, 0, 0))
TIMEOUT_S = 0.02


def answer(partition_id: int) -> ServerPartitionsAssignmentResponse:
    return ServerPartitionsAssignmentResponse(REQUEST.req_id, (partition_id,))


class Link:
    """A link, and the channel of it; ``bytes_per_look`` come between two looks."""

    endpoint = "server:1"
    version = 5

    def __init__(self) -> None:
        self.bytes_per_look = 0
        self.sent = 0
        self.reconnections: list[str] = []
        self._received_bytes = 0

    @property
    def channel(self) -> "Link":
        return self

    @property
    def received_bytes(self) -> int:
        self._received_bytes += self.bytes_per_look
        return self._received_bytes

    def left_bytes(self) -> int:
        return 0

    async def ready_channel(self, timeout_s: float) -> "Link":
        return self

    def send(self, frame: bytes) -> None:
        self.sent += 1

    def reconnect(self, reason: str) -> None:
        self.reconnections.append(reason)


@pytest.fixture
def link() -> Link:
    return Link()


@pytest_asyncio.fixture
async def calls(link: Link) -> AsyncIterator[AdminCalls]:
    tasks = TaskOwner()
    yield AdminCalls(cast("ServerLink", link), tasks)
    await tasks.close()


async def call(calls: AdminCalls) -> ServerPartitionsAssignmentResponse:
    return await calls.call(REQUEST, ServerPartitionsAssignmentResponse, TIMEOUT_S)


async def test_a_connection_on_which_nothing_moves_is_replaced(link: Link, calls: AdminCalls) -> None:
    unhandled: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    with pytest.raises(DeadlineExceededError):
        await call(calls)
    await until(lambda: link.reconnections)
    calls.fail(ConnectionClosedError("replaced"))
    again = asyncio.create_task(call(calls))
    await until(lambda: link.sent == 2)
    assert calls.resolve(answer(1))
    assert await again == answer(1)
    gc.collect()
    assert not unhandled


async def test_a_connection_over_which_much_comes_is_kept_and_a_late_answer_is_dropped(
    link: Link, calls: AdminCalls
) -> None:
    link.bytes_per_look = MIN_PROGRESS_BYTES
    for _ in range(3):
        with pytest.raises(DeadlineExceededError):
            await call(calls)
    assert link.sent == 1, "the others wait for their turn: an answer does not tell whose it is"
    assert calls.resolve(answer(1))
    again = asyncio.create_task(call(calls))
    await until(lambda: link.sent == 2)
    assert calls.resolve(answer(2))
    assert await again == answer(2)
    assert not calls.resolve(answer(3))
    assert link.reconnections == []


async def test_a_caller_that_gives_up_leaves_the_connection_alone(link: Link, calls: AdminCalls) -> None:
    given_up = asyncio.create_task(calls.call(REQUEST, ServerPartitionsAssignmentResponse, 60))
    await until(lambda: link.sent == 1)
    given_up.cancel()
    again = asyncio.create_task(calls.call(REQUEST, ServerPartitionsAssignmentResponse, 60))
    await asyncio.sleep(0)
    assert calls.resolve(answer(1))
    await until(lambda: link.sent == 2)
    assert calls.resolve(answer(2))
    assert await again == answer(2)
    assert link.reconnections == []
