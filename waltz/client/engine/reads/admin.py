"""Administrative requests over one connection, one of each kind at a time."""

import asyncio
from typing import TypeVar

from waltz.client.engine.links.links import ServerLink
from waltz.client.engine.tasks import TaskOwner
from waltz.common.errors import ConnectionClosedError, DeadlineExceededError, WaltzError
from waltz.common.net.channel import Channel
from waltz.common.net.progress import while_moving
from waltz.common.wire.client_server import Message, encode

Response = TypeVar("Response", bound=Message)


class AdminCalls:
    """Sends administrative requests to the server of a link, and returns their answers.

    The request ids of answers do not distinguish requests. So answers are matched by their type, and one request of
    each type is under way at a time. Other requests wait for their turn (in the original they get the answer to the
    first request).
    """

    def __init__(self, link: ServerLink, tasks: TaskOwner) -> None:
        self._link = link
        self._tasks = tasks
        self._turns: dict[type[object], asyncio.Lock] = {}
        self._waiting: dict[type[object], asyncio.Future[Message]] = {}

    async def call(self, request: Message, response_type: type[Response], timeout_s: float) -> Response:
        """Send ``request`` when there is a connection, and return the answer.

        Raises ``ConnectFailedError``, ``ConnectionClosedError``, ``DeadlineExceededError``, and ``ProtocolError`` when
        the server's version does not have the request.
        """
        try:
            async with asyncio.timeout(timeout_s):
                response = await asyncio.shield(await self._send(request, response_type, timeout_s))
        except TimeoutError:
            raise DeadlineExceededError(
                f"{self._link.endpoint} did not answer {type(request).__name__} within {timeout_s:g} s"
            ) from None
        assert isinstance(response, response_type)
        return response

    async def _send(self, request: Message, response_type: type[Response], timeout_s: float) -> asyncio.Future[Message]:
        turn = self._turns.setdefault(response_type, asyncio.Lock())
        await turn.acquire()
        try:
            channel = await self._link.ready_channel(timeout_s)
            frame = encode(request, channel.version)
        except BaseException:
            turn.release()
            raise
        waiter: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[response_type] = waiter

        def done(waiter: asyncio.Future[Message]) -> None:
            if not waiter.cancelled():
                waiter.exception()  # the caller may have been cancelled; then no other code retrieves the exception
            del self._waiting[response_type]
            turn.release()

        waiter.add_done_callback(done)
        channel.send(frame)
        name = type(request).__name__
        self._tasks.spawn(self._watch(waiter, channel, name, timeout_s), f"waiting for the answer to {name}")
        return waiter

    async def _watch(self, waiter: asyncio.Future[Message], channel: Channel, name: str, timeout_s: float) -> None:
        """Make sure that the turn of a request ends, even if the caller was cancelled.

        The answer may still arrive, and must not be taken for the answer to the next request. So the answer is awaited
        while bytes move. Without progress the connection is closed.
        """
        try:
            await while_moving(waiter, channel, timeout_s)
        except TimeoutError:
            if self._link.channel is channel:
                self._link.reconnect(f"{name} was not answered within {timeout_s:g} s")
        except ConnectionClosedError:
            pass  # the caller is told

    def resolve(self, message: Message) -> bool:
        """Hand over an answer. ``False`` if no call waits for this type of answer."""
        waiter = self._waiting.get(type(message))
        if waiter is None or waiter.done():
            return False
        waiter.set_result(message)
        return True

    def refused(self, error: WaltzError) -> None:
        """The client lacks a right. The message does not say which of the waiting calls needs it."""
        for waiter in self._waiting.values():
            if not waiter.done():
                waiter.set_exception(error)

    def fail(self, error: Exception) -> None:
        """The connection is lost: all waiting calls get ``ConnectionClosedError``."""
        for waiter in self._waiting.values():
            if not waiter.done():
                waiter.set_exception(ConnectionClosedError(f"{self._link.endpoint}: {error}"))
