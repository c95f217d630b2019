"""Administrative requests over one connection: one of a kind at a time."""

import asyncio
from typing import TypeVar

from waltz.client.engine.links import ServerLink
from waltz.common.errors import ConnectionClosedError, DeadlineExceededError
from waltz.common.wire.client_server import Message, encode

Response = TypeVar("Response", bound=Message)


class AdminCalls:
    """Brings administrative requests to the server of a link, and their answers back.

    Answers bear request ids that do not tell requests apart, so they are matched by their type, and there is one
    request of a type on its way at a time; others wait for their turn (the original gives them the
    answer to the first one).
    """

    def __init__(self, link: ServerLink) -> None:
        self._link = link
        self._locks: dict[type[object], asyncio.Lock] = {}
        self._waiting: dict[type[object], asyncio.Future[Message]] = {}

    async def call(self, request: Message, response_type: type[Response], timeout_s: float) -> Response:
        """Send ``request`` as soon as there is a connection, and return its answer.

        Raises ``ConnectFailedError``, ``ConnectionClosedError``, ``DeadlineExceededError``, and ``ProtocolError`` when
        the server's version does not have the request.
        """
        try:
            async with asyncio.timeout(timeout_s), self._locks.setdefault(response_type, asyncio.Lock()):
                return await self._call(request, response_type, timeout_s)
        except TimeoutError:
            raise DeadlineExceededError(
                f"{self._link.endpoint} did not answer {type(request).__name__} within {timeout_s:g} s"
            ) from None

    async def _call(self, request: Message, response_type: type[Response], timeout_s: float) -> Response:
        channel = await self._link.ready_channel(timeout_s)
        frame = encode(request, channel.version)
        waiter: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[response_type] = waiter
        channel.send(frame)
        try:
            response = await waiter
        except asyncio.CancelledError:
            # its answer may still come, and must not be taken for that of the next request
            self._link.reconnect(f"{type(request).__name__} was given up without an answer")
            raise
        finally:
            self._waiting.pop(response_type, None)
        assert isinstance(response, response_type)
        return response

    def resolve(self, message: Message) -> bool:
        """Hand an answer over; ``False`` if nobody waits for one of its type."""
        waiter = self._waiting.get(type(message))
        if waiter is None or waiter.done():
            return False
        waiter.set_result(message)
        return True

    def fail(self, error: Exception) -> None:
        """The connection is lost: everyone who waits for an answer gets ``ConnectionClosedError``."""
        for waiter in self._waiting.values():
            if not waiter.done():
                waiter.set_exception(ConnectionClosedError(f"{self._link.endpoint}: {error}"))
