"""Applications that append within write sessions, and fence, renew, and write alone for a while."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from tests.simulation.application import ApplicationHost, ClientHost, Context
from tests.simulation.checker import Checker, Submitted
from tests.simulation.clients import NEWEST
from tests.simulation.cluster import World
from tests.simulation.plain_application import PlainHost
from waltz.client.builder import TransactionBuilder
from waltz.client.callbacks import WaltzClient
from waltz.client.context import TransactionContext
from waltz.client.errors import ClientClosedError
from waltz.client.plain.client import Client
from waltz.common.errors import WaltzError
from waltz.common.ids import ReqId
from waltz.common.wire.write_sessions import NO_WRITE_SESSION

_EXCLUSIVE_SHARE = 0.25


class Sessions:
    """What an application does with its write sessions, on whatever face of its client."""

    def __init__(self, host: ApplicationHost) -> None:
        host.version = NEWEST
        self._host = host
        self._world = host.world
        self._draw = host.world.random(f"fences of {host.name}")
        self._always_exclusive = self._draw.random() < _EXCLUSIVE_SHARE

    @property
    def settings(self) -> dict[str, object]:
        """The configuration of its clients, as far as it is about sessions."""
        return {
            "client.enableSessionWrite": True,
            "client.enableExclusiveSession": self._always_exclusive,
            "client.sessionTimeout": 5_000,
        }

    def keep(self, client: WaltzClient | Client) -> list[Coroutine[Any, Any, None]]:
        """The work that lasts as long as a client is open."""
        return [self._keep(client, partition_id) for partition_id in range(self._world.options.partitions)]

    async def _keep(self, client: WaltzClient | Client, partition_id: int) -> None:
        """Begin a session now and then, and go on when somebody else has begun one."""
        while True:
            await asyncio.sleep(self._draw.choice((0.02, 0.3, 1.0, 3.0)) * self._draw.random())
            over = self._world.loop.now_s >= self._world.options.duration_s - 1.0
            try:
                held = client.write_session(partition_id)
                if held is not None:
                    if not over:
                        await self._use(client, partition_id, held)
                elif not over and self._draw.random() < 0.4:
                    await self._fence(client, partition_id, None)
                elif not over or not self._host.idle:
                    async with self._asking(client, partition_id):
                        await client.renew_session(partition_id)
            except ClientClosedError:
                return
            except WaltzError as error:
                self._world.trace.line(self._host.name, f"has no session of partition {partition_id}: {error}")

    async def _use(self, client: WaltzClient | Client, partition_id: int, held: int) -> None:
        way = self._draw.random()
        if way < 0.3:
            await self._fence(client, partition_id, None if way < 0.1 else held)
        elif way < 0.4:
            async with self._asking(client, partition_id):
                await client.renew_session(partition_id)
        elif way < 0.6:
            await client.last_transaction_id(partition_id)
        elif way < 0.75 and not self._world.options.elections:
            await self._write_alone(client, partition_id)
        elif way < 0.95 and self._world.options.elections:
            await self._lead(client, partition_id)

    async def _fence(self, client: WaltzClient | Client, partition_id: int, expected: int | None) -> None:
        registered = _registered_last(client, partition_id)
        async with self._asking(client, partition_id):
            last = await client.last_transaction_id(partition_id, fence=True, if_session=expected)
        self._check_decided(client, partition_id, last, registered)

    async def _write_alone(self, client: WaltzClient | Client, partition_id: int) -> None:
        exclusive = client.exclusive(partition_id)
        registered = _registered_last(client, partition_id)
        async with self._asking(client, partition_id):
            session = await exclusive.__aenter__()
        self._check_decided(client, partition_id, session.transaction_id, registered)
        await asyncio.sleep(self._draw.random())
        async with self._asking(client, partition_id):
            await exclusive.__aexit__(None, None, None)

    async def _lead(self, client: WaltzClient | Client, partition_id: int) -> None:
        campaign = client.election(partition_id, self._host.name).campaign()
        registered = _registered_last(client, partition_id)
        try:
            async with self._asking(client, partition_id), asyncio.timeout(10.0 * self._draw.random()):
                leadership = await campaign.__aenter__()
        except TimeoutError:
            return
        self._check_decided(client, partition_id, leadership.transaction_id, registered)
        self._world.elections.elected(self._host.name, leadership)
        await asyncio.sleep(self._draw.random())
        self._world.elections.resigns(leadership)
        async with self._asking(client, partition_id):
            await campaign.__aexit__(None, None, None)

    def _check_decided(
        self, client: WaltzClient | Client, partition_id: int, last: int, registered: bytes | None
    ) -> None:
        """A session has begun: what came before is applied, and what was sent before is decided."""
        host, what = self._host, f"{self._host.name} has begun a session of partition {partition_id}"
        if registered is not None and registered in _engine(client).partitions[partition_id].appends.monitor:
            self._world.fail(f"{what}; {ReqId(registered)} is not decided")
        if isinstance(client, WaltzClient) and host.applied(partition_id) < last:
            self._world.fail(f"{what} behind {last}, and has applied {host.applied(partition_id)}")

    @contextlib.asynccontextmanager
    async def _asking(self, client: WaltzClient | Client, partition_id: int) -> AsyncIterator[None]:
        """Meanwhile the client may take another number."""
        checks, client_id = self._world.session_checks, client.client_id
        checks.client_asks(client_id, partition_id)
        try:
            yield
        finally:
            # What it has taken, even if it is finding out just then, after another mount, whether that still holds.
            number = _engine(client).partitions[partition_id].appends.session.number
            checks.client_asked(client_id, partition_id, None if number == NO_WRITE_SESSION else number)


def _engine(client: WaltzClient | Client) -> Any:
    return client._engine


def _registered_last(client: WaltzClient | Client, partition_id: int) -> bytes | None:
    """The append that was sent last."""
    last: bytes | None = _engine(client).partitions[partition_id].appends.monitor.last_enqueued
    return last


class SessionHost(ClientHost):
    """An application that repeats its transactions only after conflicts of locks."""

    def __init__(self, world: World, name: str, checker: Checker, quota: int) -> None:
        super().__init__(world, name, checker, quota)
        self._sessions = Sessions(self)

    def settings(self) -> dict[str, object]:
        return {**super().settings(), **self._sessions.settings}

    def beside(self, client: WaltzClient) -> list[Coroutine[Any, Any, None]]:
        return self._sessions.keep(client)

    def context(self, submitted: Submitted) -> TransactionContext:
        return SessionContext(self, submitted)


class PlainSessionHost(PlainHost):
    """Such an application on the plain face."""

    def __init__(self, world: World, name: str, checker: Checker, quota: int) -> None:
        super().__init__(world, name, checker, quota)
        self._sessions = Sessions(self)

    def settings(self) -> dict[str, object]:
        return self._sessions.settings

    def beside(self, client: Client) -> list[Coroutine[Any, Any, None]]:
        return self._sessions.keep(client)


class SessionContext(Context):
    """One transaction, which is attempted again for its locks only."""

    __slots__ = ("_conflicts",)

    def __init__(self, host: ClientHost, submitted: Submitted) -> None:
        super().__init__(host, submitted)
        self._conflicts = 0

    def execute(self, builder: TransactionBuilder) -> bool:
        """See the base class."""
        if len(self._submitted.attempts) > self._conflicts:
            self._host.world.fail(
                f"transaction {self._submitted.number} is attempted again, behind later ones; it had "
                f"{len(self._submitted.attempts)} attempts and {self._conflicts} conflicts"
            )
        return super().execute(builder)

    def on_lock_conflict(self, transaction_id: int) -> None:
        """See the base class."""
        self._conflicts += 1
        super().on_lock_conflict(transaction_id)
