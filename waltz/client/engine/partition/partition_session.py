"""Asks servers for the write session of one partition, for appends and for the application.

:mod:`~waltz.client.engine.partition.write_session` interprets the answers.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from waltz.client.engine.partition.appends import PartitionAppends
from waltz.client.engine.partition.monitor import MonitorState
from waltz.client.engine.partition.mount import Mount
from waltz.client.engine.partition.write_session import SessionState
from waltz.client.engine.reads.data_requests import RpcPartition
from waltz.client.engine.reads.last_transaction import Answer
from waltz.client.engine.settings import PartitionSettings
from waltz.client.errors import (
    ClientTimeoutError,
    NotAuthorizedError,
    SessionFencedError,
    SessionNotSupportedError,
)
from waltz.common.errors import DeadlineExceededError
from waltz.common.ids import NO_TRANSACTION
from waltz.common.net.backoff import Backoff
from waltz.common.wire.client_server import encode
from waltz.common.wire.refused import NotAuthorized
from waltz.common.wire.write_sessions import (
    NO_WRITE_SESSION,
    FenceOption,
    HeartbeatRequest,
    HeartbeatResponse,
    LastTransactionIdResponse,
    LastTransactionStatus,
)

logger = logging.getLogger(__name__)


class BegunSession(NamedTuple):
    """The result of a fence, or of a question for the present session."""

    number: int
    transaction_id: int
    """After a fence, the last transaction before the session; otherwise the last transaction; -1 if there is none."""


class PartitionSession:
    """The write session of one partition. Questions of the application are asked one at a time, so that numbers are
    taken in the order of the calls."""

    def __init__(
        self,
        partition_id: int,
        appends: PartitionAppends,
        mount: Mount,
        server: RpcPartition,
        settings: PartitionSettings,
    ) -> None:
        self._partition_id = partition_id
        self._appends = appends
        self._mount = mount
        self._server = server
        self._options = settings.options
        self._random = settings.random_source
        self._timeout_s = settings.sessions.timeout_s
        self._state = appends.session
        self._changing = asyncio.Lock()
        self._asked = b""
        self._timer: asyncio.TimerHandle | None = None
        self._warned = False

    @property
    def number(self) -> int | None:
        """The number of the session of the appends; ``None`` while no appends are sent, or without sessions."""
        return None if self._state.carried == NO_WRITE_SESSION else self._state.carried

    def holds(self, number: int) -> bool:
        """Whether this client still has the session, as far as it knows."""
        return self._state.number == number and self._state.state in (SessionState.HELD, SessionState.ASKING)

    # Events of the mount and the server

    def mounted(self) -> None:
        """The partition is mounted: ask whether the session is still the present session."""
        channel = self._mount.channel
        assert channel is not None
        question = self._state.mounted(channel.version)
        if self._state.state is SessionState.PLAIN and not self._warned:
            self._warned = True
            logger.warning(
                "partition %d: the server knows no write sessions; appends go without one (client.sessionFallback)",
                self._partition_id,
            )
        if question is not None:
            self._ask()
        if self._state.enabled:
            self._appends.session_changed()

    def response(self, message: HeartbeatResponse) -> None:
        """Take an answer of the server. Ignored unless it is the answer to the last question."""
        if message.req_id != self._asked:
            return
        before = self._state.state
        if not self._state.answered(message):
            self._timer = asyncio.get_running_loop().call_later(self._options.not_ready_retry_s, self._ask)
        elif self._state.state is SessionState.FENCED and before is not SessionState.FENCED:
            number = self._state.number
            logger.warning(
                "partition %d: %s",
                self._partition_id,
                "another client holds an exclusive write session, so this one has none"
                if number == NO_WRITE_SESSION
                else f"write session {number} of this client is over",
            )
        self._appends.session_changed()

    def refused(self, message: NotAuthorized) -> bool:
        """The client lacks a right, according to the server. False if that concerns another request."""
        if message.req_id != self._asked:
            return False
        self._state.denied = NotAuthorizedError(message.text)
        self._timer = asyncio.get_running_loop().call_later(self._options.not_ready_retry_s, self._ask)
        self._appends.session_changed()
        return True

    def stop(self) -> None:
        """Stop the automatic questions."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ask(self) -> None:
        self.stop()
        channel, link = self._mount.channel, self._mount.link
        if channel is None or link is None:
            return  # the next mount asks again
        self._asked = self._appends.next_req_id()
        channel.send(encode(HeartbeatRequest(self._asked, self._state.question), channel.version))
        link.expect_answer()

    # Requests of the application

    async def renew(self, *, exclusive: bool) -> int:
        """Continue with the present number, and return it. With ``exclusive``, the server raises the number for this
        client alone.

        Raises ``SessionNotSupportedError``, ``SessionFencedError`` when another client holds an exclusive session,
        ``DeadlineExceededError``, ``PartitionInactiveError``, ``ClientAheadError`` and ``ClientClosedError``.
        """
        state = self._state
        async with self._within_time("the write session was not told"):
            await self._mounted()
            state.renew(exclusive=exclusive)
            state.denied = None
            try:
                self.mounted()
                while state.renewing:
                    if state.denied is not None:
                        raise NotAuthorizedError(str(state.denied))
                    await self._appends.changed()
            finally:
                state.end_renewal()
        if state.renewed != NO_WRITE_SESSION:
            return state.renewed  # even if the partition is being mounted again
        if state.state is SessionState.FENCED:
            raise SessionFencedError(self._partition_id, state.number, "another client holds an exclusive session")
        raise SessionNotSupportedError(self._partition_id)

    async def fence(self, *, exclusive: bool, expected_session: int | None) -> BegunSession:
        """Begin a new session, and return when all earlier appends are settled: :meth:`begin` and :meth:`settle`."""
        begun = await self.begin(exclusive=exclusive, expected_session=expected_session)
        await self.settle(begun)
        return begun

    async def begin(
        self, *, exclusive: bool, expected_session: int | None, left: Callable[[Answer], object] | None = None
    ) -> BegunSession:
        """Begin a new session. This client continues in the session.

        If the call is cancelled while a server may be beginning a session, ``left`` gets the later answer. This client
        does not use that session, because its caller has gone. :meth:`release` lets other clients write again. Raises
        ``SessionFencedError`` if the present session is not the expected one, ``SessionNotSupportedError``,
        ``DeadlineExceededError`` (the session may have begun), ``PartitionInactiveError``, ``ClientAheadError`` and
        ``ClientClosedError``.
        """
        options = FenceOption.FENCE | (FenceOption.EXCLUSIVE if exclusive else FenceOption(0))
        expected = NO_WRITE_SESSION if expected_session is None else expected_session
        self._appends.check_active()
        async with self._within_time("no write session was begun"):
            await self._mounted()  # a client that may not append must not keep other clients from appending
            response = await self._last_transaction(options, expected, left)
        if response.last_transaction_status is LastTransactionStatus.UNEXPECTED_SESSION:
            raise SessionFencedError(
                self._partition_id,
                expected,
                f"the write session is {response.write_session}, not {expected} as expected",
            )
        if response.write_session > self._state.number:
            self._state.adopt(response.write_session)
            self._asked = b""  # an answer from before the fence may still arrive over the other connection
            self._appends.session_changed()
        return BegunSession(response.write_session, response.transaction_id)

    async def release(self, number: int) -> None:
        """End an exclusive session that a server has begun after this client cancelled the request.

        The client takes neither that session nor the next one, and sends no appends because of this: appends of unknown
        outcome belong to the earlier session, and only the application can find out their outcome.

        Raises ``SessionNotSupportedError``, ``DeadlineExceededError`` and ``ClientClosedError``.
        """
        async with self._within_time(f"exclusive write session {number} was not ended"):
            await self._last_transaction(FenceOption.FENCE, number)

    async def settle(self, begun: BegunSession) -> None:
        """Return when all transactions before the session are applied, and all appends sent before it are decided.

        Appends that still wait (for the mount, for a place, or for another attempt after a conflict) belong to the new
        session. Raises ``DeadlineExceededError``, ``PartitionInactiveError``, ``ClientAheadError`` and
        ``ClientClosedError``.
        """
        async with self._within_time(f"write session {begun.number} is begun, but what came before"):
            await self._decided(begun.transaction_id)
            while self._state.state is SessionState.ASKING:  # mounted meanwhile
                await self._appends.changed()

    async def present(self) -> BegunSession:
        """The present session, and the last transaction after all appends that the server got before.

        Raises ``SessionNotSupportedError``, ``DeadlineExceededError`` and ``ClientClosedError``.
        """
        async with self._within_time("its last transaction was not told"):
            response = await self._last_transaction(FenceOption(0), NO_WRITE_SESSION)
        return BegunSession(response.write_session, response.transaction_id)

    async def flush(self) -> None:
        """Return when all submissions are decided; immediately if the client takes no part.

        Raises ``DeadlineExceededError`` and ``ClientClosedError``.
        """
        if self._appends.monitor.state is MonitorState.STARTED:
            async with self._within_time("not everything was decided"):
                await self._decided(NO_TRANSACTION)

    async def _last_transaction(
        self, options: FenceOption, expected_session: int, left: Callable[[Answer], object] | None = None
    ) -> LastTransactionIdResponse:
        backoff = Backoff(self._options.refused_initial_s, self._options.refused_maximum_s, self._random)
        while True:
            answer = self._server.ask_last(options, expected_session)
            try:
                response = await asyncio.shield(answer)
            except asyncio.CancelledError:
                if left is not None and (answer.done() or self._server.has_asked(answer)):
                    left(answer)
                else:
                    answer.cancel()
                raise
            if response.last_transaction_status in (
                LastTransactionStatus.OK,
                LastTransactionStatus.UNEXPECTED_SESSION,
            ):
                return response
            await asyncio.sleep(backoff.next_delay_s())

    async def _mounted(self) -> None:
        """Return when the partition is mounted, within the time of the caller."""
        while True:
            with contextlib.suppress(ClientTimeoutError):
                await self._appends.mounted()
                return

    async def _decided(self, transaction_id: int) -> None:
        """Return when all submissions so far are decided, and the transaction is applied."""
        await self._mounted()
        last = await self._appends.begin_flush()
        if last is not None:
            await self._appends.flushed(last)
        await self._appends.applied(transaction_id)

    @asynccontextmanager
    async def _within_time(self, what: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._timeout_s), self._changing:
                yield
        except TimeoutError:
            obstacle = self._appends.obstacle or self._server.obstacle
            reason = "" if obstacle is None else f": {obstacle}"
            raise DeadlineExceededError(
                f"partition {self._partition_id}: {what} within {self._timeout_s:g} s{reason}"
            ) from obstacle
